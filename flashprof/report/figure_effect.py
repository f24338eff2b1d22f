"""Changes of tok/s with their intervals, as a figure for a paper or a pull request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashprof.contracts.comparison import Verdict
from flashprof.report.effect_axis import LEAST, Effect
from flashprof.report.figure_style import BLUE, FASTER, INK, NOISE, SLOWER, caption, new_figure, styled, text
from flashprof.report.svg_axis import Axis, axis_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_IN = 0.4
_BELOW = "change of tok/s, %; thick: stated interval, thin: the one that judges, shaded: within the tolerance"
COLORS = {Verdict.REGRESSION: SLOWER, Verdict.NO_REGRESSION: FASTER, Verdict.INCONCLUSIVE: NOISE}


def figure_effect(effects: Sequence[Effect], *, tolerance: float, title: str) -> Figure | None:
    """
    Draw intervals below one another; None where no estimate is a number.

    Args:
        effects: As on the page.
        tolerance: A slow-down up to here is none: the shaded stretch.
        title: What is compared.
    """
    drawn = [effect for effect in effects if math.isfinite(effect.found.estimate)]
    if not drawn:
        return None
    axis = _axis(drawn, tolerance)
    with styled():
        figure, axes = new_figure(0.95 + ROW_IN * len(drawn))
        for row, effect in enumerate(drawn):
            _draw(axes, effect, row, axis)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.axvspan(-100 * tolerance, 0, color=BLUE, alpha=0.12, linewidth=0)
        axes.set_yticks(range(len(drawn)), [f"{text(effect.label)}\n{effect.text}" for effect in drawn])
        axes.set_ylim(len(drawn) - 0.5, -0.5)
        axes.set_xlim(100 * axis.low, 100 * axis.high)
        axes.tick_params(axis="y", length=0)
        caption(figure, text(title), _BELOW)
    return figure


def _axis(effects: Sequence[Effect], tolerance: float) -> Axis:
    ends = [end for effect in effects for end in (effect.found.low, effect.found.high)]
    wider = [end for effect in effects if effect.deciding for end in (effect.deciding.low, effect.deciding.high)]
    return axis_of([0.0, -tolerance, *(effect.found.estimate for effect in effects)], [*ends, *wider], least=LEAST)


def _draw(axes: Axes, effect: Effect, row: int, axis: Axis) -> None:
    wide = effect.deciding or effect.found
    for interval, width, color in ((wide, 1.0, INK), (effect.found, 5.0, COLORS[effect.verdict])):
        ends = [100 * min(max(end, axis.low), axis.high) for end in (interval.low, interval.high)]
        axes.plot(ends, [row, row], color=color, linewidth=width, solid_capstyle="butt")
    axes.plot([100 * effect.found.estimate], [row], marker="|", markersize=11, markeredgewidth=2, color=INK)
