"""The checksum sees any changed element, and neither order nor zeros."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pipeline.model.checksum import bit_sum, kept_bit_sum

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]


def numbers(dtype: torch.dtype) -> Tensor:
    return (torch.randn(6, 8, generator=torch.Generator().manual_seed(0)) * 10).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_neither_order_nor_zero_padding_changes_it(dtype: torch.dtype) -> None:
    tensor = numbers(dtype)
    shuffled = tensor.flatten()[torch.randperm(48, generator=torch.Generator().manual_seed(1))]
    padded = torch.cat([shuffled, torch.zeros(17, dtype=dtype)])

    assert int(bit_sum(tensor)) == int(bit_sum(padded)) == int(bit_sum(tensor.T))
    assert torch.int64 == bit_sum(tensor).dtype


floats = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(st.lists(floats, min_size=1, max_size=20), st.data())
def test_one_changed_element_changes_it(values: list[float], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    changed = list(values)
    changed[at] = data.draw(floats)
    before, after = torch.tensor(values), torch.tensor(changed)

    are_equal = torch.equal(before.view(torch.int32), after.view(torch.int32))

    assert are_equal == (int(bit_sum(before)) == int(bit_sum(after)))


def test_it_sees_what_a_sum_of_the_numbers_rounds_away() -> None:
    tensor = torch.tensor([1e8, 1.0, 2.0])
    changed = tensor.clone()
    changed[1] = math.nextafter(1.0, 2.0) + 1e-7

    assert float(tensor.sum()) == float(changed.sum())
    assert int(bit_sum(tensor)) != int(bit_sum(changed))


def test_large_sums_do_not_overflow_the_type_of_the_bits() -> None:
    tensor = torch.full((100_000,), -1, dtype=torch.int16).view(torch.bfloat16)

    assert -100_000 == int(bit_sum(tensor))
    assert 100_000 * 0x7F7F == int(bit_sum(torch.full((100_000,), 0x7F7F, dtype=torch.int16).view(torch.bfloat16)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_sum_of_kept_positions_is_that_of_the_packed_row(dtype: torch.dtype) -> None:
    states_BSD = numbers(dtype).view(2, 4, 6)
    is_token_BS = torch.tensor([[True, True, False, False], [True, True, True, False]])
    packed = torch.cat([states_BSD[is_token_BS], torch.zeros(3, 6, dtype=dtype)])

    assert int(bit_sum(packed)) == int(kept_bit_sum(states_BSD, is_token_BS))
    assert int(bit_sum(packed)) != int(kept_bit_sum(states_BSD, torch.ones_like(is_token_BS)))
