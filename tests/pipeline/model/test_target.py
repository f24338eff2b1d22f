"""The target's taps, and how its rows are packed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.model.drafter import tap_layers
from pipeline.model.target import TappedTarget, drafter_shape, load_target, pack
from pipeline.presets import TINY
from pipeline.roles.target import kept_positions

NUM_TAPS = 2


@pytest.fixture(scope="module")
def model() -> Any:
    plan = replace(TINY.target, hidden_size=32, num_heads=2, num_kv_heads=1, head_dim=16, vocab_size=64)
    return load_target(replace(TINY, target=plan), Path("unused"))


@pytest.fixture(scope="module")
def target(model: Any) -> TappedTarget:
    return TappedTarget(model, num_taps=NUM_TAPS)


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 64, shape, generator=torch.Generator().manual_seed(seed))


def test_taps_of_qwen3_8b_are_those_that_z_lab_published() -> None:
    assert (1, 9, 17, 25, 33) == tap_layers(36, 5)


@pytest.mark.parametrize(
    ("num_layers", "num_taps", "expected"),
    [(6, 2, (1, 3)), (30, 2, (1, 27)), (36, 1, (18,)), (40, 5, (1, 10, 19, 28, 37))],
)
def test_taps_are_spread_evenly_from_the_second_to_the_third_last_layer(
    num_layers: int, num_taps: int, expected: tuple[int, ...]
) -> None:
    assert expected == tap_layers(num_layers, num_taps)


def test_a_tap_is_transformers_hidden_state_one_further(model: Any, target: TappedTarget) -> None:
    input_ids_BS = tokens(2, 12)
    with torch.no_grad():
        reference = model(input_ids=input_ids_BS, output_hidden_states=True).hidden_states

    states = target.forward(input_ids_BS)

    assert NUM_TAPS == len(states)
    for layer_id, state_BSD in zip(target.layer_ids, states, strict=True):
        torch.testing.assert_close(state_BSD, reference[layer_id + 1])
        # One layer off is the classic mistake (vLLM#42704).
        assert not torch.allclose(state_BSD, reference[layer_id])


def test_padding_on_the_right_changes_nothing_for_real_tokens(target: TappedTarget) -> None:
    short = tokens(1, 9)
    padded = torch.zeros(1, 20, dtype=torch.int64)
    padded[:, :9] = short

    alone, among = target.forward(short), target.forward(padded)

    for state, padded_state in zip(alone, among, strict=True):
        torch.testing.assert_close(padded_state[:, :9], state, atol=1e-5, rtol=1e-5)


def test_taps_keep_no_tensor_of_an_earlier_batch(target: TappedTarget) -> None:
    first = target.forward(tokens(1, 5))
    second = target.forward(tokens(1, 7))

    assert {(1, 5, 32)} == {tuple(state.shape) for state in first}
    assert {(1, 7, 32)} == {tuple(state.shape) for state in second}


def test_pack_drops_the_padding_and_joins_taps_position_by_position() -> None:
    lengths, padded_length = (3, 1, 2), 4
    states = [torch.arange(12.0).view(3, 4, 1), torch.arange(100.0, 112.0).view(3, 4, 1)]

    hidden_TF = pack(states, kept_positions(lengths, padded_length), 8)

    kept = [0, 1, 2, 4, 8, 9]
    assert [[at, 100.0 + at] for at in kept] + [[0.0, 0.0]] * 2 == hidden_TF.tolist()


def test_every_process_builds_the_same_random_target_and_leaves_the_generator_alone(model: Any) -> None:
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)

    again = load_target(TINY, Path("unused"))
    first = load_target(TINY, Path("unused"))

    assert torch.equal(expected, torch.randn(3))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name))
        assert not parameter.requires_grad


def test_the_drafter_is_as_wide_as_its_target(model: Any) -> None:
    shape = drafter_shape(model.config, num_layers=NUM_TAPS)

    assert (32, 2, 1, 16) == (shape.hidden_size, shape.num_heads, shape.num_kv_heads, shape.head_dim)
    assert NUM_TAPS == shape.num_layers == shape.num_taps
    assert model.config.rope_parameters["rope_theta"] == shape.rope_theta
