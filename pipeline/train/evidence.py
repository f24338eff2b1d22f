"""
Evidence of warm-up in the trace: what was compiled and tuned, and when the CUDA allocator took more memory.

    mark("compile", what="flex_attention", seconds=12.3)
    mark("compile", what="recompile flex_attention", seconds=2.1, reason="tensor 'x' dtype mismatch. …")
    mark("autotune", what="flex_attention", seconds=4.0)
    mark("allocator", gib=3.1, retries=0)

Read at step boundaries, without waiting for the device. torch keeps the compilations anyway: a look takes 0.4 µs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from flashprof.emit import Emitter
from pipeline.train.memory import GIB, Reserved, read_reserved

NUM_CLOSE_LOOKS = 64
LOOK_EVERY = 8
"""
A look at the allocator makes a dictionary of some 150 numbers, 10 to 20 µs. So each step is looked at while it grows
and for 64 steps behind that, and then one in 8: about 2 µs a step.
"""
MAX_REASON = 160
"""Of the reason for a recompilation, which can name whole source lines."""


def compilations() -> Sequence[Any]:
    """What torch has compiled and tuned in this process, its newest 64; nothing where its compiler is not loaded."""
    # Imported by nobody, it would be loaded for this (2 s).
    utils = sys.modules.get("torch._dynamo.utils")
    return () if utils is None else utils.get_compilation_metrics()


class Evidence:
    """Marks what is new since the last look."""

    def __init__(
        self,
        emitter: Emitter,
        *,
        compiled: Callable[[], Sequence[Any]] = compilations,
        reserved: Callable[[], Reserved | None] = read_reserved,
    ) -> None:
        """
        Begin with what there is already.

        Args:
            emitter: Takes the marks.
            compiled: `CompilationMetrics` of torch, the newest last.
            reserved: What the allocator holds; None where there is none, now and later.
        """
        self._emitter = emitter
        self._compiled = compiled
        self._newest = next(reversed(compiled()), None)
        self._read_reserved = reserved
        self._reserved = reserved()
        self._num_calm_looks = 0

    def look(self) -> None:
        """At a step boundary."""
        metrics = self._compiled()
        if metrics and metrics[-1] is not self._newest:
            self._mark_compilations(metrics)
        if self._reserved is not None:
            self._num_calm_looks += 1
            if self._num_calm_looks <= NUM_CLOSE_LOOKS or self._num_calm_looks % LOOK_EVERY == 0:
                self._look_at_allocator(self._reserved)

    def _mark_compilations(self, metrics: Sequence[Any]) -> None:
        seen = next((place for place, item in enumerate(metrics) if item is self._newest), -1)
        self._newest = metrics[-1]
        for item in metrics[seen + 1 :]:
            name, detail = _describe(item)
            if detail["seconds"] > 0:
                self._emitter.mark(name, **detail)

    def _look_at_allocator(self, before: Reserved) -> None:
        now = self._read_reserved() or before
        num_bytes, num_retries = now.num_bytes - before.num_bytes, now.num_retries - before.num_retries
        # It also shrinks, by a retry: what grows again then is asked of the driver again.
        self._reserved = now
        if num_bytes > 0 or num_retries > 0:
            self._num_calm_looks = 0
            self._emitter.mark("allocator", gib=round(max(0, num_bytes) / GIB, 3), retries=num_retries)


def _describe(item: Any) -> tuple[str, dict[str, Any]]:
    """The mark's name and detail. Fields of torch 2.11 to 2.13; one that another version lacks is passed over."""

    def field(name: str) -> Any:
        return getattr(item, name, None)

    what = field("co_name") or "a function"
    if field("is_runtime"):
        tuning_us = field("runtime_triton_autotune_time_us") or 0
        return "autotune", {"what": what, "seconds": round(tuning_us / 1e6, 3)}
    if field("is_forward") is False:
        what = f"{what} backward"
    seconds = field("entire_frame_compile_time_s") or (field("backward_cumulative_compile_time_us") or 0) / 1e6
    detail: dict[str, Any] = {"what": what, "seconds": round(seconds, 3)}
    if reason := field("recompile_reason"):
        detail |= {"what": f"recompile {what}", "reason": str(reason)[:MAX_REASON]}
    return "compile", detail
