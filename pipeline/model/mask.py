"""
The attention mask of a drafter step.

Queries are the A·K block tokens; keys are the T context positions followed by the same block tokens. A query sees the
context of its own document strictly before its anchor (`kv < anchor`: `<=` leaks the label, SpecForge#473), within the
window if its layer slides, and all of its own block, both ways (SpecForge#427).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask

MaskRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(batch, head, query, key) → may attend; the form that `create_mask` and `create_block_mask` evaluate."""

FLEX_BLOCK = 128
"""Queries and keys in a block of the sparse mask, flex_attention's default."""

NOBODY = -2
"""A document or block number that no query has."""


@dataclass(frozen=True)
class MaskTables:
    """
    The rule's operands, one entry a query (Q = A·K) or a key (T + Q), all int32.

    Tables, not arithmetic in the rule: divisions fuse into every (query, key) pair when compiled, 9 ns a pair on a
    CPU against 0.4 ns for loads and compares.
    """

    anchor_Q: Tensor
    document_Q: Tensor
    block_Q: Tensor
    lowest_Q: Tensor
    """Last context position that is out of the window; -1 where all is in."""
    document_K: Tensor
    block_K: Tensor

    def arguments(self) -> tuple[Tensor, ...]:
        """The tables in the order of the fields."""
        return (self.anchor_Q, self.document_Q, self.block_Q, self.lowest_Q, self.document_K, self.block_K)


def mask_tables(anchor_A: Tensor, document_T: Tensor, *, block_size: int, window: int | None) -> MaskTables:
    """
    Lay out the operands of one step's mask.

    Args:
        anchor_A: int64, position of each block's anchor in the packed row.
        document_T: int64, document of each context position, -1 for padding.
        block_size: Tokens of a block.
        window: Context positions a query may look back, counted from its own position; None for all.
    """
    num_anchors = anchor_A.numel()
    block_Q = torch.arange(num_anchors, device=anchor_A.device).repeat_interleave(block_size)
    anchor_Q = anchor_A[block_Q]
    position_Q = anchor_Q + torch.arange(block_size, device=anchor_A.device).repeat(num_anchors)
    lowest_Q = torch.full_like(position_Q, -1) if window is None else position_Q - window
    nobody_Q = torch.full_like(block_Q, NOBODY)
    nobody_T = torch.full_like(document_T, NOBODY)
    tables = (
        anchor_Q,
        document_T[anchor_Q],
        block_Q,
        lowest_Q,
        torch.cat([document_T, nobody_Q]),
        torch.cat([nobody_T, block_Q]),
    )
    return MaskTables(*(table.int() for table in tables))


def mask_rule(tables: MaskTables) -> MaskRule:
    """The rule of this module's docstring as a function of a query's and a key's position."""

    def rule(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del batch, head
        same_document = tables.document_K[key] == tables.document_Q[query]
        # Keys past the context belong to no document, so `key < anchor` needs no bound of its own.
        context = same_document & (key < tables.anchor_Q[query]) & (key > tables.lowest_Q[query])
        return context | (tables.block_K[key] == tables.block_Q[query])

    return rule


class MaskBuilder(Protocol):
    """Builds the mask that the device's attention takes."""

    def __call__(self, tables: MaskTables) -> Tensor | BlockMask:
        """An additive float mask `[1, 1, queries, keys]` on a CPU, a `BlockMask` on CUDA."""
        ...


def additive_mask(tables: MaskTables) -> Tensor:
    """
    Evaluate the rule at every pair; float32 `[1, 1, queries, keys]`, 0 where visible, -inf elsewhere.

    Additive, because the compiled kernel stores a bool in 5 ns and a float in 0.4 ns (torch 2.13, AVX-512); SDPA takes
    either at the same speed.
    """
    shape = (tables.block_Q.numel(), tables.block_K.numel())
    visible = create_mask(mask_rule(tables), 1, 1, *shape, device=str(tables.block_Q.device))
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, float("-inf"))


