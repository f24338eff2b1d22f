"""What all matplotlib figures share: one look, names that stay text, and files that are the same at every call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flashprof.report.site_text import clip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
WIDTH_IN = 6.6
"""A page of text, or two columns."""
BLUE, SLOWER, FASTER, NOISE, INK = "#0072b2", "#d55e00", "#009e73", "#b5bcc4", "#1a1e23"
"""After Okabe and Ito, as on the page."""
MAX_TEXT = 60
STYLE: Mapping[Any, Any] = MappingProxyType(
    {
        "font.family": "sans-serif",
        # Comes with matplotlib: a figure looks alike on any machine.
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 8.5,
        "axes.edgecolor": "#9aa3ad",
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 1.2,
        # A `$` in a name is no formula.
        "text.parse_math": False,
        "text.usetex": False,
        # The same ids in every SVG, and letters instead of outlines.
        "svg.hashsalt": "flashprof",
        "svg.fonttype": "none",
    }
)


@contextmanager
def styled() -> Iterator[None]:
    """The look; figures are made and written within it."""
    import matplotlib as mpl

    # Defaults first: what a user's own matplotlibrc says is for the user's figures.
    with mpl.rc_context(), warnings.catch_warnings():
        # A name in a script that the font does not have is drawn as boxes in the PNG; the SVG has its letters.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def new_figure(height_in: float) -> tuple[Figure, Axes]:
    """A figure of the usual width that belongs to no window, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    return figure, figure.add_subplot()


def caption(figure: Figure, title: str, below: str) -> None:
    """A title and what the axis counts, as wide as the figure: beside long names an axis has little room for them."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
    figure.supxlabel(below, fontsize=8)


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write `<stem>.svg` and `<stem>.png`, without dates or versions in them."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    with styled():
        figure.savefig(svg, metadata={"Date": None, "Creator": "FlashProf"})
        figure.savefig(png, dpi=DPI, metadata={"Software": "FlashProf"})
    return svg, png


def text(name: str, length: int = MAX_TEXT) -> str:
    """A name that fits, on one line, without what does not print."""
    line = "".join(char if char.isprintable() else " " for char in name[: 4 * length])
    return clip(" ".join(line.split()), length)
