"""The curve of the newest acceptance study: `python -m benchmarks.acceptance_picture` writes `docs/acceptance.svg`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.results_file import RESULTS

PICTURE = RESULTS.parents[1] / "docs" / "acceptance.svg"
BLUE, GREY = "#1f5fa8", "#8a8f98"
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "acceptance"}


def main() -> None:
    """Draw the newest study."""
    newest = max(RESULTS.glob("acceptance_*.json"), key=lambda path: path.stem.rsplit("_", 1)[-1])
    draw(json.loads(newest.read_text(encoding="utf-8")), PICTURE)


def draw(study: dict[str, Any], path: Path) -> None:
    """Acceptance length over tokens trained: at random held-out positions, and in real generation."""
    points = study["data"]["curve"]
    tokens = [point["num_tokens"] / 1e6 for point in points]
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        axes = figure.subplots()
        held_out = [point["held_out_acceptance_length"] for point in points]
        generated = [point["acceptance_length"] for point in points]
        axes.plot(tokens, held_out, color=GREY, marker="o", markersize=4)
        axes.plot(tokens, generated, color=BLUE, marker="o", markersize=4)
        axes.annotate(f"held-out positions  {held_out[-1]:.2f}", (tokens[-1], held_out[-1]), **_label(GREY))
        axes.annotate(f"generation  {generated[-1]:.2f}", (tokens[-1], generated[-1]), **_label(BLUE))
        # Few prompts along the way, more at the end: a jump at the end may be another sample.
        prompts = f"{points[0]['num_texts']} prompts a point, {points[-1]['num_texts']} at the last"
        axes.text(0.99, 0.03, prompts, transform=axes.transAxes, color=GREY, ha="right", fontsize=8)
        axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_xlabel("million tokens trained")
        axes.set_ylabel("acceptance length, tokens")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        figure.suptitle(_title(study), fontsize=10, x=0.01, ha="left")
        figure.savefig(path, metadata={"Date": None})


def _label(color: str) -> dict[str, Any]:
    return {"color": color, "textcoords": "offset points", "xytext": (-6, 8), "ha": "right"}


def _title(study: dict[str, Any]) -> str:
    wall_s = next(measure["value"] for measure in study["measures"] if measure["name"] == "train_wall")
    return f"SmolLM2-135M drafter, {study['hardware']}, {wall_s / 60:.1f} minutes of training ({study['date']})"


if __name__ == "__main__":
    main()
