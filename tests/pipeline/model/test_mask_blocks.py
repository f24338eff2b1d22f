"""Block tables: occupied blocks first, in both directions, without a sort."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from pipeline.model.mask_blocks import FLEX_BLOCK, block_tables, num_blocks


@st.composite
def occupancies(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """No block is both partial and full."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    kinds = torch.tensor(draw(st.lists(st.integers(0, 2), min_size=rows * columns, max_size=rows * columns)))
    return (kinds == 1).view(rows, columns), (kinds == 2).view(rows, columns)


@given(occupancies())
def test_the_tables_are_those_that_torch_sorts_for(occupancy: tuple[Tensor, Tensor]) -> None:
    partial, full = occupancy
    counts = [occupied.sum(dim=1, dtype=torch.int32)[None, None] for occupied in occupancy]
    indices = [
        torch.argsort(occupied.int(), dim=1, descending=True, stable=True).int()[None, None] for occupied in occupancy
    ]
    theirs = BlockMask.from_kv_blocks(counts[0], indices[0], counts[1], indices[1], BLOCK_SIZE=FLEX_BLOCK)
    expected = (
        *(theirs.kv_num_blocks, theirs.kv_indices, theirs.full_kv_num_blocks, theirs.full_kv_indices),
        *(theirs.q_num_blocks, theirs.q_indices, theirs.full_q_num_blocks, theirs.full_q_indices),
    )

    ours = block_tables(partial, full)

    for theirs_one, ours_one in zip(expected, ours, strict=True):
        assert theirs_one is not None
        torch.testing.assert_close(ours_one, theirs_one, rtol=0, atol=0)


@pytest.mark.parametrize(("length", "expected"), [(1, 1), (128, 1), (129, 2), (384, 3)])
def test_a_block_that_is_filled_in_part_counts(length: int, expected: int) -> None:
    assert expected == num_blocks(length)
