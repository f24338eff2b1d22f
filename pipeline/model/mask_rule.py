"""
The rule of a drafter step's attention mask.

Queries are the A·K block tokens; keys are the T context positions followed by the same block tokens. A query sees the
context of its own document strictly before its anchor (`kv < anchor`: `<=` leaks the label, SpecForge#473), within the
window if its layer slides, and all of its own block, both ways (SpecForge#427).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MaskRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(batch, head, query, key) → may attend; the form that `create_mask`, `create_block_mask` and flex_attention take."""

NOBODY = -2
"""A document or block number that no query has."""


@dataclass(frozen=True, kw_only=True)
class MaskRequest:
    """What one step's mask depends on; tensors on the device that attends."""

    anchor_A: Tensor
    """int64, position of each block's anchor in the packed row; 0 in an unused slot."""
    document_T: Tensor
    """int64, document of each context position, -1 for padding; a document's positions lie side by side."""
    position_T: Tensor
    """int64, position within its document of each context position."""
    block_size: int
    """K, tokens of a block."""
    window: int | None
    """Context positions a query may look back, counted from its own position; None for all."""

    @property
    def reach(self) -> int:
        """The window; where there is none, one that holds every row: a number in both cases compiles once."""
        return _reach(self.window, self.document_T, self.block_size)


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
    """Last position that is out of the window; negative where all is in."""
    document_K: Tensor
    block_K: Tensor

    def arguments(self) -> tuple[Tensor, ...]:
        """The tables in the order of the fields."""
        return (self.anchor_Q, self.document_Q, self.block_Q, self.lowest_Q, self.document_K, self.block_K)


def mask_tables(anchor_A: Tensor, document_T: Tensor, *, block_size: int, window: int | None) -> MaskTables:
    """Lay out the operands of one step's mask; the arguments are fields of `MaskRequest`."""
    query_Q = torch.arange(anchor_A.numel() * block_size, device=anchor_A.device)
    block_Q = query_Q // block_size
    anchor_Q = anchor_A[block_Q]
    tables = (
        anchor_Q,
        document_T[anchor_Q],
        block_Q,
        anchor_Q + query_Q % block_size - _reach(window, document_T, block_size),
        torch.cat([document_T, torch.full_like(block_Q, NOBODY)]),
        torch.cat([torch.full_like(document_T, NOBODY), block_Q]),
    )
    return MaskTables(*(table.int() for table in tables))


def _reach(window: int | None, document_T: Tensor, block_size: int) -> int:
    return document_T.numel() + block_size if window is None else window


def mask_rule(tables: MaskTables) -> MaskRule:
    """The rule of this module's docstring as a function of a query's and a key's position."""

    def rule(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del batch, head
        same_document = tables.document_K[key] == tables.document_Q[query]
        # Keys past the context belong to no document, so `key < anchor` needs no bound of its own.
        context = same_document & (key < tables.anchor_Q[query]) & (key > tables.lowest_Q[query])
        return context | (tables.block_K[key] == tables.block_Q[query])

    return rule
