"""
Two switches of one cause judged together: alone in the good cell, and back in the bad one. Pure.

Where launches take minutes, four pairs for each switch take hours. If the cause costs about the same in both places,
all pairs are samples of one difference, and four of both together can decide. That it does is checked: each switch must
show it by itself at the stated level, with the scatter that all pairs have about the means of their own switch. Where a
cause acts in one place only, its pairs lie around two means: their common scatter is then large, and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from flashprof.contracts.comparison import Block, Comparison, DecisionRule, Verdict
from flashprof.contracts.results import Interval
from flashprof.stats.compare import compare_blocks
from flashprof.stats.sequential import t_quantile

POOLED = "t-interval of this switch's pairs, with the scatter of both switches' pairs"


def judge_together(sides: Sequence[Sequence[Block]], rule: DecisionRule) -> tuple[Comparison, ...] | None:
    """
    Look at both switches at once; it may be done after each block.

    Args:
        sides: Blocks of each switch, in all of which the candidate has the cause.
        rule: How sure to be of the common difference. Of a cause that costs nothing in either place, this calls a
            regression at most in a share alpha of searches, ever.

    Returns:
        One comparison a switch, all regressions; None where the pairs do not show it, or the switches do not agree.
    """
    joint = compare_blocks([block for side in sides for block in side], rule, spent_s=0.0)
    counted = [[block for block in side if _counts(block)] for side in sides]
    if joint.verdict is not Verdict.REGRESSION or not all(counted):
        return None
    values = [[block.difference for block in side] for side in counted]
    freedom = sum(map(len, values)) - len(values)
    if freedom < 1:
        return None
    means = [math.fsum(side) / len(side) for side in values]
    squares = math.fsum((value - mean) ** 2 for side, mean in zip(values, means, strict=True) for value in side)
    pooled_sd = math.sqrt(squares / freedom)
    t = t_quantile(freedom, tail=(1 - joint.effect.level) / 2)
    halves = [t * pooled_sd / math.sqrt(len(side)) for side in values]
    if any(mean + half >= 0 for mean, half in zip(means, halves, strict=True)):
        return None
    return tuple(
        _side(blocks, joint, rule, mean=mean, half=half)
        for blocks, mean, half in zip(sides, means, halves, strict=True)
    )


def _counts(block: Block) -> bool:
    return not block.disturbances and math.isfinite(block.difference)


def _side(blocks: Sequence[Block], joint: Comparison, rule: DecisionRule, *, mean: float, half: float) -> Comparison:
    own = compare_blocks(blocks, rule, spent_s=sum(block.length_s for block in blocks))
    effect = Interval(
        estimate=math.expm1(mean),
        low=math.expm1(mean - half),
        high=math.expm1(mean + half),
        level=joint.effect.level,
        num_samples=own.num_blocks,
        method=POOLED,
    )
    return replace(
        own,
        effect=effect,
        deciding=joint.deciding,
        verdict=Verdict.REGRESSION,
        reason=f"{joint.reason}, by the {joint.num_blocks} pairs of both switches",
        to_resolve_s=None,
    )
