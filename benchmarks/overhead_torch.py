"""
What torch.profiler costs a training step while it records; `benchmarks.overhead` runs it.

Real drafter steps of the tiny preset in this process, some of them inside the profiler, in random order within each
pair. Starting it and building its tables afterwards are timed apart: a step does not pay them, the run does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from scipy import stats

from benchmarks.results_file import Measure

STEPS_IN_A_TURN = 3
"""A profiler is never started for less than a step; three of 150 ms keep a pair below a second."""

Profiler = Callable[[], AbstractContextManager[object]]
RunStep = Callable[[], float]
"""Runs one step and returns its seconds."""


def _activities() -> list[torch.profiler.ProfilerActivity]:
    kinds = torch.profiler.ProfilerActivity
    return [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_available() else [])]


PROFILERS: MappingProxyType[str, Profiler] = MappingProxyType(
    {
        "torch_profiler": lambda: torch.profiler.profile(activities=_activities()),
        "torch_profiler_shapes": lambda: torch.profiler.profile(activities=_activities(), record_shapes=True),
        "torch_profiler_stacks": lambda: torch.profiler.profile(activities=_activities(), with_stack=True),
    }
)


@dataclass(frozen=True, kw_only=True)
class ProfilerCost:
    """One way of profiling."""

    name: str
    ratios: tuple[float, ...]
    """Step time within over step time without, one a pair."""
    outside_s: tuple[float, ...]
    """Starting and ending it, once a turn."""

    def as_measure(self) -> Measure:
        """Share of tok/s that recording costs."""
        logs = np.log(self.ratios)
        half = float(stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs))
        low, high = (100 * (1 - np.exp(-(logs.mean() + side * half))) for side in (-1, 1))
        return Measure(
            name=self.name,
            value=100 * (1 - float(np.exp(-logs.mean()))),
            unit="% tok/s",
            note=f"95 %: {low:.1f} to {high:.1f}; {len(logs)} pairs of {STEPS_IN_A_TURN} steps of the tiny preset; "
            f"starting and ending it takes {np.median(self.outside_s):.2f} s more",
        )


def study_profilers(run_step: RunStep, num_pairs: int) -> list[ProfilerCost]:
    """Every profiler against none, pair by pair."""
    rng = random.Random(0)
    for _ in range(STEPS_IN_A_TURN):
        run_step()
    return [_interleave(name, profiler, run_step, num_pairs, rng) for name, profiler in PROFILERS.items()]


def _interleave(name: str, profiler: Profiler, run_step: RunStep, num_pairs: int, rng: random.Random) -> ProfilerCost:
    # The first start loads the tracing library.
    _take_turn(profiler, run_step)
    ratios, outside_s = [], []
    for _ in range(num_pairs):
        turns: dict[Profiler, tuple[float, float]] = {}
        for way in rng.sample([profiler, nullcontext], 2):
            turns[way] = _take_turn(way, run_step)
        ratios.append(turns[profiler][0] / turns[nullcontext][0])
        outside_s.append(turns[profiler][1])
    return ProfilerCost(name=name, ratios=tuple(ratios), outside_s=tuple(outside_s))


def _take_turn(profiler: Profiler, run_step: RunStep) -> tuple[float, float]:
    """Seconds in steps, and seconds around them."""
    start_s = time.perf_counter()
    with profiler():
        steps_s = sum(run_step() for _ in range(STEPS_IN_A_TURN))
    return steps_s, time.perf_counter() - start_s - steps_s
