"""
How sure changes of frames are, and which of many are more than chance. Pure.

Three things make the time of a frame differ from window to window of one arm:

- *Counts.* A frame with 9 samples is uncertain by a third, whatever the windows agree on by chance. A share p of N
  samples has variance p (1 − p) / N; with one success and one failure added, so that a frame that met no sample is not
  certain to take no time (Agresti, Caffo, "Simple and effective confidence intervals for proportions and differences
  of proportions", The American Statistician 54, 2000).
- *The rate.* Time per token of whole windows varies by 2 to 8 % on the machines that were measured, and all frames
  vary with it.
- *The frame itself.* Its share varies, too, beyond its counts: by 0 to 12 % in 15 roles of five real runs, in most of
  them by nothing that could be told.

The last two are measured on all frames of a role together, whose own times share no sample. Few windows do not tell
them well, so what is usual is mixed in. A frame's own spread over windows, or launches, is mixed in likewise, as in
the moderated t (Smyth, "Linear models and empirical Bayes methods", SAGMB 3, 2004), and can only widen. It holds the
counts' noise already: drawing windows and counts again would count that twice, and cover 99 % where 95 is meant.

Interval: Student's t. Satterthwaite's degrees of freedom: counts are certain, the rest is known from few windows.
Simulated, 1 to 10 windows of 60 to 900 samples, rates that vary by 5 % and frames by 0 to 10 %: 94 to 98 % are covered.
Frames that vary by 20 % are covered by 93 to 98 %; with two windows of 900 by 89 %, with one by 81 %.

Clear is what Holm's procedure rejects at 5 % over all frames (Holm, "A simple sequentially rejective multiple test
procedure", 1979): it holds under any dependence, and frames that call each other share their samples. Frames with less
than eight samples in both arms together cannot be clear (0 against 7 has p = 0.016) and are not asked. A/A: 0 to 3 %
of analyses call any frame clear. Where frames vary by 20 %, 1 to 5 %; with two windows of 900 samples 12, with one 31.
Calibration: tests/flashprof/stats/test_frame_errors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashprof.stats.frame_table import ArmWindows

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
"""Weight of what the role's noise lets expect, against what the windows of one frame show."""
MAX_EXTRA_FREEDOM = 20.0
"""Beyond that of the windows: the counts' own variance is not known better than to a third."""
MIN_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Candidate − base, one entry a frame, ns a token."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What one role's windows, or launches, differ by beyond their counts; relative variances of one of them."""

    is_by_launch: bool
    freedom: float
    """Degrees of freedom that the units give: 0 for one in each arm."""
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
    spread: Floats
    """Variance of the mean by its units; 0 where there is one."""
    num_units: int
    rate_squares: float
    """Relative squares of the units' time per token about their mean, summed."""
    weight: float
    """Of the variance of one unit, what the mean has."""


def noise_of(arms: tuple[ArmWindows, ArmWindows], base_own: Floats, candidate_own: Floats) -> Noise:
    """
    Measure how windows of one arm differ.

    Args:
        arms: Base and candidate, each with a window or more.
        base_own: Samples of own time, which no two frames share: (num_frames, num_windows).
        candidate_own: The same rows in the other arm.
    """
    is_by_launch = min(len(set(arm.launches)) for arm in arms) >= MIN_LAUNCHES
    both = [
        _moments(arm, own, by_launch=is_by_launch) for arm, own in zip(arms, (base_own, candidate_own), strict=True)
    ]
    freedom = float(sum(arm.num_units for arm in both) - 2) * (min(arm.num_units for arm in both) > 1)
    weight = USUAL_FREEDOM / (USUAL_FREEDOM + freedom)
    rate = weight * USUAL_RATE_CV**2 + (1 - weight) * sum(arm.rate_squares for arm in both) / max(freedom, 1.0)
    squares = sum(float((arm.mean**2).sum()) * arm.weight for arm in both)
    excess = sum(float((arm.spread - arm.counted).sum()) for arm in both) / squares - rate if freedom else 0.0
    return Noise(
        is_by_launch=is_by_launch,
        freedom=freedom,
        rate=rate,
        frame=weight * USUAL_FRAME_CV**2 + (1 - weight) * max(excess, 0.0),
    )


