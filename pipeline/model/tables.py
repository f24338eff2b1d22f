"""What a drafter borrows from the target, in training and in generation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class FrozenTables:
    """The target's embedding and output head, and the token that stands for "to be drafted"."""

    embedding_VD: Tensor
    head_VD: Tensor
    mask_token_id: int
