"""
Reading a step's metrics on the host: at once, or later without making the device wait (toggle `async-metrics`).

The order matters: the side stream must wait for the stream that computes the numbers *as it is when the step ends*.
Asking for "the current stream" after entering the side stream makes it wait for itself, and the log shows half-made
numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reading:
    """The metrics of one step, on the host."""

    step: int
    values: dict[str, float]


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
        return [Reading(step, {name: scalar.item() for name, scalar in scalars.items()})]

    def drain(self) -> list[Reading]:
        """Nothing is ever outstanding."""
        return []


class AsyncMetrics:
    """One copy a step, read when a later step finds it done."""

    def __init__(self, device: torch.device) -> None:
        self._pending: deque[tuple[int, tuple[str, ...], Tensor, Any]] = deque()
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def push(self, step: int, scalars: dict[str, Tensor]) -> list[Reading]:
        """Start the copy, and read those of earlier steps that are done."""
        ready = self._pop_ready()
        packed = torch.stack([scalar.detach().float() for scalar in scalars.values()])
        host, event = (packed, None) if self._side is None else self._start_copy(packed)
        self._pending.append((step, tuple(scalars), host, event))
        return ready

    def drain(self) -> list[Reading]:
        """Wait for what is left."""
        for *_, event in self._pending:
            if event is not None:
                event.synchronize()
        return self._pop_ready()

    def _start_copy(self, packed: Tensor) -> tuple[Tensor, Any]:
        assert self._side is not None
        producer = torch.cuda.current_stream(packed.device)
        self._side.wait_stream(producer)
        with torch.cuda.stream(self._side):
            host = torch.empty(packed.shape, pin_memory=True)
            host.copy_(packed, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        # The allocator must not hand the block out again while the side stream still reads it.
        packed.record_stream(self._side)
        return host, event

    def _pop_ready(self) -> list[Reading]:
        readings = []
        while self._pending and (self._pending[0][3] is None or self._pending[0][3].query()):
            step, names, host, _ = self._pending.popleft()
            readings.append(Reading(step, dict(zip(names, host.tolist(), strict=True))))
        return readings
