"""What the emitter does with torch, which it is given and never imports: device time, and ranges for a tracer."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic_ns
from types import TracebackType
from typing import Any

from flashprof.contracts.events import Step, encode

NVTX_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""One of them is set where Nsight Systems, or another NVTX tool, started the process."""

Tracer = Callable[[Any, str], Callable[[], object]]
"""Given torch and a name, opens a range in a tracer and returns what closes it."""


MAX_TIES = 20
"""Tries to tie the device's clock to the host's."""
TIGHT_NS = 200_000
"""Between recording an event and seeing it; some 20 µs on an idle H200, and milliseconds where others take the core."""


class CudaTimer:
    """
    CUDA events in a pool, turned into host time once the device has passed them.

    `elapsed_time` is a float32 of milliseconds: an hour away it is 0.25 ms coarse. So the reference event moves
    along: each resolved step becomes the reference of the next. A CUDA error ends the timing, not the training.
    """

    def __init__(
        self, torch: Any, thread: str, *, warn: Callable[[str], None], clock: Callable[[], int] = monotonic_ns
    ) -> None:
        self._make_event = partial(torch.cuda.Event, enable_timing=True)
        self.thread = f"{thread}:cuda{torch.cuda.current_device()}"
        self._warn = warn
        self._clock = clock
        self._pool: list[Any] = []
        self._pending: deque[tuple[Any, Any, Step | tuple[str, int, bool]]] = deque()
        self._is_lost = False
        self._base = self._make_event()
        self._base_ns = self._tie_clocks()

    def _tie_clocks(self) -> int:
        """Host time of the first reference event; the one wait in a timer's life."""
        recorded_ns = seen_ns = 0
        for attempt in range(MAX_TIES):
            recorded_ns = self._clock()
            self._base.record()
            while not self._base.query():
                time.sleep(0)
            seen_ns = self._clock()
            # A first use is slow, and on a busy host this thread may have stood still in between.
            if attempt and seen_ns - recorded_ns <= TIGHT_NS:
                break
        return (recorded_ns + seen_ns) // 2

    @property
    def num_deferred(self) -> int:
        """Records that the device had not passed when they were last looked at."""
        return len(self._pending)

    def record(self) -> Any:
        """An event on the current stream; None once timing was lost."""
        if self._is_lost:
            return None
        try:
            event = self._pool.pop() if self._pool else self._make_event()
            event.record()
        except RuntimeError as error:
            self._lose(error)
            return None
        return event

    def defer_span(self, prefix: str, start: Any, *, depth: int, ok: bool) -> None:
        """Close a span on the device and keep it until it can be read."""
        end = self.record()
        if end is not None and start is not None:
            self._pending.append((start, end, (prefix, depth, ok)))

    def defer_step(self, step: Step) -> None:
        """Keep a step until the device has finished it."""
        self._pending.append((None, self.record(), step))

    def resolve(self) -> list[str]:
        """The records that the device has passed, without waiting for any; after a CUDA error, steps in host time."""
        lines: list[str] = []
        try:
            while self._pending and not self._is_lost and self._pending[0][1].query():
                lines.append(self._line(*self._pending[0]))
                self._pending.popleft()
        except RuntimeError as error:
            self._lose(error)
        if self._is_lost:
            lines += [encode(record) for _, _, record in self._pending if isinstance(record, Step)]
            self._pending.clear()
        return lines

    def _line(self, start: Any, end: Any, record: Step | tuple[str, int, bool]) -> str:
        end_ns = self._host_ns(end)
        if isinstance(record, Step):
            # The device's clock drifts against the host's (20 ppm are 72 ms an hour), but an event is passed after
            # it was recorded and before it is seen.
            self._pool.append(self._base)
            self._base, self._base_ns = end, min(max(end_ns, record.end_ns), self._clock())
            return encode(replace(record, end_ns=self._base_ns))
        prefix, depth, ok = record
        self._pool += (start, end)
        return f"{prefix}{self._host_ns(start)},{end_ns},{depth},{int(ok)}]"

    def _host_ns(self, event: Any) -> int:
        elapsed_ms: float = self._base.elapsed_time(event)
        return self._base_ns + round(elapsed_ms * 1e6)

    def _lose(self, error: RuntimeError) -> None:
        self._is_lost = True
        self._warn(f"device time is no longer recorded: {error}")


class ShownSpan:
    """A span that a tracer shows as well. Whoever is inside it holds this object, so a range ends where it began."""

    __slots__ = ("_begin", "_ends", "_span")

    def __init__(
        self, span: contextlib.AbstractContextManager[None], begin: Callable[[], Callable[[], object]]
    ) -> None:
        self._span = span
        self._begin = begin
        self._ends: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        self._ends.append(self._begin())
        self._span.__enter__()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._span.__exit__(error_type, error, trace)
        self._ends.pop()()


def open_timer(torch: Any, thread: str, warn: Callable[[str], None]) -> CudaTimer | None:
    """A timer for the current device; None where the process does not use CUDA yet, or cannot."""
    if not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    try:
        return CudaTimer(torch, thread, warn=warn)
    except RuntimeError as error:
        warn(f"device time is not recorded: {error}")
        return None


def find_tracer(torch: Any) -> Tracer | None:
    """The tracer that is attached to the process now."""
    if not hasattr(torch, "autograd"):
        return None
    if torch.autograd._profiler_enabled():  # noqa: SLF001
        return _open_record_function
    if torch.cuda.is_initialized() and any(name in os.environ for name in NVTX_VARIABLES):
        return _open_nvtx_range
    return None


def _open_record_function(torch: Any, phase: str) -> Callable[[], object]:
    handle = torch.profiler.record_function(phase)
    handle.__enter__()
    return partial(handle.__exit__, None, None, None)


def _open_nvtx_range(torch: Any, phase: str) -> Callable[[], object]:
    torch.cuda.nvtx.range_push(phase)
    pop: Callable[[], object] = torch.cuda.nvtx.range_pop
    return pop
