"""Builds the mask that the device's attention takes, in the way that the toggles ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from pipeline.model.mask_analytic import analytic_block_tables, block_numbers, context_intervals, interval_mask
from pipeline.model.mask_blocks import block_tables, make_block_mask
from pipeline.model.mask_evaluated import additive_mask, additive_mask_of, block_mask, block_occupancy_of
from pipeline.model.mask_rule import MaskRequest, MaskTables, mask_tables


class MaskFactory:
    """
    Four ways to the same mask; each call chooses, so that toggles can change while training runs.

    Args:
        is_cuda: Whether flex_attention attends (`BlockMask`), or SDPA (additive mask).
    """

    def __init__(self, *, is_cuda: bool) -> None:
        self._is_cuda = is_cuda
        self._derive = analytic_block_tables if is_cuda else interval_mask
        self._compiled_derive = Compiled(self._derive)
        self._compiled_evaluate = Compiled(block_occupancy_of if is_cuda else additive_mask_of)

    def build(self, request: MaskRequest, *, compiled: bool, analytic: bool) -> Tensor | BlockMask:
        """
        The mask of one kind of layer.

        Args:
            request: What it depends on.
            compiled: By compiled code; the first call of each way compiles.
            analytic: From interval ends, not by evaluating the rule at every pair.

        Returns:
            An additive float32 mask `[1, 1, queries, keys]` on a CPU, a `BlockMask` on CUDA.
        """
        if analytic:
            return self._from_intervals(request, self._compiled_derive if compiled else self._derive)
        tables = mask_tables(request.anchor_A, request.document_T, block_size=request.block_size, window=request.window)
        if not compiled:
            return block_mask(tables) if self._is_cuda else additive_mask(tables)
        evaluated = self._compiled_evaluate(*tables.arguments())
        return make_block_mask(block_tables(*evaluated), tables) if self._is_cuda else evaluated

    def _from_intervals(self, request: MaskRequest, derive: Callable[..., Any]) -> Tensor | BlockMask:
        anchor_A, position_T, block_size = request.anchor_A, request.position_T, request.block_size
        if self._is_cuda:
            ordered, tables = derive(anchor_A, request.document_T, position_T, block_size, request.reach)
            return make_block_mask(ordered, MaskTables(*tables))
        # Not compiled with the rest: on a CPU their arithmetic would fuse into every pair, 1.2 ms instead of 0.2.
        intervals = context_intervals(anchor_A, position_T, block_size, request.reach)
        block_Q = block_numbers(anchor_A.numel(), block_size, anchor_A.device)
        mask: Tensor = derive(*intervals, block_Q, torch.arange(position_T.numel(), dtype=torch.int32))
        return mask


class Compiled:
    """A function that is compiled at its first call, once for all shapes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call it."""
        if self._compiled is None:
            # Not before it is needed: `torch.compile` imports inductor, 1.9 s in every drafter.
            self._compiled = torch.compile(self._function, dynamic=True)
        return self._compiled(*arguments)