def changes(arms: tuple[ArmWindows, ArmWindows], base: Floats, candidate: Floats, noise: Noise) -> Changes:
    """
    Compare the time of frames.

    Args:
        arms: Base and candidate, each with a window or more.
        base: Samples, (num_frames, num_windows).
        candidate: The same rows in the other arm.
        noise: Of their role.
    """
    from scipy.special import stdtr, stdtrit

    one, other = (
        _moments(arm, counts, by_launch=noise.is_by_launch) for arm, counts in zip(arms, (base, candidate), strict=True)
    )
    variance, freedom = _variance(one, other, noise)
    error = np.sqrt(variance)
    statistic = np.abs(other.mean - one.mean) / error
    return Changes(
        base=one.mean,
        candidate=other.mean,
        half=-stdtrit(freedom, (1 - LEVEL) / 2) * error,
        p_values=2 * stdtr(freedom, -statistic),
        is_asked=base.sum(axis=1) + candidate.sum(axis=1) >= MIN_SAMPLES,
        num_units=one.num_units + other.num_units,
        method=f"Student's t over {'launches' if noise.is_by_launch else 'windows'} and the counts' own noise",
    )


def clear_of_chance(p_values: Floats, is_asked: Bools) -> Bools:
    """Which of all are rejected at 5 % by Holm's procedure; those not asked neither count nor are rejected."""
    asked = p_values[is_asked]
    order = np.argsort(asked, kind="stable")
    bounds = (1 - LEVEL) / np.arange(len(asked), 0, -1)
    num_clear = int(np.cumprod(asked[order] <= bounds).sum())
    clear = np.zeros(len(asked), dtype=np.bool_)
    clear[order[:num_clear]] = True
    result = np.zeros(len(p_values), dtype=np.bool_)
    result[is_asked] = clear
    return result


def _moments(arm: ArmWindows, counts: Floats, *, by_launch: bool) -> _ArmMoments:
    num = len(arm.launches)
    values = counts * arm.ns_per_sample
    share = (counts.sum(axis=1) + 1) / (arm.num_samples.sum() + 2)
    units = _units(arm.launches, by_launch=by_launch)
    num_units = units.shape[1]
    sizes = units.sum(axis=0)
    mean = values.mean(axis=1)
    spread = np.zeros(len(counts))
    if num_units > 1:
        gaps = values @ units - mean[:, None] * sizes
        spread = (gaps**2).sum(axis=1) / num**2 * num_units / (num_units - 1)
    rates = arm.ns_per_token @ units / sizes
    return _ArmMoments(
        mean=mean,
        share=share,
        counted=share * (1 - share) * float((arm.ns_per_token**2 / arm.num_samples).sum()) / num**2,
        spread=spread,
        num_units=num_units,
        rate_squares=float(((rates / rates.mean() - 1) ** 2).sum()),
        weight=float((sizes**2).sum()) / num**2,
    )


def _units(launches: Sequence[str], *, by_launch: bool) -> Floats:
    """(num_windows, num_units): 1 where the window is of the unit."""
    names = launches if by_launch else range(len(launches))
    _, places = np.unique(np.array(names), return_inverse=True)
    return np.eye(places.max() + 1)[places]


def _variance(one: _ArmMoments, other: _ArmMoments, noise: Noise) -> tuple[Floats, Floats]:
    """Of the difference, with its degrees of freedom."""
    counted = one.counted + other.counted
    expected = counted + _expected(one, noise) + _expected(other, noise)
    known = EXPECTED_FREEDOM + noise.freedom
    mixed = (EXPECTED_FREEDOM * expected + noise.freedom * (one.spread + other.spread)) / known
    variance = np.maximum(expected, mixed)
    # Satterthwaite: the counts' part is certain.
    doubtful = variance - counted
    ratio = np.divide(variance, doubtful, out=np.full_like(variance, np.inf), where=doubtful > 0)
    return variance, np.minimum(known * ratio**2, noise.freedom + MAX_EXTRA_FREEDOM)


def _expected(arm: _ArmMoments, noise: Noise) -> Floats:
    """Variance of the arm's mean beyond the counts; a share of nearly all of the samples can hardly vary."""
    return arm.mean**2 * arm.weight * (noise.rate + noise.frame * (1 - arm.share))
