"""
Reading a step's metrics on the host: at once, or later without making the device wait (toggle `async-metrics`).

The order matters: the side stream must wait for the stream that computes the numbers *as it is when the step ends*.
Asking for "the current stream" after entering the side stream makes it wait for itself, and the log shows half-made
numbers. So that this cannot go unseen, the device writes the step's number beside the metrics, and it takes the same
way: `metrics_stamp`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

STAMP = "metrics_stamp"
STAMP_MODULO = 2**20
"""Stamps are exact in float32; FlashProf's sanity guard counts with the same modulus."""


@dataclass(frozen=True)
class Reading:
    """The metrics of one step, on the host."""

    step: int
    values: dict[str, float]
    """With `metrics_stamp`: the number, modulo 2²⁰, of the step in which the device made them."""


class MetricsReader(Protocol):
    """Takes scalars on the device, gives readings back."""

    def push(self, step: int, scalars: dict[str, Tensor]) -> list[Reading]:
        """Hand in a step's scalars; returns the readings that are ready, which may be of earlier steps."""
        ...

    def drain(self) -> list[Reading]:
        """All readings still outstanding; waits for the device."""
        ...


class SyncMetrics:
    """One `.item()` a metric: each makes the host wait until the device has caught up."""

    def push(self, step: int, scalars: dict[str, Tensor]) -> list[Reading]:
        """Read now."""
        stamped = stamp(step, scalars)
        return [Reading(step, {name: scalar.item() for name, scalar in stamped.items()})] if stamped else []

    def drain(self) -> list[Reading]:
        """Nothing is ever outstanding."""
        return []


class Done(Protocol):
    """Says when a copy has arrived, as a CUDA event does."""

    def query(self) -> bool:
        """Whether it has."""
        ...

    def synchronize(self) -> None:
        """Wait until it has."""
        ...


@dataclass(frozen=True)
class Copy:
    """Numbers on their way to the host."""

    host: Tensor
    done: Done | None = None
    """None: they are there."""


StartCopy = Callable[[Tensor], Copy]


class AsyncMetrics:
    """One copy a step, read when a later step finds it done."""

    def __init__(self, device: torch.device, start_copy: StartCopy | None = None) -> None:
        """
        Start with nothing outstanding.

        Args:
            device: Where the scalars are.
            start_copy: How packed scalars travel; None: in order.
        """
        self._pending: deque[tuple[int, tuple[str, ...], Copy]] = deque()
        in_order: StartCopy = OrderedCopy(device) if device.type == "cuda" else Copy
        self._start_copy = start_copy or in_order

    def push(self, step: int, scalars: dict[str, Tensor]) -> list[Reading]:
        """Start the copy, and read those of earlier steps that are done."""
        ready = self._pop_ready()
        stamped = stamp(step, scalars)
        if stamped:
            packed = torch.stack([scalar.detach().float() for scalar in stamped.values()])
            self._pending.append((step, tuple(stamped), self._start_copy(packed)))
        return ready

    def drain(self) -> list[Reading]:
        """Wait for what is left."""
        for *_, copy in self._pending:
            if copy.done is not None:
                copy.done.synchronize()
        return self._pop_ready()

    def _pop_ready(self) -> list[Reading]:
        readings = []
        while self._pending and _has_arrived(self._pending[0][2]):
            step, names, copy = self._pending.popleft()
            readings.append(Reading(step, dict(zip(names, copy.host.tolist(), strict=True))))
        return readings


class OrderedCopy:
    """A copy on a stream of its own, behind all that the step's stream has been given."""

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)

    def __call__(self, packed: Tensor) -> Copy:
        """Start it."""
        self._side.wait_stream(torch.cuda.current_stream(packed.device))
        with torch.cuda.stream(self._side):
            copy = copy_to_pinned(packed)
        # The allocator must not hand the block out again while the side stream still reads it.
        packed.record_stream(self._side)
        return copy


def copy_to_pinned(packed: Tensor) -> Copy:
    """Start a copy on the current stream, whatever it waits for."""
    host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    host.copy_(packed, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return Copy(host, event)


def stamp(step: int, scalars: dict[str, Tensor]) -> dict[str, Tensor]:
    """*scalars* and the step's number, written by the device in the same stream; nothing to nothing."""
    if not scalars:
        return {}
    device = next(iter(scalars.values())).device
    # A fill, not a copy from the host: that would wait for the device.
    return scalars | {STAMP: torch.full((), float(step % STAMP_MODULO), device=device)}


def _has_arrived(copy: Copy) -> bool:
    return copy.done is None or copy.done.query()
