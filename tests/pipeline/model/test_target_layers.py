"""The target's own layers: transformers' numbers, padded and packed, eager and compiled."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline.model.taps import TappedTarget
from pipeline.model.target_layers import can_run

LAYER_IDS = (1, 3)
COMPILER = pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="needs a C++ compiler")
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def make_model(architecture: str, **options: Any) -> Any:
    """In float64, with norms that are not one: an error in one of them must show."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{architecture}Config")(**SHAPE | {"initializer_range": 0.2} | options)
    model = getattr(transformers, f"{architecture}ForCausalLM")(config).eval().double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
    return model.requires_grad_(requires_grad=False)


@pytest.fixture(scope="module")
def target() -> TappedTarget:
    return TappedTarget(make_model("Qwen3"), LAYER_IDS)


def samples(lengths: list[int], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, 64, (length,), generator=generator) for length in lengths]


def packed_row(ids: list[Tensor], num_padding: int) -> Tensor:
    return torch.cat([*ids, torch.zeros(num_padding, dtype=torch.int64)])


@pytest.mark.parametrize("early_exit", [False, True])
@pytest.mark.parametrize(
    ("architecture", "options"),
    [("Qwen3", {}), ("Llama", {}), ("Llama", {"rope_parameters": LLAMA3_ROPE})],
    ids=["Qwen3", "Llama", "Llama with scaled rope"],
)
def test_padded_states_are_those_of_transformers(architecture: str, options: dict[str, Any], early_exit: bool) -> None:
    target = TappedTarget(make_model(architecture, **options), LAYER_IDS)
    input_ids_BS = torch.stack(samples([24, 24, 24]))

    plain = target.forward(input_ids_BS, early_exit=early_exit)
    own = target.forward_padded(input_ids_BS, early_exit=early_exit, compiled=False)

    for expected, actual in zip(plain, own, strict=True):
        # transformers normalises in float32 whatever the weights are, and rounds in between.
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    num_padding=st.integers(0, 20),
    seed=st.integers(0, 99),
)
def test_packed_each_sample_has_the_states_that_it_has_alone(
    target: TappedTarget, lengths: list[int], num_padding: int, seed: int
) -> None:
    ids = samples(lengths, seed)

    row = target.forward_packed(packed_row(ids, num_padding), lengths, early_exit=True, compiled=False)
    # By the same layers, which are transformers' but for its norms in float32 (above): so the bound can be sharp.
    alone = [target.forward_padded(one[None], early_exit=True, compiled=False) for one in ids]

    for tap, states in enumerate(row):
        expected_TD = torch.cat([states_of_one[tap][0] for states_of_one in alone])
        assert (1, sum(lengths) + num_padding, 32) == tuple(states.shape)
        assert states.isfinite().all()
        torch.testing.assert_close(states[0, : sum(lengths)], expected_TD, atol=1e-10, rtol=1e-10)


def test_positions_begin_anew_with_each_sample(target: TappedTarget) -> None:
    (ids,) = samples([37])

    *_, state = target.forward_packed(torch.cat([ids, ids]), [37, 37], early_exit=True, compiled=False)
    first, second = state[0].split(37)

    # Attention sees distances only, but angles are float32: positions that went on would differ by 1e-7.
    torch.testing.assert_close(second, first, atol=1e-12, rtol=1e-12)


def test_the_model_keeps_its_bits_and_its_memory_when_its_weights_are_joined() -> None:
    model = make_model("Qwen3")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    input_ids_BS = torch.stack(samples([12, 12]))
    target = TappedTarget(model, LAYER_IDS)
    plain = target.forward(input_ids_BS, early_exit=True)

    target.forward_padded(input_ids_BS, early_exit=True, compiled=False)
    after = target.forward(input_ids_BS, early_exit=True)
    attention = model.model.layers[0].self_attn
    storages = {linear.weight.untyped_storage().data_ptr() for linear in (attention.q_proj, attention.v_proj)}

    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert all(torch.equal(one, other) for one, other in zip(plain, after, strict=True))
    assert 1 == len(storages)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("Qwen3", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}),
        ("Qwen3", {"attention_bias": True}),
        ("Llama", {"mlp_bias": True}),
        ("Llama", {"hidden_act": "gelu"}),
        ("Mistral", {"sliding_window": None}),
    ],
    ids=["sliding", "attention bias", "mlp bias", "gelu", "unknown class"],
)
def test_layers_that_compute_something_else_are_left_to_transformers(
    architecture: str, options: dict[str, Any]
) -> None:
    model = make_model(architecture, **options)

    assert not can_run(model)
    assert not TappedTarget(model, LAYER_IDS).has_own_layers


def test_known_layers_run_here(target: TappedTarget) -> None:
    assert target.has_own_layers


@pytest.mark.slow
@COMPILER
# torch warns about its own deprecated parts while it loads its compiler.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_once_for_all_layers_batches_and_lengths() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    target = TappedTarget(make_model("Qwen3").float(), LAYER_IDS)
    shapes = [[7, 40, 3], [16], [32, 32], [5] * 9]

    for lengths in shapes:
        ids = samples(lengths)
        row = target.forward_packed(packed_row(ids, 2), lengths, early_exit=True, compiled=True)
        eager = target.forward_packed(packed_row(ids, 2), lengths, early_exit=True, compiled=False)
        for expected, actual in zip(eager, row, strict=True):
            torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    padded = torch.stack(samples([24, 24]))
    target.forward_padded(padded, early_exit=False, compiled=True)

    assert 2 == counters["stats"]["unique_graphs"]
    assert not counters["graph_break"]
