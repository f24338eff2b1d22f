"""Runs of one cell over time, whatever the commit, and where another level of tok/s begins."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from flashprof.contracts.cell import Cell
from flashprof.contracts.results import Interval
from flashprof.contracts.site import RunView, Trend, TrendPoint
from flashprof.stats.change_points import change_points

FREE_SECTIONS = ("source",)
"""What may differ between the runs of a trend: it is what a trend is about."""
OWN_VERSION = "versions.flashprof"
"""FlashProf's own version comes with each commit of this repository, and measures the same."""
MAX_NAMED = 3
"""Facts that tell two cells of one name apart."""
NORMAL_95 = 1.96
SEED = 6
"""The same folder gives the same page."""


def find_trends(runs: Sequence[RunView]) -> tuple[Trend, ...]:
    """
    A trend for each cell with at least two runs of their own, the longest first.

    Launches of comparisons are no points: their cells take turns, and their windows may be of another length.
    """
    cells: dict[str, list[RunView]] = defaultdict(list)
    for run in runs:
        if _is_point(run):
            cells[_cell(run).hash].append(run)
    groups = [sorted(group, key=lambda run: run.started) for group in cells.values() if len(group) > 1]
    names = _names([group[0] for group in groups])
    trends = [_trend(name, group) for name, group in zip(names, groups, strict=True)]
    return tuple(sorted(trends, key=lambda trend: (-len(trend.points), trend.cell)))


def _is_point(run: RunView) -> bool:
    rate = run.summary.tok_per_s
    is_alone = not run.is_part_of and run.summary.outcome.is_measurement
    # Without its facts nothing says of which cell it is, without its time nothing where it stands.
    return is_alone and bool(run.facts and run.started) and rate is not None and 0 < rate.estimate < math.inf


def _cell(run: RunView) -> Cell:
    facts = {name: text for name, text in run.facts.items() if not name.startswith(OWN_VERSION)}
    return Cell(facts).without(*FREE_SECTIONS)


def _trend(name: str, runs: Sequence[RunView]) -> Trend:
    rates = [run.summary.tok_per_s for run in runs if run.summary.tok_per_s]
    found = change_points(
        [math.log(rate.estimate) for rate in rates], [_sd(rate) for rate in rates], np.random.default_rng(SEED)
    )
    points = tuple(
        TrendPoint(
            run_id=run.summary.run_id,
            started=run.started,
            tok_per_s=rate,
            commit=run.facts.get("source.commit", ""),
        )
        for run, rate in zip(runs, rates, strict=True)
    )
    return Trend(cell=name, points=points, change_points=found)


def _sd(rate: Interval) -> float:
    """Of the estimate, as a share of it; infinite ends say nothing."""
    return (rate.high - rate.low) / (2 * NORMAL_95 * rate.estimate)


def _names(runs: Sequence[RunView]) -> list[str]:
    """What a person calls each cell; of those with one name, what tells them from the first one, too."""
    firsts: dict[str, RunView] = {}
    names = []
    for run in runs:
        plain = _name(run.summary.cell)
        first = firsts.setdefault(plain, run)
        unlike = [str(item) for item in _cell(first).differences(_cell(run))][:MAX_NAMED]
        names.append(f"{plain} ({'; '.join(unlike)})" if unlike else plain)
    return names


def _name(cell: Mapping[str, object]) -> str:
    shown = ("preset", "command", "topology", "toggles", "device", "machine")
    return " · ".join(str(cell[name]) for name in shown if cell.get(name)) or "one cell"
