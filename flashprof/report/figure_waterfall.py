"""A change part by part, as a figure for a paper or a pull request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashprof.contracts.localisation import Localisation
from flashprof.report import figures
from flashprof.report.compare_sentences import change
from flashprof.report.figure_style import FASTER, INK, NOISE, SLOWER, caption, new_figure, styled, text
from flashprof.report.localisation_sentences import rate_change
from flashprof.report.waterfall_steps import Step, Waterfall, waterfall

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = 0.62
ROW_IN = 0.27


def figure_waterfall(localisation: Localisation) -> Figure | None:
    """Time a token from base to candidate; None where the change is no number."""
    found = waterfall(localisation)
    if found is None:
        return None
    with styled():
        figure, axes = new_figure(0.95 + ROW_IN * (len(found.steps) + 2))
        scale_ns, unit = figures.time_unit(found.base_ns + found.total_ns)
        for row, step in enumerate(found.steps, start=1):
            _draw(axes, step, row, found, scale_ns)
        _draw_ends(axes, found, scale_ns)
        names = [found.base, *(step.name for step in found.steps), found.candidate]
        axes.set_yticks(range(len(names)), [text(name) for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        percent = change(rate_change(localisation).estimate)
        caption(
            figure,
            f"Where {percent} % tok/s went: {text(found.base)} → {text(found.candidate)}",
            f"{unit} a token; lines: 95 % intervals, hatched: waits, grey: within noise",
        )
    return figure


def _draw(axes: Axes, step: Step, row: int, found: Waterfall, scale_ns: float) -> None:
    color = NOISE if not step.is_clear else SLOWER if step.change_ns > 0 else FASTER
    start, end = ((found.base_ns + ns) / scale_ns for ns in (step.start_ns, step.end_ns))
    is_hatched = step.is_clear and step.is_wait
    axes.barh(
        row,
        end - start,
        left=start,
        height=BAR,
        color="white" if is_hatched else color,
        edgecolor=color,
        hatch="////" if is_hatched else None,
    )
    low, high = (
        (found.base_ns + min(max(ns, found.low_ns), found.high_ns)) / scale_ns for ns in (step.low_ns, step.high_ns)
    )
    if not math.isnan(step.low_ns):
        axes.plot([low, high], [row, row], color=INK, linewidth=1)
    label = f"{figures.signed(step.change_ns, figures.time_text)}, {figures.percent(step.share)}"
    right = max(start, end, *([high] if not math.isnan(step.low_ns) else []))
    axes.annotate(label, (right, row), xytext=(4, 0), textcoords="offset points", va="center", color=INK)


def _draw_ends(axes: Axes, found: Waterfall, scale_ns: float) -> None:
    last = len(found.steps) + 1
    ends = ((0, found.base_ns), (last, found.base_ns + found.total_ns))
    for row, ns in ends:
        axes.plot([ns / scale_ns] * 2, [row - BAR / 2, row + BAR / 2], color=INK, linewidth=2)
        axes.annotate(
            figures.time_text(ns),
            (ns / scale_ns, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontweight="bold",
        )
        axes.axvline(ns / scale_ns, color=NOISE, linewidth=0.7, linestyle=":", zorder=0)
    low, high = ((found.base_ns + ns) / scale_ns for ns in (found.low_ns, found.high_ns))
    # Room for the labels to the right of the bars.
    axes.set_xlim(low - 0.02 * (high - low), high + 0.3 * (high - low))
