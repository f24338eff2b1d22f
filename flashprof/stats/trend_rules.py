"""
Where a series of runs stands against its baseline, told run by run: small losses add up, and are seen as their sum.

The baseline never creeps: whatever is newer than it is compared with all of it, for every place at which a loss may
have begun, so that ten losses of 1 % are held against the level before the first of them. A loss leaves the baseline
where it was until it is mended or accepted; a gain that enough runs confirm moves it. What was said of a run once
stays said, since only the runs before it were looked at. `change_points` looks back at a whole series instead: it
finds more, but asked again after each run it would cry wolf.

A loss is another level, or a ramp on which each run is slower than the one before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from flashprof.contracts.results import Interval
from flashprof.stats.trend_scores import (
    Floats,
    own_noise,
    ramp_chances,
    shift_chances,
    squares_along,
    squares_between,
    squares_within,
    weights_of,
)

SHIFT_P = 1.7e-5
"""Of the best place for a shift, in one direction. In flat series of 100 runs, looked at after each of them, a loss is
told in 1 % at most: of 30,000, shifts tell 0.47 %, ramps 0.43 % more."""
RAMP_P = 1e-4
"""Of the best length of a ramp."""
GROWN_P = 0.05
"""Of any place at which a loss that was told has grown: after ten losses of 1 %, of two runs each, today's level is
then right to 1 %, instead of 4; where it did not grow, 24.9 of 25 runs are kept."""
BACK_P = 0.01
"""A level is back at the baseline where it is no more surely below it than this."""
MIN_BASE = 5
"""Runs of a baseline: the first that can be compared is the seventh."""
MIN_LOSS = 2
"""Runs of a lower level: one odd run is no level."""
MIN_RAMP = 4
MAX_RAMP = 8
"""Runs of a ramp: up to 12, fewer of those with one run a level would be told (84 → 80 %); from 3, no more."""
MIN_GAIN = 5
"""Runs that confirm a faster level before the baseline follows: to miss a gain for some days harms nobody."""
SLACK = 2
"""Runs by which the place of a shift may be moved to where the numbers, not the ranks, are apart most."""
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Another level, as it was told when enough of its runs were there."""

    at: int
    """Index of its first run."""
    seen: int
    """Index of the run that showed it."""
    is_loss: bool
    is_mend: bool = False
    """A gain while something was lost: it mends that, or a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Where a series stands after its last run."""

    shifts: tuple[Shift, ...]
    """By `seen`."""
    baseline: tuple[int, ...]
    """Indices of the runs that the newest ones are held against."""
    level: tuple[int, ...]
    """Of those that make today's level: the newest below the baseline where something is lost, else the baseline."""
    is_lost: bool


def follow(log_rates: Sequence[float], sds: Sequence[float], *, restarts: Collection[int] = ()) -> Course:
    """
    Walk along a series.

    Args:
        log_rates: Natural log of tok/s, one a run, by time.
        sds: What each run's own interval says of its noise, a share of tok/s; runs that are noisier than the scatter
            of the series weigh less.
        restarts: Indices of runs with which a new baseline begins, whatever was before: what a user accepted.

    Assumes: runs of one level are exchangeable; their noise may have heavy tails.
    Source: Hawkins, Qiu and Kang, Journal of Quality Technology 35 (2003), 355–366, for a shift between two unknown
        levels with unknown noise, looked for after each run. A ramp is looked for likewise.
    Calibration: tests/flashprof/stats/test_trend_rules.py: false alarms in flat series, ten losses of 1 % in a row.
    """
    walk = _Walk(np.asarray(log_rates, dtype=float), own_noise(sds))
    for index in range(len(log_rates)):
        walk.take(index, is_restart=index in restarts)
    is_lost = bool(walk.lost)
    return Course(
        shifts=tuple(walk.shifts),
        baseline=tuple(walk.kept),
        level=tuple(walk.today() if is_lost else walk.kept),
        is_lost=is_lost,
    )


def level_rate(log_rates: Sequence[float], sds: Sequence[float], level: Sequence[int]) -> Interval:
    """Tok/s of some runs, one at least: the geometric mean with its 95 % t-interval between runs."""
    values, weights = _of(log_rates, sds, level)
    mean, freedom = float(np.average(values, weights=weights)), len(level) - 1
    half = _half(squares_within(values, weights), freedom, 1 / float(np.sum(weights)))
    return Interval(
        estimate=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half) if half < math.inf else math.inf,
        level=LEVEL,
        num_samples=len(level),
        method=f"t-interval on log tok/s, {len(level)} runs",
    )


def change_between(
    log_rates: Sequence[float], sds: Sequence[float], before: Sequence[int], after: Sequence[int]
) -> Interval:
    """Relative change of tok/s from some runs to others, each one at least, with its 95 % t-interval between runs."""
    values, weights = _of(log_rates, sds, [*before, *after])
    parts = [(values[part], weights[part]) for part in (slice(len(before)), slice(len(before), None))]
    means = [float(np.average(part, weights=weight)) for part, weight in parts]
    squares = sum(squares_within(part, weight) for part, weight in parts)
    half = _half(squares, len(values) - 2, sum(1 / float(np.sum(weight)) for _, weight in parts))
    difference = means[1] - means[0]
    return Interval(
        estimate=math.expm1(difference),
        low=math.expm1(difference - half),
        high=math.expm1(difference + half) if half < math.inf else math.inf,
        level=LEVEL,
        num_samples=len(values),
        method=f"t-interval on log tok/s, {len(before)} and {len(after)} runs",
    )


