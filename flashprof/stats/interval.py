"""
Confidence intervals for the throughput of one launch, and for what sampling cost it. Pure.

Both work on logs of tok/s: throughput noise is relative, and a ratio is a difference there. Both speak of one
launch only: what a launch draws once (allocator layout, autotune choices, clocks) is the same in all its windows,
so a difference between two launches is judged from several launches (design §4.3), never from these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from flashprof.contracts.results import Interval

ONE_LAUNCH = "of this one launch; another launch may differ by more"


def throughput_interval(values_tok_per_s: Sequence[float], *, level: float = 0.95) -> Interval | None:
    """
    Estimate the typical tok/s of a launch from its measure windows: the geometric mean and its t-interval.

    Args:
        values_tok_per_s: One value a window.
        level: Confidence, 0 to 1.

    Returns:
        None where there are fewer than 2 windows, or one of them has no finite tok/s above 0: a window without
        tokens is a fault to be reported, not a low value.

    Calibration: tests/flashprof/stats/test_interval.py, 95 % intervals of 5 windows cover 93 to 97 %.
    """
    logs = _logs(values_tok_per_s)
    if logs is None:
        return None
    mean, error = fmean(logs), math.sqrt(variance(logs) / len(logs))
    half = _t_quantile(len(logs) - 1, level) * error
    return Interval(
        estimate=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        level=level,
        num_samples=len(logs),
        method=f"t-interval on log tok/s, {len(logs)} windows {ONE_LAUNCH}",
    )


def sampling_cost(
    measure_tok_per_s: Sequence[float], profile_tok_per_s: Sequence[float], *, level: float = 0.95
) -> Interval | None:
    """
    Estimate the share of tok/s that the samplers cost: 1 − (profile ÷ measure), Welch's interval on logs.

    Args:
        measure_tok_per_s: One value a measure window.
        profile_tok_per_s: One value a profile window.
        level: Confidence, 0 to 1.

    Returns:
        0.02 means 2 %; negative where profile windows were faster. None under the conditions of
        `throughput_interval`, for either side.

    Assumes: windows alternate, so that slow drift hits both kinds alike.
    """
    measure, profile = _logs(measure_tok_per_s), _logs(profile_tok_per_s)
    if measure is None or profile is None:
        return None
    squared = [variance(logs) / len(logs) for logs in (measure, profile)]
    freedom = _welch_freedom(squared, [len(measure) - 1, len(profile) - 1])
    difference = fmean(profile) - fmean(measure)
    half = _t_quantile(freedom, level) * math.sqrt(sum(squared))
    return Interval(
        estimate=1 - math.exp(difference),
        low=1 - math.exp(difference + half),
        high=1 - math.exp(difference - half),
        level=level,
        num_samples=len(measure) + len(profile),
        method=f"Welch interval on log tok/s, {len(profile)} profile and {len(measure)} measure windows {ONE_LAUNCH}",
    )


def _logs(values: Sequence[float]) -> list[float] | None:
    if len(values) < 2 or not all(math.isfinite(value) and value > 0 for value in values):
        return None
    return [math.log(value) for value in values]


def _welch_freedom(squared_errors: Sequence[float], freedoms: Sequence[int]) -> float:
    """Welch-Satterthwaite degrees of freedom; of two sides without any spread, their sum."""
    below = sum(error**2 / freedom for error, freedom in zip(squared_errors, freedoms, strict=True))
    return sum(squared_errors) ** 2 / below if below > 0 else float(sum(freedoms))


def _t_quantile(freedom: float, level: float) -> float:
    # scipy.special loads in a third of the time of scipy.stats, which takes 0.5 to 1.3 s.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))
