"""
What a launch draws once, taken out of a difference of tok/s: the rest of the step as its clock. Pure.

Cores, neighbours and clocks make all phases of a launch slower alike; a change of the code mostly touches some. So the
pace of one launch against another is the typical change of its phases, and what tok/s changed by beside the pace is
the change of the code. As in a search's focus (ADR 13), but without choosing phases: the typical change is the median,
each phase weighing as much as its share of the step (ADR 15).

A phase that costs more draws the median a little its own way, so what is left is told too small: by up to a fifth where
phases differ by 3 % among themselves.

Launches of one commit on two shared cores, pairs in the order of their making: tok/s differ by 9.6 and 21 % (standard
deviation; 20 and 18 launches), beside the pace by 1.8 and 2.7 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

MIN_PHASES = 3
"""Of fewer the largest is the clock, and what it costs would be called the launch's pace."""


def pace_change(base: Mapping[str, float], head: Mapping[str, float]) -> float:
    """
    Log of head's time over base's in the typical phase: 0.1 where head's launch is 10 % slower throughout.

    Args:
        base: Own time a token of each phase that works.
        head: The same. Phases that only one of them has say nothing of the pace.

    Returns:
        The median of the phases' changes, weighted by their share of the step and interpolated; NaN where the two have
        fewer than `MIN_PHASES` in common.
    """
    common = [name for name in base if base[name] > 0 and head.get(name, 0.0) > 0]
    base_total, head_total = (sum(of[name] for name in common) for of in (base, head))
    changes = sorted(
        (math.log(head[name] / base[name]), base[name] / base_total + head[name] / head_total) for name in common
    )
    return _weighted_median(changes) if len(changes) >= MIN_PHASES else math.nan


def _weighted_median(weighted: list[tuple[float, float]]) -> float:
    """Of values with weights, sorted: linear between the middles of their stretches."""
    half = sum(weight for _, weight in weighted) / 2
    before, below = 0.0, weighted[0][0]
    middle_below = -math.inf
    for value, weight in weighted:
        middle = before + weight / 2
        if middle >= half:
            if math.isinf(middle_below):
                return value
            return below + (value - below) * (half - middle_below) / (middle - middle_below)
        before, below, middle_below = before + weight, value, middle
    return below
