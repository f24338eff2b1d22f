"""How steps are timed: by device events around whole windows, with nothing waited for within."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch._dynamo.utils import counters


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What some windows of steps took."""

    window_ms: tuple[float, ...]
    """A step, mean of each window."""
    num_tokens: float
    """Real tokens a step."""
    num_compiled: int
    """Graphs that were compiled meanwhile."""
    peak_gib: float
    """Most device memory that tensors have held; 0 on a CPU."""

    def as_json(self) -> dict[str, Any]:
        """The fields, and what they come to."""
        step_ms = statistics.median(self.window_ms)
        return asdict(self) | {"step_ms": step_ms, "tok_per_s": self.num_tokens / step_ms * 1e3}


class Clock:
    """Times work on one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_cuda = device.type == "cuda"

    def elapsed_ms(self, work: Callable[[], object]) -> float:
        """From an idle device until all that *work* asked of it is done."""
        self.wait()
        if not self._on_cuda:
            start_s = time.perf_counter()
            work()
            return (time.perf_counter() - start_s) * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def wall_s(self, work: Callable[[], object]) -> float:
        """As a person waits for it: compilation on the host and the device's work."""
        self.wait()
        start_s = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start_s

    def windows(self, step: Callable[[int], object], num_tokens: Sequence[int], *, num_windows: int) -> Timing:
        """
        Time passes over a list of batches.

        Args:
            step: Takes a batch's number.
            num_tokens: Of each batch, without padding.
            num_windows: Passes.
        """

        def run_all() -> None:
            for number in range(len(num_tokens)):
                step(number)

        num_compiled = num_graphs()
        self.wait()
        if self._on_cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
        window_ms = tuple(self.elapsed_ms(run_all) / len(num_tokens) for _ in range(num_windows))
        return Timing(
            window_ms=window_ms,
            num_tokens=statistics.fmean(num_tokens),
            num_compiled=num_graphs() - num_compiled,
            peak_gib=torch.cuda.max_memory_allocated(self._device) / 2**30 if self._on_cuda else 0.0,
        )

    def wait(self) -> None:
        """Until the device is idle."""
        if self._on_cuda:
            torch.cuda.synchronize(self._device)


def num_graphs() -> int:
    """Graphs that torch.compile has compiled in this process; a recompilation is one more."""
    return int(counters["stats"]["unique_graphs"])