def _of(log_rates: Sequence[float], sds: Sequence[float], indices: Sequence[int]) -> tuple[Floats, Floats]:
    """Values and weights of some runs."""
    chosen = np.asarray(indices, dtype=int)
    values = np.asarray(log_rates, dtype=float)[chosen]
    return values, weights_of(values, own_noise(sds)[chosen])


def _half(squares: float, freedom: int, inverse_mass: float) -> float:
    from scipy.special import stdtrit

    if freedom < 1:
        return math.inf
    return float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(squares / freedom * inverse_mass)


@dataclass
class _Walk:
    """What is known after some runs."""

    values: Floats
    own: Floats
    kept: list[int] = field(default_factory=list)
    """The baseline, and what was not told from it."""
    lost: list[int] = field(default_factory=list)
    """The level below the baseline; empty where nothing is lost."""
    shifts: list[Shift] = field(default_factory=list)

    def take(self, index: int, *, is_restart: bool) -> None:
        """One more run."""
        if is_restart:
            self.kept, self.lost = [], []
        if self.lost:
            self.lost.append(index)
            self._below()
        else:
            self.kept.append(index)
            self._beside()

    def today(self) -> list[int]:
        """Of the lost runs, the newest from which none before differ: a loss may have grown, too little to be told."""
        level = self.lost
        while len(level) >= 2 * MIN_LOSS:
            chances, _ = shift_chances(self.values, self.own, level, ())
            allowed = chances[MIN_LOSS - 1 : len(level) - MIN_LOSS]
            if allowed.min() * allowed.size > GROWN_P:
                break
            level = level[MIN_LOSS + int(np.argmin(allowed)) :]
        return level

    def _beside(self) -> None:
        """Nothing is lost so far."""
        found = self._shift(self.kept, MIN_BASE, MIN_GAIN)
        if found is None:
            self._beside_ramp()
            return
        place, is_loss = found
        before, after = self.kept[:place], self.kept[place:]
        self._tell(after, is_loss=is_loss)
        self.kept, self.lost = (before, after) if is_loss else (after, [])

    def _beside_ramp(self) -> None:
        """No level is told from the baseline, but each run may be slower than the one before."""
        found = self._ramp(self.kept)
        if found is not None:
            begin, place = found
            self._tell(self.kept[begin:], is_loss=True)
            self.kept, self.lost = self.kept[:begin], self.kept[place:]

    def _below(self) -> None:
        """Something is lost: it may grow, be mended, in part or altogether, or never have been."""
        found = self._shift(self.lost, MIN_LOSS, MIN_LOSS, beside=self.kept)
        if found is not None:
            place, is_loss = found
            self.lost = self.lost[place:]
            self._tell(self.lost, is_loss=is_loss, is_mend=not is_loss)
        is_mended = found is not None and not found[1]
        if (is_mended or len(self.lost) >= MIN_GAIN) and self._is_back():
            self.kept, self.lost = [*self.kept, *self.lost], []

    def _tell(self, level: Sequence[int], *, is_loss: bool, is_mend: bool = False) -> None:
        self.shifts.append(Shift(at=level[0], seen=level[-1], is_loss=is_loss, is_mend=is_mend))

    def _shift(
        self, indices: Sequence[int], min_first: int, min_gain: int, beside: Sequence[int] = ()
    ) -> tuple[int, bool] | None:
        """Where among *indices* the best shift begins and whether it is a loss; None where it may be chance."""
        if len(indices) < min_first + MIN_LOSS:
            return None
        chances = shift_chances(self.values, self.own, indices, beside)
        places = np.arange(1, len(indices))
        late = len(indices) - places
        loss_p, gain_p = (
            np.where((places >= min_first) & (late >= least), chance, 1.0)
            for chance, least in zip(chances, (MIN_LOSS, min_gain), strict=True)
        )
        is_loss = bool(loss_p.min() <= gain_p.min())
        best = loss_p if is_loss else gain_p
        if best.min() > SHIFT_P:
            return None
        # Where others are as good but for their last digits, ranks do not say which run is whose: numbers do.
        allowed = np.flatnonzero((best < 1.0) & (np.abs(places - places[np.argmin(best)]) <= SLACK))
        between = squares_between(self.values, self.own, indices)
        return int(places[allowed[np.argmax(between[allowed])]]), is_loss

    def _ramp(self, indices: Sequence[int]) -> tuple[int, int] | None:
        """Where the newest of *indices* begin to lose, and where today's level begins; None where it may be chance."""
        num = len(indices)
        longest = min(MAX_RAMP, num - MIN_BASE)
        if longest < MIN_RAMP:
            return None
        chances = ramp_chances(self.values, self.own, indices, np.arange(MIN_RAMP, longest + 1))
        if chances.min() > RAMP_P:
            return None
        # A large step looks like a ramp to ranks, and not to numbers: what leaves less of them says where it began.
        lengths = np.arange(MIN_LOSS, longest + 1)
        steps = squares_between(self.values, self.own, indices)[num - 1 - lengths]
        ramps = squares_along(self.values, self.own, indices, lengths)
        place = num - int(lengths[np.argmax(steps)])
        begin = num - int(lengths[np.argmax(ramps)]) if ramps.max() > steps.max() else place
        return begin, max(begin, place)

    def _is_back(self) -> bool:
        indices = [*self.kept, *self.lost]
        loss_p, _ = shift_chances(self.values, self.own, indices, ())
        return bool(loss_p[len(self.kept) - 1] > BACK_P)
