"""What travels: work to targets, hidden states to drafters, and the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from flashprof.contracts.control import Command

ROW_MULTIPLE = 128
"""Packed rows are padded to this, so that shapes are few and blocks of the sparse mask are whole."""


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """One batch for one drafter's step. `(step, drafter)` is its place in the run's order."""

    step: int
    drafter: int
    input_ids_BS: Any
    """numpy int32: small, so it is pickled rather than shared."""
    loss_mask_BS: Any
    """numpy bool."""
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Real tokens."""
        return sum(self.lengths)

    @property
    def num_padding_tokens(self) -> int:
        """Padding that the target computes on."""
        return int(self.input_ids_BS.size) - self.num_tokens

    @property
    def padded_row(self) -> int:
        """Length of the packed row."""
        return -(-self.num_tokens // ROW_MULTIPLE) * ROW_MULTIPLE


@dataclass(frozen=True, kw_only=True)
class HiddenStates:
    """A target's answer to a `WorkItem`: one packed row, padding between samples dropped."""

    step: int
    hidden_TF: Tensor
    """Tapped hidden states; in shared memory on a CPU, on the target's device on CUDA."""
    input_ids_T: Tensor
    loss_mask_T: Tensor
    lengths: tuple[int, ...]
    num_padding_tokens: int


@dataclass(frozen=True, kw_only=True)
class End:
    """No step *step*, nor any later one, will come."""

    step: int


Message = HiddenStates | End


@dataclass(frozen=True, kw_only=True)
class Order:
    """Control commands that every drafter puts in force before the same step."""

    step: int
    commands: tuple[Command, ...]
