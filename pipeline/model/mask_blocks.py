"""
From block occupancy to flex_attention's `BlockMask`, without a sort.

`create_block_mask` and `BlockMask.from_kv_blocks` sort each row of the block table to bring the occupied blocks to the
front, once forward and once transposed: 1.4 ms on an H200, and Triton does not get through compiling it (anchors.md,
The mask). A running count says where each block belongs.

Shapes: R blocks of queries, C blocks of keys.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from pipeline.model.mask_rule import MaskTables, mask_rule

FLEX_BLOCK = 128
"""Queries and keys in a block of the sparse mask, flex_attention's default."""


def num_blocks(length: int) -> int:
    """Blocks that *length* queries or keys fill, the last one perhaps in part."""
    return -(-length // FLEX_BLOCK)


def block_tables(partial_RC: Tensor, full_RC: Tensor) -> tuple[Tensor, ...]:
    """
    The tables of a `BlockMask`, int32, in the order of its constructor.

    Args:
        partial_RC: bool, blocks in which some pairs are visible and some are not.
        full_RC: bool, blocks in which all pairs are visible.

    Returns:
        Counts `[1, 1, R]` and indices `[1, 1, R, C]` of the partial and of the full key blocks of each query block;
        then the same of the query blocks of each key block.
    """
    by_row, by_column = (
        [_front_first(occupied) for occupied in table] for table in ((partial_RC, full_RC), (partial_RC.T, full_RC.T))
    )
    return tuple(tensor[None, None] for counts_and_indices in by_row + by_column for tensor in counts_and_indices)


def _front_first(occupied: Tensor) -> tuple[Tensor, Tensor]:
    """How many are occupied in each row, and the columns with the occupied ones first, both parts in order."""
    column = torch.arange(occupied.shape[1], device=occupied.device, dtype=torch.int32).expand(occupied.shape)
    num_so_far = occupied.cumsum(dim=1, dtype=torch.int32)
    counts = num_so_far[:, -1]
    place = torch.where(occupied, num_so_far - 1, counts[:, None] + column - num_so_far)
    indices = torch.zeros_like(place).scatter(1, place.long(), column)
    return counts.contiguous(), indices


def make_block_mask(ordered: tuple[Tensor, ...], tables: MaskTables) -> BlockMask:
    """
    A `BlockMask` of these block tables.

    Args:
        ordered: What `block_tables` returned.
        tables: Operands of the rule, which flex_attention applies inside the partial blocks. One rule for every way to
            find the blocks: a rule of its own would have flex_attention compiled anew when a toggle changes.
    """
    # Built directly: `from_kv_blocks` would sort for the transposed half.
    return BlockMask(
        (tables.block_Q.numel(), tables.block_K.numel()),
        *ordered,
        BLOCK_SIZE=(FLEX_BLOCK, FLEX_BLOCK),
        mask_mod=mask_rule(tables),
    )
