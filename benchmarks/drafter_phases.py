"""Phases of a step on the device's own clock, from the spans that the trainer makes anyway."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from flashprof.contracts.events import SpanKind
from flashprof.emit import WORK, Emitter


class PhaseClock(Emitter):
    """Stands where a `DrafterStep` expects an emitter; keeps times and compilations, waits for nothing meanwhile."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(None, None)
        self._on_cuda = device.type == "cuda"
        self._host_s: dict[str, list[float]] = defaultdict(list)
        self._events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = defaultdict(list)
        self.compiled: list[dict[str, Any]] = []
        """What was compiled: name, seconds, and the reason where it was not the first time."""

    @property
    def compile_s(self) -> float:
        """Seconds of all compilations, as torch counts them."""
        return sum(float(detail["seconds"]) for detail in self.compiled)

    @contextlib.contextmanager
    def span(self, phase: str, kind: SpanKind = WORK, *, device: bool = False) -> Iterator[None]:
        """On the device's clock where the trainer says that the device works, else on the host's."""
        del kind
        if not (device and self._on_cuda):
            start_s = time.perf_counter()
            yield
            self._host_s[phase].append(time.perf_counter() - start_s)
            return
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self._events[phase].append((begin, end))

    def mark(self, name: str, **detail: Any) -> None:
        """Keep compilations."""
        if name in ("compile", "autotune"):
            self.compiled = [*self.compiled, detail]

    def take_ms(self) -> dict[str, float]:
        """Mean milliseconds of each phase since the last call, in the order of a step. Waits for the device."""
        if self._on_cuda:
            torch.cuda.synchronize()
        found = {phase: 1e3 * sum(times) / len(times) for phase, times in self._host_s.items()}
        for phase, pairs in self._events.items():
            found[phase] = sum(begin.elapsed_time(end) for begin, end in pairs) / len(pairs)
        self._host_s.clear()
        self._events.clear()
        return found
