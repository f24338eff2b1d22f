"""What the study asks of a system's drafter."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from benchmarks.peers.work import Batch


class DrafterSystem(Protocol):
    """One trainer: its model, loss and optimizer, called as its own training loop calls them."""

    num_trained: int
    """Weights that are trained."""
    differences: tuple[str, ...]
    """What is not as in the work or in the other systems, or favours one; told in the results."""
    loss_scale: float
    """Times the loss that the system reports for `check_batch` is the loss as we define it."""
    takes_packed_rows: bool
    """Whether a batch may be filled with samples of any length, as its own loader does it."""

    def prepare(self, batch: Batch, states_TF: Tensor) -> Any:
        """Lay out a batch as the system's collator does; not timed where only the step is."""

    def step(self, prepared: Any) -> Any:
        """One optimizer step; returns the loss, on the device or the host."""

    def rehearse(self) -> None:
        """What the system runs before its first step so that nothing compiles later."""

    def extra(self) -> dict[str, Any]:
        """Parts of the step that another system does not have, each as something to call once a step."""
