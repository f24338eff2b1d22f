"""What travels: work to targets, hidden states to drafters, orders to the first drafter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from flashprof.contracts.control import Command
from pipeline.data.buckets import packed_length


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """One batch of one drafter's step. `(step, drafter, part)` is its place in the run's order."""

    step: int
    drafter: int
    """On this host."""
    part: int = 0
    """Which of the step's batches, where gradients are accumulated."""
    input_ids_BS: Any
    """numpy int32: small, so it is pickled rather than shared. Rows past the samples are padding."""
    loss_mask_BS: Any
    """numpy bool."""
    lengths: tuple[int, ...]
    early_exit: bool = False
    """Toggle `early-exit`, as it was when the work was given out."""
    compiled: bool = False
    """Toggle `compile-target`, likewise."""
    packed: bool = False
    """Toggle `packed-target`, likewise."""

    @property
    def num_tokens(self) -> int:
        """Real tokens."""
        return sum(self.lengths)

    @property
    def num_padding_tokens(self) -> int:
        """Padding that a target computes on which honours `packed`."""
        return (self.padded_row if self.packed else int(self.input_ids_BS.size)) - self.num_tokens

    @property
    def padded_row(self) -> int:
        """Length of the packed row."""
        return packed_length(self.num_tokens)


@dataclass(frozen=True, kw_only=True)
class HiddenStates:
    """A target's answer to a `WorkItem`: one packed row, padding between samples dropped."""

    step: int
    part: int = 0
    hidden_TF: Tensor
    """Tapped hidden states. On their way, this and the next may be what a carrier made of them."""
    checksum: Tensor
    """`bit_sum` of the states as the target computed them, before they were packed."""
    input_ids_T: Tensor
    loss_mask_T: Tensor
    lengths: tuple[int, ...]
    num_padding_tokens: int
    target_wait_s: float = 0.0
    """How long the target had waited for room in the queue before this."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the dispatcher has for the drafters, past the queue; they agree on the step at which all obey."""

    commands: tuple[Command, ...] = ()
    stop: bool = False
    """End the run after the step in which the drafters agree on it."""
