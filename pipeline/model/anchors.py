"""
Which positions of a packed row start a training block.

Rules (research/dflash-training-peers.md §1): random, sorted (unsorted ones destroy block sparsity, speculators#823),
the anchor's successor is supervised, and no block leaves its document (labels would cross into a stranger's text).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Anchors:
    """A fixed number of slots, so that shapes do not vary with the data."""

    position_A: Tensor
    """int64, index into the packed row; 0 in an unused slot."""
    used_A: Tensor
    """bool; False where the row had too few valid positions."""


def document_ids(lengths: list[int], padded_length: int) -> Tensor:
    """
    The document of each position of a packed row, made by whole-tensor operations (toggle `docids`).

    Args:
        lengths: Tokens of each document, in order.
        padded_length: Length of the row; positions past the documents get -1.

    Returns:
        int64 `document_T`.
    """
    lengths_D = torch.tensor(lengths)
    document_T = torch.full((padded_length,), -1, dtype=torch.int64)
    document_T[: int(lengths_D.sum())] = torch.repeat_interleave(torch.arange(len(lengths)), lengths_D)
    return document_T


def document_ids_by_position(lengths: list[int], padded_length: int) -> Tensor:
    """The same as `document_ids` with one Python object a position, which is what the toggle `docids` saves."""
    documents = [document for document, length in enumerate(lengths) for _ in range(length)]
    return torch.tensor(documents + [-1] * (padded_length - len(documents)))


def valid_anchors(document_T: Tensor, loss_mask_T: Tensor, block_size: int) -> Tensor:
    """
    Where a block may start, as bool `valid_T`.

    Args:
        document_T: Document of each position, -1 for padding.
        loss_mask_T: bool, True where the token is supervised.
        block_size: Tokens of a block, the anchor among them.
    """
    valid_T = torch.zeros_like(loss_mask_T)
    reach = block_size - 1
    if document_T.numel() > reach:
        same_document = document_T[: document_T.numel() - reach] == document_T[reach:]
        starts = same_document & (document_T[: document_T.numel() - reach] >= 0)
        valid_T[: starts.numel()] = starts & loss_mask_T[1 : starts.numel() + 1]
    return valid_T


def sample_anchors(valid_T: Tensor, num_anchors: int, generator: torch.Generator) -> Anchors:
    """
    Draw anchors without replacement and sort them.

    Args:
        valid_T: bool, where a block may start.
        num_anchors: Slots; all of them are returned, used or not.
        generator: Source of randomness, on the CPU.
    """
    valid = torch.nonzero(valid_T).squeeze(1)
    num_used = min(num_anchors, valid.numel())
    chosen = valid[torch.randperm(valid.numel(), generator=generator)[:num_used]].sort().values
    position_A = torch.zeros(num_anchors, dtype=torch.int64)
    position_A[:num_used] = chosen
    return Anchors(position_A=position_A, used_A=torch.arange(num_anchors) < num_used)
