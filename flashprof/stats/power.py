"""
How often a comparison errs, and how small a slow-down it finds in how many minutes. Pure.

Both by doing it: the comparison's own judge looks after every block, as in `flashprof compare`, at data that were
drawn from A/A blocks of this machine (`stats/redraw.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from flashprof.contracts.calibration import LEVEL, PowerPoint, Share, TrialSummary
from flashprof.contracts.comparison import Block, Comparison, DecisionRule, Verdict
from flashprof.stats.redraw import planted

POWER = 0.9
MIN_BLOCKS = 2
EVERY_LOOK = 1.0
SPARSE_LOOKS = 1.05
"""Power may be judged at every look until block 20, then at each 5 % more blocks: later by 5 % at most, and 10 times
faster to compute for 600 blocks."""


class Judge(Protocol):
    """What turns blocks into a comparison: `stats.compare.compare_blocks`."""

    def __call__(self, blocks: Sequence[Block], rule: DecisionRule, *, spent_s: float) -> Comparison:
        """Judge the blocks so far."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One comparison, as far as it went."""

    comparison: Comparison
    spent_s: float

    @property
    def is_clear(self) -> bool:
        """Whether it would have stopped."""
        return self.comparison.verdict is not Verdict.INCONCLUSIVE

    @property
    def is_alarm(self) -> bool:
        """Whether it claimed a difference: a regression, or a gain."""
        return self.comparison.verdict is Verdict.REGRESSION or self.comparison.deciding.low > 0

    def covers(self, effect: float) -> bool:
        """Whether the stated interval holds the relative change *effect*."""
        return self.comparison.effect.low <= effect <= self.comparison.effect.high


def rehearse(
    blocks: Sequence[Block], judge: Judge, rule: DecisionRule, *, shift: float = 0.0, look_ratio: float = EVERY_LOOK
) -> Trial:
    """
    Run one comparison over recorded blocks: look, and stop as soon as it is clear or the blocks end.

    Args:
        blocks: In the order in which they would be measured; two or more.
        judge: Sees the blocks so far at each look.
        rule: When it is clear.
        shift: Planted: added to the candidate's log tok/s.
        look_ratio: 1 looks after every block; 1.05 waits for 5 % more blocks.
    """
    trial = None
    seen: list[Block] = []
    spent_s = 0.0
    for num_blocks in _looks(len(blocks), look_ratio):
        for block in blocks[len(seen) : num_blocks]:
            seen.append(planted(block, shift) if shift else block)
            spent_s += block.length_s
        trial = Trial(comparison=judge(seen, rule, spent_s=spent_s), spent_s=spent_s)
        if trial.is_clear:
            break
    assert trial is not None, "a comparison needs two blocks"
    return trial


def judge_errors(
    name: str, comparisons: Iterable[Sequence[Block]], judge: Judge, rule: DecisionRule, *, note: str
) -> TrialSummary | None:
    """
    Count false alarms, and how often the stated interval holds the truth, over A/A comparisons.

    Returns:
        None where there are no comparisons of two blocks.
    """
    kept = [blocks for blocks in comparisons if len(blocks) >= MIN_BLOCKS]
    if not kept:
        return None
    trials = [rehearse(blocks, judge, rule) for blocks in kept]
    return TrialSummary(
        name=name,
        false_alarms=share_of(sum(trial.is_alarm for trial in trials), len(trials)),
        coverage=share_of(sum(trial.covers(0.0) for trial in trials), len(trials)),
        num_blocks=max(map(len, kept)),
        note=note,
    )


def find_power(
    comparisons: Iterable[Sequence[Block]], effect: float, judge: Judge, rule: DecisionRule, *, start_s: float
) -> PowerPoint:
    """
    Plant a slow-down and see when it is called a regression.

    Args:
        comparisons: A/A data.
        effect: 0.05 for a candidate that is 5 % slower.
        judge: Sees the blocks so far.
        rule: When it is clear.
        start_s: What passes before the first block.
    """
    shift = math.log1p(-effect)
    trials = [
        rehearse(blocks, judge, rule, shift=shift, look_ratio=SPARSE_LOOKS)
        for blocks in comparisons
        if len(blocks) >= MIN_BLOCKS
    ]
    found_s = [trial.spent_s for trial in trials if trial.comparison.verdict is Verdict.REGRESSION]
    return PowerPoint(
        method=str(trials[0].comparison.method) if trials else "",
        effect=effect,
        num_trials=len(trials),
        minutes=tuple(sorted((start_s + taken_s) / 60 for taken_s in found_s)),
        coverage=sum(trial.covers(-effect) for trial in trials) / len(trials) if trials else 0.0,
    )


def clear_share(comparisons: Iterable[Sequence[Block]], judge: Judge, rule: DecisionRule) -> float:
    """Share of comparisons that became clear before their blocks ended."""
    trials = [rehearse(blocks, judge, rule, look_ratio=SPARSE_LOOKS) for blocks in comparisons]
    return sum(trial.is_clear for trial in trials) / len(trials) if trials else 0.0


def smallest_effect(points: Sequence[PowerPoint], minutes: float, *, power: float = POWER) -> float | None:
    """
    The smallest slow-down that is found with *power* within *minutes*.

    Args:
        points: Of one method.
        minutes: All that may be spent.
        power: Share of trials that must have found it.

    Returns:
        Between two planted effects by a line in logarithms; None where not even the largest is found.
    """
    found: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda point: -point.effect):
        taken = point.minutes_for(power)
        if taken is None:
            break
        # A larger effect never takes longer; chance among the trials may say otherwise.
        found.append((point.effect, max([taken, *(earlier for _, earlier in found)])))
    reached = [(effect, taken) for effect, taken in found if taken <= minutes]
    if not reached:
        return None
    effect, taken = reached[-1]
    if len(reached) == len(found):
        return effect
    smaller, later = found[len(reached)]
    part = math.log(minutes / taken) / math.log(later / taken)
    return math.exp(math.log(effect) + part * math.log(smaller / effect))


def share_of(count: int, total: int, *, level: float = LEVEL) -> Share:
    """A share with its exact interval (Clopper & Pearson, Biometrika 1934)."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return Share(count=count, total=total, low=low, high=high)


def _looks(num_blocks: int, ratio: float) -> Iterator[int]:
    at = MIN_BLOCKS
    while at < num_blocks:
        yield at
        at = max(at + 1, math.floor(at * ratio))
    yield num_blocks
