"""
Ten losses of 1 % in a row after a calm stretch, and calm stretches alone, told by the history run by run.

Through `flashprof.stats.trend_rules.follow`, as `flashprof history` tells them; beside it a fixed threshold on one run
against the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.gate_trials import Trial, threshold_says
from flashprof.stats.trend_rules import follow

NUM_CALM = 40
"""Runs before the first loss."""
LOSS, NUM_LOSSES, BEFORE = 0.01, 10, 6
"""Seen before the sixth: with the last run of the fifth at the latest."""
NUM_FLAT = 100
OWN_SD_SHARE = 0.25
"""What a run's own interval says of its noise, as a share of what runs differ by: launches differ by far more."""

Draw = Callable[[np.random.Generator, int], np.ndarray]
"""(rng, how many) → runs' log tok/s about their level."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """Of one series of runs."""

    is_told: bool
    """By the history: a loss where there is one, before the sixth; or any in a flat series."""
    is_called: bool
    """By the fixed threshold, among the same runs."""


def gaussian(sd: float) -> Draw:
    """Independent runs."""
    return lambda rng, num: rng.normal(0.0, sd, num)


def heavy_tails(sd: float) -> Draw:
    """Student's t with three degrees of freedom, of the same standard deviation."""
    return lambda rng, num: sd * rng.standard_t(3, num) / math.sqrt(3)


def odd_runs(sd: float) -> Draw:
    """One run in twenty is slow besides, by 10 % on the average."""
    return lambda rng, num: rng.normal(0.0, sd, num) - rng.exponential(0.1, num) * (rng.random(num) < 0.05)


def recorded(trials: Sequence[Trial]) -> Draw:
    """Launches of base of real gates, about the mean of their lane, drawn one by one."""
    lanes: dict[tuple[str, int, int], list[float]] = {}
    for trial in trials:
        rates = [pair.base_log_tok_per_s for pair in trial.pairs if not pair.disturbances]
        lanes.setdefault((trial.hardware, trial.num_lanes, trial.lane), []).extend(rates)
    pooled = np.concatenate([np.array(rates) - np.mean(rates) for rates in lanes.values() if rates])
    return lambda rng, num: rng.choice(pooled, num)


def losses(draw: Draw, *, num_each: int, num: int, seed: int = 0) -> Iterator[Course]:
    """
    Series with ten losses.

    Args:
        draw: Noise of runs.
        num_each: Runs of a level.
        num: Of series.
        seed: Of all.
    """
    levels = np.repeat(math.log1p(-LOSS) * np.arange(1, NUM_LOSSES + 1), num_each)
    steps = np.concatenate([np.zeros(NUM_CALM), levels])
    end = NUM_CALM + (BEFORE - 1) * num_each
    for number in range(num):
        values = steps + draw(np.random.default_rng([seed, number]), len(steps))
        told = any(index >= NUM_CALM for index in told_losses(values[:end]))
        called = any(threshold_says(values[index] - values[index - 1]) for index in range(NUM_CALM, end))
        yield Course(is_told=told, is_called=called)


def flat(draw: Draw, *, num: int, seed: int = 0) -> Iterator[Course]:
    """Series of 100 runs without a loss."""
    for number in range(num):
        values = draw(np.random.default_rng([seed, number]), NUM_FLAT)
        called = any(threshold_says(float(step)) for step in np.diff(values))
        yield Course(is_told=bool(told_losses(values)), is_called=called)


def told_losses(values: np.ndarray) -> list[int]:
    """Indices of the runs that showed one."""
    own_sd = OWN_SD_SHARE * float(np.std(np.diff(values)) / math.sqrt(2))
    return [shift.seen for shift in follow(values.tolist(), [own_sd] * len(values)).shifts if shift.is_loss]
