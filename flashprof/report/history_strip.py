"""A series drawn one row a run, or a few, below the other: tok/s with intervals, and where levels begin. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from flashprof.contracts.history import HistoryLaunch, Series
from flashprof.report import figures
from flashprof.report.compare_strip import Marks
from flashprof.report.site_text import moment
from flashprof.report.strip_axis import Axis

MAX_ROWS = 24
"""More runs than this share rows: a screenful is looked at, a longer list is scrolled past."""
NORMAL_95 = 1.96
COMMIT_DIGITS = 7
MIN_REACH = 0.005
"""Of the axis, either way of its middle: runs that are all the same are no picture of noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StripRow:
    """One run, or some that follow each other on one level."""

    when: str
    commit: str
    """Of the last of them."""
    count: str
    """How many they are; empty for one."""
    rate: str
    """Their geometric mean, tok/s."""
    drawing: str
    is_change: bool
    """Another level begins with it."""


def strip_rows(series: Series, *, width: int, marks: Marks) -> list[StripRow]:
    """
    Draw each run as a point with its own interval on one axis of log tok/s; runs that share a row, as their span.

    Args:
        series: Its launches, the oldest first; no row spans a change.
        width: Columns of the drawing.
        marks: Characters to draw with; `zero` marks the baseline.
    """
    axis, baseline = _axis(series, width), math.log(series.baseline.tok_per_s.estimate)
    starts = {change.index for change in series.changes}
    rows = []
    for start, end in pairwise(_bounds(len(series.launches), starts)):
        group = series.launches[start:end]
        rates = [launch.log_tok_per_s or 0.0 for launch in group]
        middle = sum(rates) / len(rates)
        half = NORMAL_95 * (group[0].error or 0.0) if len(group) == 1 else 0.0
        rows.append(
            StripRow(
                when=moment(group[0].started).text,
                commit=group[-1].commit[:COMMIT_DIGITS],
                count="" if len(group) == 1 else f"{len(group)}×",
                rate=figures.rate(math.exp(middle)),
                drawing=_draw((min(rates) - half, middle, max(rates) + half), baseline, axis, marks),
                is_change=start in starts,
            )
        )
    return rows


def scale(series: Series, *, width: int) -> str:
    """The axis' two ends in tok/s, written at its two ends."""
    axis = _axis(series, width)
    low, high = figures.rate(math.exp(axis.low)), figures.rate(math.exp(axis.high))
    return low + high.rjust(max(width - len(low), len(high) + 1))


def _bounds(num: int, starts: set[int]) -> list[int]:
    """Where rows begin, and the end: levels are cut into pieces of about the same length."""
    edges = [0, *sorted(starts - {0}), num]
    most = max(1, math.ceil(num / max(1, MAX_ROWS - len(edges) + 2)))
    inner = {start + step for start, end in pairwise(edges) for step in range(0, end - start, most)}
    return sorted({*inner, num})


def _axis(series: Series, width: int) -> Axis:
    rates = _rates(series.launches)
    low, high = min(rates), max(rates)
    own = median(NORMAL_95 * (launch.error or 0.0) for launch in series.launches)
    # Wide intervals are cut off at the ends, but for the usual one.
    room = max(MIN_REACH, (high - low) / 8, own)
    return Axis(low - room, high + room, width)


def _rates(launches: Sequence[HistoryLaunch]) -> list[float]:
    return [launch.log_tok_per_s or 0.0 for launch in launches]


def _draw(span: tuple[float, float, float], baseline: float, axis: Axis, marks: Marks) -> str:
    low, middle, high = span
    cells = [" "] * axis.width
    if axis.low <= baseline <= axis.high:
        cells[axis.column(baseline)] = marks.zero
    for column in range(axis.column(low), axis.column(high) + 1):
        cells[column] = marks.spread
    cells[axis.column(middle)] = marks.point
    return "".join(cells).rstrip()
