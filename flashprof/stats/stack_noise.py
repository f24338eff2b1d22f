"""
How sure changes of frames and of flamegraph boxes are, and which of many are more than chance. Pure.

Three things make the time of a row, a frame or a box, differ from window to window of one arm:

- *Counts.* A row with 9 samples is uncertain by a third, whatever the windows agree on by chance. A share p of N
  samples has variance p (1 − p) / N; with one success and one failure added, so that a row that met no sample is not
  certain to take no time (Agresti, Caffo, "Simple and effective confidence intervals for proportions and differences
  of proportions", The American Statistician 54, 2000). Bursts, as of phases that a short window holds once or twice,
  make that several times as much for all rows alike: Pearson's χ² over its degrees of freedom tells how many times.
- *The rate.* Time per token of whole windows varies by 2 to 8 % on the machines that were measured, and all rows
  vary with it.
- *The row itself.* Its share varies, too, beyond its counts: by 0 to 12 % in 15 roles of five real runs, in most of
  them by nothing that could be told.

All are measured on all frames of a role together, whose own times share no sample. Few windows do not tell
them well, so what is usual is mixed in. A row's own spread over windows, or launches, is mixed in likewise, as in
the moderated t (Smyth, "Linear models and empirical Bayes methods", SAGMB 3, 2004), and can only widen. It holds the
counts' noise already: drawing windows and counts again would count that twice, and cover 99 % where 95 is meant.

Interval: Student's t. Satterthwaite's degrees of freedom: counts are certain, the rest is known from few windows.
Simulated, 1 to 10 windows of 60 to 900 samples, rates that vary by 5 % and frames by 0 to 20 %, or bursts of up to
4 times the draws' variance: 95 to 99 % are covered. One window knows neither: of frames that vary by 20 % it covers
94, 90 and 82 % with 60, 240 and 900 samples, of bursts of 3 times 89 %.

Clear is what Holm's procedure rejects at 5 % over all rows (Holm, "A simple sequentially rejective multiple test
procedure", 1979): it holds under any dependence, and frames that call each other share their samples. Rows with the
same samples, as those of a wrapper and what it wraps, are one question. Rows with less than eight samples in both arms
together cannot be clear (0 against 7 has p = 0.016) and are not asked. A/A: 0 to 4 % of analyses call any row clear;
with one window of frames that vary by 20 %, 4, 10 and 42 %.

Of two models that came before, this is the one of frames, with the bursts of the one of boxes. Without them it called a
box clear in 37 % of A/A with two windows of 900 samples in bursts, and covered 89 % where frames vary by 20 %. The one
of boxes let 5 % of what it called clear be chance (Benjamini and Hochberg), which no frame beside it had to bear.

A box and a frame with the same samples have the same interval and the same p. Calibration:
tests/flashprof/stats/test_stack_noise.py.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashprof.contracts.results import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]

LEVEL = 0.95
MIN_LAUNCHES = 3
"""An arm with fewer launches is judged by its windows, as in localise.py."""
USUAL_RATE_CV = 0.05
USUAL_FRAME_CV = 0.07
USUAL_FREEDOM = 4.0
"""Weight of what is usual, in degrees of freedom, against what the windows of a role show."""
EXPECTED_FREEDOM = 8.0
"""Weight of what the role's noise lets expect, against what the windows of one row show."""
MAX_EXTRA_FREEDOM = 20.0
"""Beyond that of the windows: the counts' own variance is not known better than to a third."""
MIN_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWindows:
    """The windows of one arm in which a role, or one of its threads, was looked at."""

    launches: tuple[str, ...]
    ns_per_token: Floats
    """(num_windows,); another unit will do, if it is that of all windows."""
    num_samples: Floats
    """(num_windows,); 0 where the thread was not there, which takes no time then."""

    @property
    def ns_per_sample(self) -> Floats:
        """What one sample stands for, (num_windows,)."""
        return self.ns_per_token / np.maximum(self.num_samples, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Candidate − base, one entry a row, ns a token."""

    base: Floats
    candidate: Floats
    half: Floats
    """Half the width of the interval."""
    p_values: Floats
    """Two-sided, of no change."""
    is_asked: Bools
    """Whether it has samples enough to be clear."""
    num_units: int
    method: str

    @property
    def estimate(self) -> Floats:
        """Mean over windows."""
        return self.candidate - self.base

    def interval(self, row: int) -> Interval:
        """Of one row."""
        estimate, half = float(self.estimate[row]), float(self.half[row])
        return Interval(
            estimate=estimate,
            low=estimate - half,
            high=estimate + half,
            level=LEVEL,
            num_samples=self.num_units,
            method=self.method,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What one role's windows, or launches, differ by beyond their counts; relative variances of one of them."""

    is_by_launch: bool
    freedom: float
    """Degrees of freedom that the units give: 0 for one in each arm."""
    bursts: float
    """How many times the variance of independent draws the counts have, at least 1."""
    rate: float
    """Of the time per token of all frames alike."""
    frame: float
    """Of a frame's share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArmMoments:
    mean: Floats
    share: Floats
    """Of the samples."""
    counted: Floats
    """Variance of the mean by the counts."""
    drawn: float
    """Variance of the mean by the counts, summed over rows; nothing for rows without samples."""
    spread: Floats
    """Variance of the mean by its units; 0 where there is one."""
    num_units: int
    rate_squares: float
    """Relative squares of the units' time per token about their mean, summed."""
    weight: float
    """Of the variance of one unit, what the mean has."""


def noise_of(
    arms: tuple[ArmWindows, ArmWindows], base_own: Floats, candidate_own: Floats, *, is_time: bool = True
) -> Noise:
    """
    Measure how windows of one arm differ.

    Args:
        arms: Base and candidate, each with a window or more.
        base_own: Samples of own time, which no two frames share: (num_frames, num_windows).
        candidate_own: Of the other arm; rows need not be the same.
        is_time: Whether windows have a time per token; without, costs are shares, and there is no rate.
    """
    is_by_launch = min(len(set(arm.launches)) for arm in arms) >= MIN_LAUNCHES
    both = [
        _moments(arm, own, by_launch=is_by_launch) for arm, own in zip(arms, (base_own, candidate_own), strict=True)
    ]
    freedom = float(sum(arm.num_units for arm in both) - 2) * (min(arm.num_units for arm in both) > 1)
    weight = USUAL_FREEDOM / (USUAL_FREEDOM + freedom)
    rate_squares = sum(arm.rate_squares for arm in both) / max(freedom, 1.0)
    rate = weight * USUAL_RATE_CV**2 + (1 - weight) * rate_squares if is_time else 0.0
    # Rounded once: which stack was met first must not show.
    squares = sum(math.fsum(arm.mean**2) * arm.weight for arm in both)
    bursts = _bursts((base_own, candidate_own))
    beyond = sum(math.fsum(arm.spread) - bursts * arm.drawn for arm in both)
    excess = beyond / squares - rate if freedom and squares else 0.0
    return Noise(
        is_by_launch=is_by_launch,
        freedom=freedom,
        bursts=bursts,
        rate=rate,
        frame=weight * USUAL_FRAME_CV**2 + (1 - weight) * max(excess, 0.0),
    )


def changes(arms: tuple[ArmWindows, ArmWindows], base: Floats, candidate: Floats, noise: Noise) -> Changes:
    """
    Compare the time of frames or boxes.

    Args:
        arms: Base and candidate, each with a window or more.
        base: Samples, (num_rows, num_windows).
        candidate: The same rows in the other arm.
        noise: Of their role.
    """
    from scipy.special import stdtr, stdtrit

    one, other = (
        _moments(arm, counts, by_launch=noise.is_by_launch) for arm, counts in zip(arms, (base, candidate), strict=True)
    )
    variance, freedom = _variance(one, other, noise)
    error = np.sqrt(variance)
    gap = np.abs(other.mean - one.mean)
    statistic = np.divide(gap, error, out=np.zeros_like(gap), where=error > 0)
    return Changes(
        base=one.mean,
        candidate=other.mean,
        half=-stdtrit(freedom, (1 - LEVEL) / 2) * error,
        p_values=2 * stdtr(freedom, -statistic),
        is_asked=base.sum(axis=1) + candidate.sum(axis=1) >= MIN_SAMPLES,
        num_units=one.num_units + other.num_units,
        method=f"Student's t over {'launches' if noise.is_by_launch else 'windows'} and the counts' own noise",
    )


def questions(base: Floats, candidate: Floats) -> list[bytes]:
    """What each row asks, the same for rows with the same samples: what is true of one is true of the other."""
    return [row.tobytes() for row in np.hstack([base, candidate])]


def clear_of_chance(parts: Sequence[Changes], names: Sequence[Sequence[Hashable]]) -> list[Bools]:
    """
    Which of all are rejected at 5 % by Holm's procedure; rows not asked neither count nor are rejected.

    Args:
        parts: Tables of rows.
        names: What each row of each table asks: a question counts once, however many rows ask it.
    """
    pairs = list(zip(parts, names, strict=True))
    p_values = {
        name: float(p_value)
        for part, asked in pairs
        for name, p_value, is_asked in zip(asked, part.p_values, part.is_asked, strict=True)
        if is_asked
    }
    clear = set()
    for place, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p_value > (1 - LEVEL) / (len(p_values) - place):
            break
        clear.add(name)
    return [np.array([name in clear for name in asked], dtype=np.bool_) for _, asked in pairs]


def _moments(arm: ArmWindows, counts: Floats, *, by_launch: bool) -> _ArmMoments:
    num = len(arm.launches)
    values = counts * arm.ns_per_sample
    total, num_samples = counts.sum(axis=1), float(arm.num_samples.sum())
    share, seen = (total + 1) / (num_samples + 2), total / max(num_samples, 1.0)
    of_draws = float((arm.ns_per_token**2 / np.maximum(arm.num_samples, 1.0)).sum()) / num**2
    units = _units(arm.launches, by_launch=by_launch)
    num_units = units.shape[1]
    sizes = units.sum(axis=0)
    mean = values.mean(axis=1)
    spread = np.zeros(len(counts))
    if num_units > 1:
        gaps = np.einsum("rw,wu->ru", values, units) - mean[:, None] * sizes
        spread = (gaps**2).sum(axis=1) / num**2 * num_units / (num_units - 1)
    rates = arm.ns_per_token @ units / sizes
    return _ArmMoments(
        mean=mean,
        share=share,
        counted=share * (1 - share) * of_draws,
        drawn=math.fsum(seen * (1 - seen)) * of_draws,
        spread=spread,
        num_units=num_units,
        rate_squares=float(((rates / rates.mean() - 1) ** 2).sum()) if rates.any() else 0.0,
        weight=float((sizes**2).sum()) / num**2,
    )


def _bursts(arms: Sequence[Floats]) -> float:
    """From samples that no two rows share, each window against its arm."""
    chi_squared = freedom = 0.0
    for counts in arms:
        held = counts[counts.any(axis=1)][:, counts.any(axis=0)]
        expected = held.sum(axis=1, keepdims=True) * held.sum(axis=0) / max(held.sum(), 1.0)
        chi_squared += math.fsum(((held - expected) ** 2 / expected).flat)
        freedom += max(held.shape[0] - 1, 0) * max(held.shape[1] - 1, 0)
    return max(1.0, chi_squared / freedom) if freedom else 1.0


def _units(launches: Sequence[str], *, by_launch: bool) -> Floats:
    """(num_windows, num_units): 1 where the window is of the unit."""
    names = launches if by_launch else range(len(launches))
    _, places = np.unique(np.array(names), return_inverse=True)
    return np.eye(places.max() + 1)[places]


def _variance(one: _ArmMoments, other: _ArmMoments, noise: Noise) -> tuple[Floats, Floats]:
    """Of the difference, with its degrees of freedom."""
    counted = one.counted + other.counted
    expected = noise.bursts * counted + _expected(one, noise) + _expected(other, noise)
    known = EXPECTED_FREEDOM + noise.freedom
    mixed = (EXPECTED_FREEDOM * expected + noise.freedom * (one.spread + other.spread)) / known
    variance = np.maximum(expected, mixed)
    # Satterthwaite: what draws alone would give is certain.
    doubtful = variance - counted
    ratio = np.divide(variance, doubtful, out=np.full_like(variance, np.inf), where=doubtful > 0)
    return variance, np.minimum(known * ratio**2, noise.freedom + MAX_EXTRA_FREEDOM)


def _expected(arm: _ArmMoments, noise: Noise) -> Floats:
    """Variance of the arm's mean beyond the counts; a share of nearly all of the samples can hardly vary."""
    return arm.mean**2 * arm.weight * (noise.rate + noise.frame * (1 - arm.share))
