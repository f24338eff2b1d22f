"""What a bisect believes, as a figure for a paper or a pull request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashprof.contracts.search import Belief, SearchKind, SearchResult
from flashprof.report import bisect_sentences as sentences
from flashprof.report import figures
from flashprof.report.figure_style import BLUE, NOISE, caption, new_figure, styled, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_IN = 0.27
MAX_NAME = 56
MAX_END = 44


def figure_posterior(result: SearchResult) -> Figure | None:
    """Hypotheses with their probabilities, the likeliest on top; None where there are none."""
    beliefs = [belief for belief in result.beliefs if math.isfinite(belief.probability)]
    if not beliefs:
        return None
    with styled():
        figure, axes = new_figure(0.9 + ROW_IN * len(beliefs))
        shares = [100 * min(max(belief.probability, 0.0), 1.0) for belief in beliefs]
        axes.barh(range(len(beliefs)), shares, height=0.6, color=[BLUE, *[NOISE] * (len(beliefs) - 1)])
        for row, belief in enumerate(beliefs):
            label = figures.percent(belief.probability)
            axes.annotate(label, (shares[row], row), xytext=(4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(beliefs)), [_name(result, belief) for belief in beliefs])
        axes.set_ylim(len(beliefs) - 0.5, -0.5)
        axes.set_xlim(0, 112)
        axes.set_xticks(range(0, 101, 25))
        axes.tick_params(axis="y", length=0)
        title = " → ".join(text(end, MAX_END) for end in sentences.ends(result))
        caption(figure, title, "probability that exactly these matter, %")
    return figure


def _name(result: SearchResult, belief: Belief) -> str:
    """Each cause keeps its share of the room: of two commits, the second is the one that differs from line to line."""
    if result.kind is not SearchKind.COMMITS or not belief.causes:
        return text(sentences.belief_title(result, belief))
    length = MAX_NAME // len(belief.causes)
    return " + ".join(text(sentences.cause_title(result, cause), length) for cause in belief.causes)