def block_mask(tables: MaskTables) -> BlockMask:
    """Evaluate the rule and keep which 128 × 128 blocks are needed; flex_attention applies the rule inside them."""
    shape = (tables.block_Q.numel(), tables.block_K.numel())
    return create_block_mask(mask_rule(tables), 1, None, *shape, device=str(tables.block_Q.device))


class CompiledMaskBuilder:
    """
    The same masks from a compiled evaluation; compiles at its first call.

    On CUDA only the evaluation is compiled, not `create_block_mask` as a whole: Triton had not finished compiling its
    sort after 130 s on an H200 (anchors.md, The mask), while the evaluation alone takes 3 s.
    """

    def __init__(self, *, is_cuda: bool, on_compile: Callable[[str, float], None]) -> None:
        self._is_cuda = is_cuda
        self._on_compile = on_compile
        self._evaluate: Any = None

    def __call__(self, tables: MaskTables) -> Tensor | BlockMask:
        """Build the mask; reports the seconds of each compilation."""
        before = _num_compiled_frames()
        start_s = time.perf_counter()
        if self._evaluate is None:
            self._evaluate = self._make_evaluate()
        evaluated = self._evaluate(*tables.arguments())
        if _num_compiled_frames() > before:
            self._on_compile("mask builder", time.perf_counter() - start_s)
        return _ordered_block_mask(*evaluated, tables) if self._is_cuda else evaluated

    def _make_evaluate(self) -> Any:
        # Not before it is needed: `torch.compile` imports inductor, 1.9 s in every drafter.
        return torch.compile(_block_occupancy if self._is_cuda else _additive, dynamic=True)


def _additive(*tables: Tensor) -> Tensor:
    return additive_mask(MaskTables(*tables))


def _block_occupancy(*arguments: Tensor) -> tuple[Tensor, Tensor]:
    """Which blocks have some visible pair and which have only visible pairs, each bool `[query blocks, key blocks]`."""
    tables = MaskTables(*arguments)
    num_queries, num_keys = tables.block_Q.numel(), tables.block_K.numel()
    visible = create_mask(mask_rule(tables), 1, 1, num_queries, num_keys, device=str(tables.block_Q.device))[0, 0]
    num_rows = -(-num_queries // FLEX_BLOCK)
    num_columns = -(-num_keys // FLEX_BLOCK)
    pad = (0, num_columns * FLEX_BLOCK - num_keys, 0, num_rows * FLEX_BLOCK - num_queries)
    tiles = torch.nn.functional.pad(visible, pad).view(num_rows, FLEX_BLOCK, num_columns, FLEX_BLOCK)
    num_visible = tiles.sum(dim=(1, 3))
    full = num_visible == FLEX_BLOCK * FLEX_BLOCK
    return (num_visible > 0) & ~full, full


def _ordered_block_mask(partial: Tensor, full: Tensor, tables: MaskTables) -> BlockMask:
    """A `BlockMask` from block occupancy; the sort that Triton chokes on runs uncompiled here."""
    counts, indices = _ordered(partial)
    full_counts, full_indices = _ordered(full)
    return BlockMask.from_kv_blocks(
        counts,
        indices,
        full_counts,
        full_indices,
        BLOCK_SIZE=FLEX_BLOCK,
        mask_mod=mask_rule(tables),
        seq_lengths=(tables.block_Q.numel(), tables.block_K.numel()),
    )


def _ordered(occupied: Tensor) -> tuple[Tensor, Tensor]:
    counts = occupied.sum(dim=-1, dtype=torch.int32)
    indices = torch.argsort(occupied.int(), dim=-1, descending=True, stable=True).int()
    return counts[None, None], indices[None, None]


def _num_compiled_frames() -> int:
    import torch._dynamo.utils

    return int(torch._dynamo.utils.counters["frames"]["total"])
