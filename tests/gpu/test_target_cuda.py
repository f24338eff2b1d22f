"""The target's own layers on a GPU: as close to float32 as transformers' are, without waiting, compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.model.taps import TappedTarget
from pipeline.model.target_attention import attend_one_by_one, attend_varlen, has_varlen_kernel

# torch warns about its own deprecated parts while it compiles, and about its sync debug mode.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

DEVICE = "cuda"
LAYER_IDS = (1, 5)
LENGTHS = [700, 31, 1, 380]


def make_model(dtype: torch.dtype) -> Any:
    """Qwen3 of 8 layers; the same weights in every type."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=1024,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=128,
        intermediate_size=3072,
        vocab_size=1000,
        initializer_range=1024**-0.5,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval().requires_grad_(requires_grad=False)
    return model.to(torch.bfloat16).to(DEVICE, dtype)


@pytest.fixture(scope="module")
def target() -> TappedTarget:
    return TappedTarget(make_model(torch.bfloat16), LAYER_IDS)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def samples(lengths: list[int], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, 1000, (length,), generator=generator).to(DEVICE) for length in lengths]


def packed_row(ids: list[Tensor]) -> Tensor:
    num_tokens = sum(one.numel() for one in ids)
    return F.pad(torch.cat(ids), (0, -num_tokens % 128))


def taps_one_by_one(target: TappedTarget, ids: list[Tensor]) -> list[Tensor]:
    alone = [target.forward(one[None], early_exit=True) for one in ids]
    return [torch.cat([states[tap][0] for states in alone]) for tap in range(len(LAYER_IDS))]


def error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.float() - expected.float()).norm() / expected.float().norm())


@pytest.mark.parametrize("compiled", [False, True])
def test_packed_states_are_as_close_to_float32_as_those_of_transformers(target: TappedTarget, compiled: bool) -> None:
    ids = samples(LENGTHS)
    reference = taps_one_by_one(TappedTarget(make_model(torch.float32), LAYER_IDS), ids)
    plain = taps_one_by_one(target, ids)

    own = target.forward_packed(packed_row(ids), LENGTHS, early_exit=True, compiled=compiled)

    for tap, states in enumerate(own):
        assert states.isfinite().all()
        rounding = error(plain[tap], reference[tap])
        assert 0 < rounding < 3e-2
        assert error(states[0, : sum(LENGTHS)], reference[tap]) < 1.5 * rounding


@pytest.mark.parametrize("compiled", [False, True])
def test_padded_states_are_those_of_transformers_but_for_rounding(target: TappedTarget, compiled: bool) -> None:
    input_ids_BS = torch.stack(samples([512, 512, 512]))

    plain = target.forward(input_ids_BS, early_exit=True)
    own = target.forward_padded(input_ids_BS, early_exit=True, compiled=compiled)

    for expected, actual in zip(plain, own, strict=True):
        assert error(actual, expected) < 3e-2


def test_the_kernel_for_unlike_lengths_equals_float64_attention_sample_by_sample() -> None:
    torch.manual_seed(1)
    num_tokens = sum(LENGTHS)
    query, key, value = (
        torch.randn(num_tokens, heads, 128, device=DEVICE, dtype=torch.bfloat16) for heads in (8, 2, 2)
    )
    assert has_varlen_kernel(query)

    actual_TP = attend_varlen(LENGTHS, query)(query, key, value)
    expected_TP = attend_one_by_one(LENGTHS, query)(query.double(), key.double(), value.double())

    assert error(actual_TP, expected_TP) < 1e-2


@pytest.mark.parametrize("compiled", [False, True])
def test_new_lengths_neither_wait_nor_compile(target: TappedTarget, compiled: bool, no_waiting: None) -> None:
    from torch._dynamo.utils import counters

    batches = [([300, 40, 900], 1), ([64] * 7, 2), ([1500], 3), ([5, 6], 4)]
    rows = [packed_row(samples(lengths, seed)) for lengths, seed in batches]
    target.forward_packed(rows[0], batches[0][0], early_exit=True, compiled=compiled)
    num_graphs = counters["stats"]["unique_graphs"]
    torch.cuda.synchronize()

    torch.cuda.set_sync_debug_mode("error")
    for row, (lengths, _) in zip(rows[1:], batches[1:], strict=True):
        target.forward_packed(row, lengths, early_exit=True, compiled=compiled)
    torch.cuda.set_sync_debug_mode("default")

    assert num_graphs == counters["stats"]["unique_graphs"]
