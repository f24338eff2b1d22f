"""
Where a series of runs stands against its baseline, told run by run: small losses add up, and are seen as their sum.

The baseline never creeps: whatever is newer than it is compared with all of it, for every place at which a loss may
have begun, so that ten losses of 1 % are held against the level before the first of them. A loss leaves the baseline
where it was until it is mended or accepted; a gain that enough runs confirm moves it. What was said of a run once
stays said, since only the runs before it were looked at. `change_points` looks back at a whole series instead: it
finds more, but asked again after each run it would cry wolf.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from flashprof.contracts.results import Interval

Floats = npt.NDArray[np.float64]

SHIFT_P = 2.5e-5
"""Of the best place for a shift, in one direction: in flat series of 100 runs, looked at after each of them, a loss is
told in 1 % at most. A t-test's p of normal scores: with few runs it is no probability, only a limit that was tried."""
BACK_P = 0.01
"""A level is back at the baseline where it is no more surely below it than this."""
MIN_BASE = 5
"""Runs of a baseline: the first that can be compared is the seventh."""
MIN_LOSS = 2
"""Runs of a lower level: one odd run is no level."""
MIN_GAIN = 5
"""Runs that confirm a faster level before the baseline follows: to miss a gain for some days harms nobody."""
SLACK = 2
"""Runs by which the place of a shift may be moved to where the numbers, not the ranks, are apart most."""
MAX_SD = 10.0
"""A run's own noise that is larger says no more."""
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
    """Of those that make today's level: below the baseline where something is lost, else the baseline itself."""
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
        levels with unknown noise, looked for after each run.
    Calibration: tests/flashprof/stats/test_trend_rules.py: false alarms in flat series, ten losses of 1 % in a row.
    """
    walk = _Walk(np.asarray(log_rates, dtype=float), _own(sds))
    for index in range(len(log_rates)):
        walk.take(index, is_restart=index in restarts)
    is_lost = bool(walk.lost)
    return Course(
        shifts=tuple(walk.shifts),
        baseline=tuple(walk.kept),
        level=tuple(walk.lost if is_lost else walk.kept),
        is_lost=is_lost,
    )


def level_rate(log_rates: Sequence[float], sds: Sequence[float], level: Sequence[int]) -> Interval:
    """Tok/s of some runs, one at least: the geometric mean with its 95 % t-interval between runs."""
    values, weights = _of(log_rates, sds, level)
    mean, freedom = float(np.average(values, weights=weights)), len(level) - 1
    half = _half(_squares(values, weights), freedom, 1 / float(np.sum(weights)))
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
    squares = sum(_squares(part, weight) for part, weight in parts)
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
    return values, _weights(values, _own(sds)[chosen])


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

    def _beside(self) -> None:
        """Nothing is lost so far."""
        found = self._shift(self.kept, MIN_BASE, MIN_GAIN)
        if found is None:
            return
        place, is_loss = found
        before, after = self.kept[:place], self.kept[place:]
        self._tell(after, is_loss=is_loss)
        self.kept, self.lost = (before, after) if is_loss else (after, [])

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
        chances = _chances(self.values, self.own, indices, beside)
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
        between = _between(self.values, self.own, indices)
        return int(places[allowed[np.argmax(between[allowed])]]), is_loss

    def _is_back(self) -> bool:
        indices = [*self.kept, *self.lost]
        loss_p, _ = _chances(self.values, self.own, indices, ())
        return bool(loss_p[len(self.kept) - 1] > BACK_P)


def _chances(values: Floats, own: Floats, indices: Sequence[int], beside: Sequence[int]) -> tuple[Floats, Floats]:
    """
    For each split of *indices*, how likely chance alone makes the second part this much slower, and this much faster.

    Ranks, not numbers, are compared, as normal scores: one odd run in a hundred carries no level, and whatever the
    noise is like, flat series give as many false alarms.

    Args:
        values: Log tok/s of all runs.
        own: Their own noise.
        indices: Of the runs that are split.
        beside: Others, which say only how much runs of one level differ.
    """
    from scipy.special import stdtr

    chosen, num_beside = np.asarray([*beside, *indices], dtype=int), len(beside)
    all_weights, all_scores = _weights(values[chosen], own[chosen]), _normal_scores(values[chosen])
    weights, scores = all_weights[num_beside:], all_scores[num_beside:]
    masses, sums = np.cumsum(weights), np.cumsum(weights * scores)
    first, second = masses[:-1], masses[-1] - masses[:-1]
    means = sums[:-1] / first, (sums[-1] - sums[:-1]) / second
    # Within both parts: all squares less those between them.
    within = float(np.sum(weights * scores**2)) - first * means[0] ** 2 - second * means[1] ** 2
    freedom = len(indices) - 2
    if num_beside > 1:
        within = within + _squares(all_scores[:num_beside], all_weights[:num_beside])
        freedom += num_beside - 1
    # Rounding: numbers that are all the same leave a little less than nothing.
    error = np.sqrt(np.maximum(within, 1e-12 * masses[-1]) / freedom * (1 / first + 1 / second))
    ratio = (means[1] - means[0]) / error
    return stdtr(freedom, ratio), stdtr(freedom, -ratio)


def _between(values: Floats, own: Floats, indices: Sequence[int]) -> Floats:
    """For each split of *indices*, the squares between its parts."""
    chosen = np.asarray(indices, dtype=int)
    weights = _weights(values[chosen], own[chosen])
    near = values[chosen] - np.median(values[chosen])
    masses, sums = np.cumsum(weights), np.cumsum(weights * near)
    first, second = masses[:-1], masses[-1] - masses[:-1]
    squares: Floats = (sums[:-1] / first - (sums[-1] - sums[:-1]) / second) ** 2 * first * second / masses[-1]
    return squares


def _normal_scores(values: Floats) -> Floats:
    """What a normal sample of this size would have in each rank (Blom); equal values share a mean rank."""
    from scipy.special import ndtri

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    scores: Floats = ndtri((ranks - 0.375) / (len(values) + 0.25))
    return scores


def _squares(values: Floats, weights: Floats) -> float:
    return float(np.sum(weights * (values - np.average(values, weights=weights)) ** 2))


def _weights(values: Floats, own: Floats) -> Floats:
    """Inverse variances up to a factor; a run whose own noise is within the scatter weighs about as much as all."""
    scatter = _scatter(values)
    weights: Floats = scatter**2 / (scatter**2 + own**2)
    return weights


def _scatter(values: Floats) -> float:
    """Standard deviation of the noise, from neighbours: they differ by it alone, but for the few at a shift."""
    # 0.954 = √2 × 0.6745 for the normal distribution.
    return max(float(np.median(np.abs(np.diff(values)))) / 0.954, 1e-6) if len(values) > 1 else 1e-6


def _own(sds: Sequence[float]) -> Floats:
    given = np.asarray(sds, dtype=float)
    return np.clip(np.where(np.isfinite(given), given, MAX_SD), 0.0, MAX_SD)
