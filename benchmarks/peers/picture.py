"""Bars of the newest study: `python -m benchmarks.peers.picture` writes `docs/peers.svg` for the README."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results_file import RESULTS

PICTURE = RESULTS.parents[1] / "docs" / "peers.svg"
BLUE, GREY, RED = "#1f5fa8", "#8a8f98", "#b3402a"
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "peers"}
H200 = "H200"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One set of bars."""

    title: str
    unit: str
    labels: Mapping[str, str]
    """Measure to the name that it is drawn with."""
    limit: float
    """What the arithmetic allows on an H200 (anchors.md): a drafter step 204 ms, the target 114, both 19.3K tok/s."""
    limit_label: str


PANELS = (
    Panel(
        title="drafter step",
        unit="ms",
        labels={
            "drafter_flashprof": "FlashProf",
            "drafter_speculators": "speculators",
            "drafter_specforge": "SpecForge",
        },
        limit=204,
        limit_label="floor",
    ),
    Panel(
        title="target forward with taps",
        unit="ms",
        labels={
            "target_flashprof": "FlashProf",
            "target_stop": "transformers, stopped",
            "target_logits": "transformers, logits",
        },
        limit=114,
        limit_label="floor",
    ),
    Panel(
        title="both on one card",
        unit="tok/s",
        labels={"both_flashprof": "FlashProf", "both_speculators": "speculators", "both_specforge": "SpecForge"},
        limit=19_300,
        limit_label="ceiling",
    ),
)


def newest_study(folder: Path = RESULTS) -> dict[str, Any]:
    """The results file with the latest date."""
    newest = max(folder.glob("peers_*.json"), key=lambda path: path.stem.rsplit("_", 1)[-1])
    study: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
    return study


def draw(study: Mapping[str, Any], path: Path) -> None:
    """A panel a question; what could not be measured has no bar."""
    values = {measure["name"]: measure["value"] for measure in study["measures"]}
    with rc_context(STYLE):
        figure = Figure(figsize=(9.6, 2.4), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            _draw_panel(axes, panel, values, shows_limit=H200 in study["hardware"])
        title = f"Qwen3-8B shapes, 2 × 3,072 tokens, 512 anchors × 16; {study['hardware']}, {study['date']}"
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        figure.savefig(path, metadata={"Date": None})


def _draw_panel(axes: Axes, panel: Panel, values: Mapping[str, float], *, shows_limit: bool) -> None:
    shown = {label: values[name] for name, label in panel.labels.items() if name in values}
    names, heights = list(shown)[::-1], list(shown.values())[::-1]
    bars = axes.barh(names, heights, color=[BLUE if name == "FlashProf" else GREY for name in names], height=0.65)
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.bar_label(bars, bbox=white, labels=[f"{height:,.0f}" for height in heights], padding=3, fontsize=9)
    if shows_limit:
        axes.axvline(panel.limit, color=RED, linewidth=1, linestyle=":")
        below = {"xycoords": ("data", "axes fraction"), "xytext": (0, -3), "textcoords": "offset points"}
        axes.annotate(panel.limit_label, (panel.limit, 0), color=RED, fontsize=8, ha="center", va="top", **below)
    axes.set_title(f"{panel.title}, {panel.unit}", fontsize=10, loc="left")
    axes.set_xlim(0, 1.25 * max([panel.limit if shows_limit else 0.0, *heights], default=1.0) or 1.0)
    axes.tick_params(length=0)
    axes.xaxis.set_visible(False)


if __name__ == "__main__":
    draw(newest_study(), PICTURE)
