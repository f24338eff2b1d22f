"""
Noise of simulated gates: log tok/s of launches in the order of time, about what their arm would give.

Drawn: as in `tests/flashprof/stats/test_margin.py`, 2 % a pair. Recorded: windows of real launches that
`benchmarks.calibration` judged, or pairs of the real gates of harmless changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType

import numpy as np

from benchmarks.bisect_worlds import LANE_FOLDERS, recordings
from benchmarks.gate_trials import Trial

PAIR_SD = 0.02
LAUNCH_SD = PAIR_SD / math.sqrt(2)
NUM_WINDOWS = 7
"""Of 3 s, of a recorded launch: 21 s, nearly as long as the command's own five of 5 s."""
GAP = 5
"""Start-up and warm-up, in windows."""
RECORDED = "recorded_"
CLOSE, APART = "close", "apart"
GATES = "recorded_gates"
MIN_GATES = 10
"""Redrawn from three pairs, the same value comes again and again, and a gate takes that for little noise."""

Noise = Callable[[np.random.Generator], Iterator[float]]
"""(rng of one gate) → its launches, without an end."""


def gaussian(rng: np.random.Generator) -> Iterator[float]:
    """Independent launches."""
    while True:
        yield LAUNCH_SD * float(rng.normal())


def heavy_tails(rng: np.random.Generator) -> Iterator[float]:
    """Student's t with three degrees of freedom, of the same standard deviation."""
    while True:
        yield LAUNCH_SD * float(rng.standard_t(3)) / math.sqrt(3)


def drift(rng: np.random.Generator) -> Iterator[float]:
    """Each launch 2 % faster, or slower, than the one before, and half the noise besides."""
    slope, level = PAIR_SD * float(rng.choice([-1.0, 1.0])), 0.0
    while True:
        level += slope
        yield level + LAUNCH_SD / 2 * float(rng.normal())


DRAWN = MappingProxyType({"gaussian": gaussian, "heavy_tails": heavy_tails, "drift": drift})


def lane_noise(name: str, *, gap: int | None) -> Noise:
    """
    Launches cut from recorded ones, each a stretch of 21 s.

    Args:
        name: Of `LANE_FOLDERS`.
        gap: Windows of 3 s from the end of one to the next, in one recording as long as it lasts: what a launch draws
            once is then the same for many. None: each comes from any recording, which may be a day apart.
    """
    found = [recording.values for recording in recordings(name) if len(recording.values) >= NUM_WINDOWS]

    def launches(rng: np.random.Generator) -> Iterator[float]:
        while True:
            values = found[int(rng.integers(len(found)))]
            firsts = range(int(rng.integers(len(values) - NUM_WINDOWS + 1)), len(values) - NUM_WINDOWS + 1)
            for first in firsts[:: NUM_WINDOWS + gap] if gap is not None else firsts[:1]:
                yield float(values[first : first + NUM_WINDOWS].mean())

    return launches


def gate_noise(trials: Sequence[Trial]) -> Noise:
    """
    Pairs of real gates of harmless changes, each gate's in its order, from a random place on, under new coins.

    Args:
        trials: Some with pairs; without a difference between the arms, the order of time is all that a pair has.
    """
    found = [[pair.later_minus_earlier for pair in trial.pairs if not pair.disturbances] for trial in trials]
    found = [differences for differences in found if differences]

    def launches(rng: np.random.Generator) -> Iterator[float]:
        while True:
            differences = found[int(rng.integers(len(found)))]
            for difference in differences[int(rng.integers(len(differences))) :]:
                yield 0.0
                yield difference

    return launches


def make_noise(name: str, trials: Sequence[Trial]) -> Noise:
    """One of `noise_names`."""
    if name in DRAWN:
        return DRAWN[name]
    if name == GATES:
        return gate_noise(trials)
    lanes, _, how = name.removeprefix(RECORDED).partition("_")
    return lane_noise(lanes, gap=None if how == APART else GAP)


def noise_names(trials: Sequence[Trial]) -> tuple[str, ...]:
    """All that there are: the noise of real gates only where enough harmless ones were recorded."""
    lanes = (f"{RECORDED}{name}_{how}" for how in (CLOSE, APART) for name in LANE_FOLDERS)
    return (*DRAWN, *lanes, *[GATES] * has_gates(trials))


def has_gates(trials: Sequence[Trial]) -> bool:
    """Whether there are enough harmless ones."""
    return sum(bool(trial.pairs) for trial in trials) >= MIN_GATES


def pair_sd(noise: Noise, *, num: int = 500) -> float:
    """Standard deviation of a pair's difference in log tok/s, of *num* gates' first pairs."""
    firsts = (noise(np.random.default_rng([1, number])) for number in range(num))
    return float(np.std([next(launches) - next(launches) for launches in firsts], ddof=1))
