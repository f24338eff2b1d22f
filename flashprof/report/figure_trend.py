"""Tok/s of one cell over time with its steps, as a figure for a paper or a pull request."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from flashprof.contracts.site import Trend, TrendPoint
from flashprof.report.compare_sentences import change
from flashprof.report.figure_style import BLUE, FASTER, INK, SLOWER, caption, new_figure, styled, text
from flashprof.report.site_text import moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT_IN = 2.7
MAX_LABELS = 6
COMMIT_DIGITS = 7


def figure_trend(trend: Trend) -> Figure | None:
    """Runs by time, evenly spaced, with intervals, levels and steps; None where no point is a number."""
    kept = [(place, point) for place, point in enumerate(trend.points) if _is_drawn(point)]
    if not kept:
        return None
    points = [point for _, point in kept]
    # Of the points that are left; two changes at one place are one.
    changes = sorted({sum(place < start for place, _ in kept) for start in trend.change_points} - {0, len(kept)})
    with styled():
        figure, axes = new_figure(HEIGHT_IN)
        _draw_points(axes, points)
        _draw_levels(axes, points, changes)
        _label(axes, points)
        caption(figure, text(trend.cell), "runs, the oldest first; bars: intervals, dashed: levels")
    return figure


def _is_drawn(point: TrendPoint) -> bool:
    return math.isfinite(point.tok_per_s.estimate) and point.tok_per_s.estimate > 0


def _draw_points(axes: Axes, points: list[TrendPoint]) -> None:
    for place, point in enumerate(points):
        rate = point.tok_per_s
        if math.isfinite(rate.low) and math.isfinite(rate.high):
            axes.plot([place, place], [rate.low, rate.high], color=BLUE, alpha=0.5, linewidth=1.5)
    axes.plot([point.tok_per_s.estimate for point in points], "o", color=BLUE, markersize=4)
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}" if rate >= 100 else f"{rate:g}")
    axes.set_ylabel("tok/s")
    axes.grid(axis="y", color="#dde2e7", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_levels(axes: Axes, points: list[TrendPoint], changes: list[int]) -> None:
    bounds = [0, *changes, len(points)]
    means = [fmean(point.tok_per_s.estimate for point in points[start:end]) for start, end in pairwise(bounds)]
    for (start, end), mean in zip(pairwise(bounds), means, strict=True):
        axes.plot([start - 0.4, end - 0.6], [mean, mean], color=INK, linewidth=0.8, linestyle="--")
    for at, (before, after) in zip(changes, pairwise(means), strict=True):
        color = SLOWER if after < before else FASTER
        axes.axvline(at - 0.5, color=color, linewidth=1)
        is_late = at > len(points) / 2
        axes.annotate(
            f"{change(after / before - 1)} %",
            (at - 0.5, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if is_late else 3, -8),
            textcoords="offset points",
            ha="right" if is_late else "left",
            color=color,
            fontweight="bold",
        )


def _label(axes: Axes, points: list[TrendPoint]) -> None:
    step = max(1, math.ceil(len(points) / MAX_LABELS))
    places = range(0, len(points), step)
    labels = [f"{moment(points[at].started).text[:10]}\n{points[at].commit[:COMMIT_DIGITS]}" for at in places]
    axes.set_xticks(list(places), labels, fontsize=7.5)
    axes.set_xlim(-0.6, len(points) - 0.4)
