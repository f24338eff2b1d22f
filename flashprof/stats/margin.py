"""
From blocks to a gate's verdict: is a metric worse, and by more than it may be? Pure.

    fails    shown to be worse at all, by an estimate above the threshold
    passes   shown to be worse by less than the threshold, or not worse
    open     anything else

A change that costs nothing fails only if an interval that holds the truth after every block at once excludes it, and
the estimate is above the threshold besides: rarer than alpha. Any metric may fail a gate, so alpha is shared among
them, most of it for the first (Bonferroni with weights, which needs no independence). A gate passes only if all
metrics do: each is then judged at the whole of alpha, and no sharing is needed (an intersection-union test).

What costs more than nothing and less than the threshold may fail where the estimate happens to be above it: of 300
simulated changes that cost 1 % with 3 % allowed, 1 did. What costs just the threshold fails in two of three.

Calibration: tests/flashprof/stats/test_margin.py.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flashprof.contracts.comparison import Block, Comparison, DecisionRule, Verdict
from flashprof.contracts.gate import EQUAL_PACE, TOK_PER_S, MetricVerdict, Threshold
from flashprof.stats.compare import MAX_TIMES, MIN_LAUNCHES, compare_blocks, compare_existing
from flashprof.stats.sequential import anytime_factor, moments

FIRST_SHARE = 0.8
"""
Of alpha, for the first metric where there are others: beside three, 5 % at 2 % noise takes at most one pair more.
Halved between tok/s and tok/s at equal pace it costs as much again, and spares two pairs at 3 % noise of the latter.
"""
MORE_LAUNCHES = "more launches of either would tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginRule:
    """How sure to be of each metric."""

    alpha: float
    """Of all metrics together."""
    budget_s: float
    num_metrics: int = 1
    num_first: int = 1
    """Metrics that share the part of the first: tok/s, and tok/s at equal pace."""

    def share(self, place: int) -> float:
        """Of alpha, for a false failure of the metric at *place*, from 0."""
        num_others = self.num_metrics - self.num_first
        of_first = FIRST_SHARE if num_others else 1.0
        return self.alpha * (of_first / self.num_first if place < self.num_first else (1 - FIRST_SHARE) / num_others)


def is_more_worse(metric: str) -> bool:
    """Whether more of it is worse: of seconds and bytes, and not of tok/s."""
    return metric not in (TOK_PER_S, EQUAL_PACE)


def tolerance(threshold: Threshold) -> float:
    """
    The threshold as a loss of what there should be much of.

    3 % more seconds a token are 2.9 % fewer tokens a second.
    """
    most = threshold.max_regression
    return most / (1 + most) if is_more_worse(threshold.metric) else most


def judge_metric(
    blocks: Sequence[Block], threshold: Threshold, rule: MarginRule, *, place: int, unit: str, spent_s: float
) -> MetricVerdict:
    """
    Judge one metric by the blocks so far; it may be called after each block.

    Args:
        blocks: Differences of the log of what there should be much of: of 1/x where more of x is worse. One without a
            finite difference is left out and counted.
        threshold: Of the metric.
        rule: Of the gate.
        place: Of the metric among the gate's, from 0.
        unit: Of the metric.
        spent_s: Measuring time so far, in seconds.

    Returns:
        Levels, change and comparison in the metric's own direction and unit: 0.05 is 5 % more seconds.
    """
    found = _judged(lambda asked: compare_blocks(blocks, asked, spent_s=spent_s), threshold, rule, place)
    if found.verdict is not Verdict.INCONCLUSIVE:
        return metric_verdict(found, threshold, unit)
    num_more = _num_more_blocks(blocks, found, rule)
    to_resolve_s = None if num_more is None else num_more * sum(block.length_s for block in blocks) / found.num_blocks
    reason = open_reason(found, threshold, _more_pairs(num_more))
    return metric_verdict(replace(found, reason=reason, to_resolve_s=to_resolve_s), threshold, unit)


def judge_launches(
    base: Sequence[float], head: Sequence[float], threshold: Threshold, rule: MarginRule, *, place: int, unit: str
) -> MetricVerdict:
    """
    Judge one metric by launches that were not interleaved; it may be called after each launch of head.

    Args:
        base: Logs of what there should be much of, one a launch.
        head: The same.
        threshold: Of the metric.
        rule: Of the gate.
        place: Of the metric among the gate's, from 0.
        unit: Of the metric.

    Assumes: what changed on the machine since base was measured is less than what launches differ by.
    """
    # Such an interval is valid for one look: look k has α/(k(k+1)), and all looks together have α.
    look = max(1, len(head) - MIN_LAUNCHES + 1)
    rule = replace(rule, alpha=rule.alpha / (look * (look + 1)))
    found = _judged(
        lambda asked: compare_existing(base, head, asked, launch_sd=None, launch_freedom=0),
        threshold,
        rule,
        place,
    )
    if found.verdict is Verdict.INCONCLUSIVE:
        found = replace(found, reason=open_reason(found, threshold, MORE_LAUNCHES))
    return metric_verdict(found, threshold, unit)


def is_failure(comparison: Comparison) -> bool:
    """Whether it is shown to be worse at all, and the estimate is above the tolerance."""
    return comparison.deciding.high < 0 and comparison.effect.estimate < -comparison.rule.tolerance


def metric_verdict(comparison: Comparison, threshold: Threshold, unit: str) -> MetricVerdict:
    """
    A judged comparison as a metric's verdict.

    Args:
        comparison: Of what there should be much of, with the gate's verdict and reason.
        threshold: Of the metric.
        unit: Of the metric.
    """
    found = _turned(comparison) if is_more_worse(threshold.metric) else comparison
    is_measured = math.isfinite(found.effect.estimate)
    return MetricVerdict(
        threshold=threshold,
        unit=unit,
        base=found.base_tok_per_s,
        head=found.base_tok_per_s * (1 + found.effect.estimate),
        change=found.effect if is_measured else None,
        verdict=found.verdict,
        reason=found.reason,
        comparison=found,
    )


def beside_the_whole(metrics: Sequence[MetricVerdict]) -> tuple[MetricVerdict, ...]:
    """
    The same, with a failure at equal pace left open where tok/s themselves are not worse so far.

    Where most of a step became faster, the rest is slower beside it: head is better, and must not fail for that.

    Args:
        metrics: That of tok/s first.
    """
    whole = metrics[0].change if metrics else None
    if whole is None or whole.estimate < 0:
        return tuple(metrics)
    reason = f"{metrics[0].threshold.metric} are not worse so far: parts of a step may be, beside others"
    return tuple(
        replace(metric, verdict=Verdict.INCONCLUSIVE, reason=f"{metric.reason}; but {reason}")
        if metric.threshold.metric == EQUAL_PACE and metric.verdict is Verdict.REGRESSION
        else metric
        for metric in metrics
    )


def gate_verdict(metrics: Sequence[MetricVerdict]) -> Verdict:
    """The worst of all; inconclusive without any. That at equal pace fails a gate, and keeps none from passing."""
    found = {
        metric.verdict
        for metric in metrics
        if metric.threshold.metric != EQUAL_PACE or metric.verdict is Verdict.REGRESSION
    }
    order = (Verdict.REGRESSION, Verdict.INCONCLUSIVE, Verdict.NO_REGRESSION)
    return next((verdict for verdict in order if verdict in found), Verdict.INCONCLUSIVE)


def pass_reason(comparison: Comparison, threshold: Threshold) -> str:
    """Why it is allowed."""
    most, sure = _loss(comparison.deciding.low, threshold), _sure(comparison)
    if most < 0:
        return f"better by at least {_percent(-most)}, {sure}"
    return f"worse by at most {_percent(most)}, {sure}; {_allowed(threshold)}"


def fail_reason(comparison: Comparison, threshold: Threshold) -> str:
    """Why it is not."""
    worse, least = (_loss(end, threshold) for end in (comparison.effect.estimate, comparison.deciding.high))
    return f"worse by {_percent(worse)}, by at least {_percent(least)} ({_sure(comparison)}); {_allowed(threshold)}"


def open_reason(comparison: Comparison, threshold: Threshold, more: str) -> str:
    """
    Why it cannot be told yet.

    Args:
        comparison: As it stands.
        threshold: Of the metric.
        more: What it would take.
    """
    low, high = comparison.deciding.low, comparison.deciding.high
    if not math.isfinite(high) or low <= -1:
        return comparison.reason
    ends = " and ".join(_signed(_loss(end, threshold)) for end in (low, high))
    return f"between {ends}, {_sure(comparison)}; {_allowed(threshold)}; {more}"


def _judged(
    compare: Callable[[DecisionRule], Comparison], threshold: Threshold, rule: MarginRule, place: int
) -> Comparison:
    """Of what there should be much of."""
    asked = DecisionRule(alpha=rule.alpha, tolerance=tolerance(threshold), budget_s=rule.budget_s)
    found = compare(asked)
    if found.verdict is Verdict.NO_REGRESSION:
        return replace(found, reason=pass_reason(found, threshold))
    found = compare(replace(asked, alpha=rule.share(place)))
    if is_failure(found):
        return replace(found, verdict=Verdict.REGRESSION, reason=fail_reason(found, threshold), to_resolve_s=None)
    return replace(found, verdict=Verdict.INCONCLUSIVE)


def _num_more_blocks(blocks: Sequence[Block], found: Comparison, rule: MarginRule) -> int | None:
    """Blocks until the metric is decided, if mean and sd stay; None where that cannot be told."""
    data = moments([block.difference for block in blocks if not block.disturbances and math.isfinite(block.difference)])
    if data.num < 2:
        return None
    floor = math.log1p(-found.rule.tolerance)
    is_over = data.mean < floor
    needed, alpha = (-data.mean, found.rule.alpha) if is_over else (data.mean - floor, rule.alpha)
    numbers = range(data.num + 1, data.num * (1 + MAX_TIMES) + 1)
    index = bisect_left(numbers, True, key=lambda num: anytime_factor(num, alpha=alpha) * data.sd < needed)
    return index + 1 if index < len(numbers) else None


def _turned(comparison: Comparison) -> Comparison:
    """Of x, from that of 1/x."""
    effect, deciding = (
        replace(item, estimate=_inverse(item.estimate), low=_inverse(item.high), high=_inverse(item.low))
        for item in (comparison.effect, comparison.deciding)
    )
    return replace(comparison, base_tok_per_s=1 / comparison.base_tok_per_s, effect=effect, deciding=deciding)


def _inverse(change: float) -> float:
    return 1 / (1 + change) - 1 if change > -1 else math.inf


def _loss(effect: float, threshold: Threshold) -> float:
    """How much worse the metric is, in its own direction: 0.03 for 3 % fewer tok/s, or 3 % more seconds."""
    return _inverse(effect) if is_more_worse(threshold.metric) else -effect


def _more_pairs(num_more: int | None) -> str:
    if num_more is None:
        return f"at this noise {MAX_TIMES} times the pairs would not tell"
    return f"about {num_more} more pair{'s' * (num_more != 1)} would tell if what was seen stays"


def _sure(comparison: Comparison) -> str:
    return f"{100 * (1 - comparison.rule.alpha):.3g} % sure"


def _allowed(threshold: Threshold) -> str:
    return f"{_percent(threshold.max_regression)} is allowed"


def _signed(loss: float) -> str:
    return f"{_percent(abs(loss))} {'worse' if loss > 0 else 'better'}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if abs(share) < 0.1 else f"{100 * share:.3g} %"
