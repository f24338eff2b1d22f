"""
From blocks to a verdict: effect, interval, and what more it would cost to know. Pure.

Statistics sees only blocks, one difference of log tok/s each. The coin that orders a block's arms makes its noise
symmetric about 0, and the noise of different blocks uncorrelated, whatever drift there is: turning a block round
negates what drift does to it. It does not make the noise Gaussian. Drift that is the same in each block gives ±c,
and by chance all of the first few with one sign, a difference that looks free of noise: with drift of 20 times the
noise, 13 of 100 comparisons without a difference were false alarms. So nothing is decided before blocks of both
orders count; then it is 0.7 of 100, and costs nothing in the median.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from flashprof.contracts.comparison import Block, Comparison, DecisionRule, Method, Verdict
from flashprof.contracts.results import Interval
from flashprof.stats.sequential import (
    End,
    Moments,
    anytime_factor,
    anytime_half_width,
    fewest,
    moments,
    stated_factors,
    t_quantile,
)

MIN_LAUNCHES = 3
"""A side. Two leave 1 to 2 degrees of freedom: at 99 % t is 10 to 64."""
MAX_TIMES = 100
"""An answer that needs over this many times the blocks so far is not promised."""
LARGEST_LOG = 700.0
"""e to this is near the largest double."""

STATED = "t-interval of block differences; the tail towards the threshold that decided, over √looks"
DECIDING = "confidence sequence of block differences (t, normal prior on the effect): valid however often one looks"
WELCH = "Welch interval on log tok/s of launches, fixed sample: valid for one look"
CALIBRATED = "t-interval on log tok/s with the calibrated spread of launches, fixed sample: valid for one look"
UNREPLICATED = "none: nothing shows how much launches differ"
NOT_INTERLEAVED = "these runs were not interleaved: what changed on the machine between them is part of the difference"

_CROSSED = {Verdict.REGRESSION: End.HIGH, Verdict.NO_REGRESSION: End.LOW}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """An interval of a difference of logs."""

    low: float
    high: float


EVERYTHING = _Span(low=-math.inf, high=math.inf)


def compare_blocks(blocks: Sequence[Block], rule: DecisionRule, *, spent_s: float) -> Comparison:
    """
    Judge the blocks so far. It may be called after each block, and any rule may stop on what it says.

    Args:
        blocks: All of one method. Those with disturbances, or without a finite difference, are left out and counted.
        rule: How sure to be. The stated interval stands at the lower of its level and 1 − alpha.
        spent_s: Measuring time so far, in seconds, with what was left out.

    Returns:
        Effects are ratios, exp(mean difference) − 1; NaN where no block counts.

    Assumes: each block's order was drawn by a fair coin, and `Block.order` says how it fell.
    Calibration: tests/flashprof/stats/test_compare_calibration.py.
    """
    assert len({block.method for block in blocks}) <= 1, "hot and cold blocks answer different questions"
    counted = [block for block in blocks if not block.disturbances and math.isfinite(block.difference)]
    data = moments([block.difference for block in counted])
    deciding = EVERYTHING if _same_order(counted) else _around(data.mean, anytime_half_width(data, alpha=rule.alpha))
    verdict = _verdict(deciding, rule)
    num_more = _num_more_blocks(data, rule) if verdict is Verdict.INCONCLUSIVE else None
    return Comparison(
        method=blocks[0].method if blocks else Method.HOT,
        base_tok_per_s=_geometric_mean([block.base_log_tok_per_s for block in counted]),
        effect=_interval(data, _stated(data, rule, verdict), _stated_level(rule), STATED),
        deciding=_interval(data, deciding, 1 - rule.alpha, DECIDING),
        verdict=verdict,
        reason=_reason(deciding, verdict, rule) or _open_reason(counted, deciding, rule, num_more),
        num_launches=len({run_id for block in counted for run_id in block.launches}),
        num_blocks=len(counted),
        num_windows=sum(block.num_windows for block in counted),
        num_left_out=len(blocks) - len(counted),
        spent_s=spent_s,
        # What is left out costs time too: its share is expected of the blocks to come.
        to_resolve_s=None if num_more is None else num_more * sum(block.length_s for block in blocks) / len(counted),
        rule=rule,
        notes=_not_finite(blocks),
    )


def compare_existing(
    base: Sequence[float],
    candidate: Sequence[float],
    rule: DecisionRule,
    *,
    launch_sd: float | None,
    launch_freedom: int,
) -> Comparison:
    """
    Judge launches that were measured each for itself, in one look.

    Args:
        base: log tok/s, one value a launch; those that are not finite are left out and counted.
        candidate: The same of the other arm.
        rule: As for blocks.
        launch_sd: Spread of log tok/s between launches of one cell, from calibration; used where a side has fewer
            than 3 launches, since the arms' own spread is of the right cell and day.
        launch_freedom: Degrees of freedom of *launch_sd*.

    Returns:
        Inconclusive where neither the launches nor a calibration show how much launches differ.

    Assumes: launches are independent, and nothing but the arm changed between them.
    """
    sides = [[value for value in side if math.isfinite(value)] for side in (base, candidate)]
    num = sum(map(len, sides))
    mean = fmean(sides[1]) - fmean(sides[0]) if all(sides) else math.nan
    data = Moments(num=num, mean=mean, sd=math.inf)
    error, freedom, method = _launch_error(sides, launch_sd, launch_freedom)
    stated, deciding = (
        _around(mean, t_quantile(freedom, tail=(1 - level) / 2) * error)
        for level in (_stated_level(rule), 1 - rule.alpha)
    )
    verdict = _verdict(deciding, rule)
    counts = f"{len(sides[0])} and {len(sides[1])} launches"
    too_few = f"{counts} do not show how much launches differ: {MIN_LAUNCHES} a side do, or `flashprof calibrate`"
    return Comparison(
        method=Method.EXISTING,
        base_tok_per_s=_geometric_mean(sides[0]),
        effect=_interval(data, stated, _stated_level(rule), method),
        deciding=_interval(data, deciding, 1 - rule.alpha, method),
        verdict=verdict,
        reason=_reason(deciding, verdict, rule) or (_range(deciding, rule) if math.isfinite(error) else too_few),
        num_launches=num,
        num_blocks=0,
        num_windows=0,
        num_left_out=len(base) + len(candidate) - num,
        spent_s=0.0,
        to_resolve_s=None,
        rule=rule,
        notes=(NOT_INTERLEAVED,),
    )


def _same_order(blocks: Sequence[Block]) -> bool:
    return len({block.order[0] for block in blocks}) < 2


def _verdict(deciding: _Span, rule: DecisionRule) -> Verdict:
    if deciding.low > math.log1p(-rule.tolerance):
        return Verdict.NO_REGRESSION
    return Verdict.REGRESSION if deciding.high < 0 else Verdict.INCONCLUSIVE


def _stated_level(rule: DecisionRule) -> float:
    return min(rule.level, 1 - rule.alpha)


def _stated(data: Moments, rule: DecisionRule, verdict: Verdict) -> _Span:
    if data.num < 2:
        return EVERYTHING
    crossed = _CROSSED.get(verdict)
    below, above = stated_factors(data.num, level=_stated_level(rule), alpha=rule.alpha, crossed=crossed)
    return _Span(low=data.mean - below * data.sd, high=data.mean + above * data.sd)


def _num_more_blocks(data: Moments, rule: DecisionRule) -> int | None:
    """Blocks until the deciding interval is clear if mean and sd stay; None where that cannot be told."""
    if data.num < 2:
        return None
    needed = max(-data.mean, data.mean - math.log1p(-rule.tolerance))
    numbers = range(data.num + 1, data.num * (1 + MAX_TIMES) + 1)
    index = bisect_left(numbers, True, key=lambda num: anytime_factor(num, alpha=rule.alpha) * data.sd < needed)
    return index + 1 if index < len(numbers) else None


def _launch_error(
    sides: Sequence[Sequence[float]], launch_sd: float | None, launch_freedom: int
) -> tuple[float, float, str]:
    """Standard error of the difference of means, its degrees of freedom, and where it comes from."""
    if min(map(len, sides)) >= MIN_LAUNCHES:
        squared = [variance(side) / len(side) for side in sides]
        below = sum(error**2 / (len(side) - 1) for error, side in zip(squared, sides, strict=True))
        freedom = sum(squared) ** 2 / below if below > 0 else float(sum(map(len, sides)) - 2)
        return math.sqrt(sum(squared)), freedom, WELCH
    if all(sides) and launch_sd is not None and launch_freedom >= 1:
        return launch_sd * math.sqrt(sum(1 / len(side) for side in sides)), float(launch_freedom), CALIBRATED
    return math.inf, 1.0, UNREPLICATED


def _reason(deciding: _Span, verdict: Verdict, rule: DecisionRule) -> str:
    """Why it is decided; empty where it is not."""
    sure = f"{_percent(1 - rule.alpha)} sure"
    if verdict is Verdict.REGRESSION:
        return f"slower by at least {_size(deciding.high)}, {sure}"
    if verdict is Verdict.INCONCLUSIVE:
        return ""
    if deciding.low > 0:
        return f"faster by at least {_size(deciding.low)}, {sure}"
    return f"slower by at most {_size(deciding.low)}, {sure}, and {_percent(rule.tolerance)} is tolerated"


def _open_reason(blocks: Sequence[Block], deciding: _Span, rule: DecisionRule, num_more: int | None) -> str:
    """Why blocks do not decide."""
    num, least = len(blocks), fewest(rule.alpha)
    if num < least:
        counts = "1 block counts" if num == 1 else f"{num} blocks count"
        return f"{counts}: {least} are the least that can decide, {_percent(1 - rule.alpha)} sure"
    if _same_order(blocks):
        return f"all {num} blocks ran {blocks[0].order}: drift would look the same as a difference until one is turned"
    if num_more is None:
        return f"{_range(deciding, rule)}; at this noise {MAX_TIMES} times the blocks would not tell"
    blocks_more = f"{num_more} more block{'s' if num_more > 1 else ''}"
    return f"{_range(deciding, rule)}; about {blocks_more} would tell if what was seen stays"


def _range(deciding: _Span, rule: DecisionRule) -> str:
    ends = f"between {_change(deciding.low)} and {_change(deciding.high)}, {_percent(1 - rule.alpha)} sure"
    return f"{ends}: neither slower for certain, nor at most the tolerated {_percent(rule.tolerance)}"


def _change(log_ratio: float) -> str:
    return f"{_size(log_ratio)} {'slower' if log_ratio < 0 else 'faster'}"


def _size(log_ratio: float) -> str:
    return _percent(abs(_change_of(log_ratio)))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _not_finite(blocks: Sequence[Block]) -> tuple[str, ...]:
    """A block without disturbances that is left out says why nowhere else."""
    num = sum(not block.disturbances and not math.isfinite(block.difference) for block in blocks)
    return (f"left out for having no finite difference: {num} of {len(blocks)} blocks",) if num else ()


def _around(mean: float, half: float) -> _Span:
    return _Span(low=mean - half, high=mean + half) if math.isfinite(half) else EVERYTHING


def _interval(data: Moments, span: _Span, level: float, method: str) -> Interval:
    estimate, low, high = map(_change_of, (data.mean, span.low, span.high))
    return Interval(estimate=estimate, low=low, high=high, level=level, num_samples=data.num, method=method)


def _geometric_mean(logs: Sequence[float]) -> float:
    if not logs:
        return math.nan
    mean = fmean(logs)
    # Not 1 + expm1: a metric of which less is better has logarithms of 1 / bytes, and at -28 four digits are left.
    return math.inf if mean > LARGEST_LOG else math.exp(mean)


def _change_of(log_ratio: float) -> float:
    """Relative. It has the sign of its logarithm, however small: the verdict is by logarithms."""
    return math.inf if log_ratio > LARGEST_LOG else math.expm1(log_ratio)
