"""The mask by evaluating its rule at every pair of query and key: the plain way, which the other is tested against."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask

from pipeline.model.mask_blocks import FLEX_BLOCK, num_blocks
from pipeline.model.mask_rule import MaskTables, mask_rule


def additive_mask(tables: MaskTables) -> Tensor:
    """
    Evaluate the rule; float32 `[1, 1, queries, keys]`, 0 where visible, -inf elsewhere.

    Additive, because the compiled kernel stores a bool in 5 ns and a float in 0.4 ns (torch 2.13, AVX-512); SDPA takes
    either at the same speed.
    """
    visible = _visible(tables)
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, float("-inf"))


def additive_mask_of(*tables: Tensor) -> Tensor:
    """As `additive_mask`, from `MaskTables.arguments`: the form that compiles."""
    return additive_mask(MaskTables(*tables))


def block_mask(tables: MaskTables) -> BlockMask:
    """Evaluate the rule and keep which 128 × 128 blocks are needed; flex_attention applies the rule inside them."""
    shape = (tables.block_Q.numel(), tables.block_K.numel())
    return create_block_mask(mask_rule(tables), 1, None, *shape, device=str(tables.block_Q.device))


def block_occupancy_of(*arguments: Tensor) -> tuple[Tensor, Tensor]:
    """
    Which blocks are visible in part and which in full, each bool `[query blocks, key blocks]`.

    The part of `create_block_mask` that compiles, from `MaskTables.arguments`: Triton had not finished compiling its
    sort after 130 s on an H200, while this takes 3 s (anchors.md, The mask).
    """
    visible = _visible(MaskTables(*arguments))[0, 0]
    num_queries, num_keys = visible.shape
    rows, columns = num_blocks(num_queries), num_blocks(num_keys)
    pad = (0, columns * FLEX_BLOCK - num_keys, 0, rows * FLEX_BLOCK - num_queries)
    tiles = torch.nn.functional.pad(visible, pad).view(rows, FLEX_BLOCK, columns, FLEX_BLOCK)
    num_visible = tiles.sum(dim=(1, 3))
    full = num_visible == FLEX_BLOCK * FLEX_BLOCK
    return (num_visible > 0) & ~full, full


def _visible(tables: MaskTables) -> Tensor:
    shape = (tables.block_Q.numel(), tables.block_K.numel())
    return create_mask(mask_rule(tables), 1, 1, *shape, device=str(tables.block_Q.device))
