"""Figures as files: all that there is to draw, the same at every call, names as text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import localisations
import pytest
import search_results
import sites
import study_results

from flashprof.contracts.site import BisectView, CompareView, Site
from flashprof.report.figure_effect import figure_effect
from flashprof.report.figure_posterior import figure_posterior
from flashprof.report.figure_style import save, text
from flashprof.report.figure_trend import figure_trend
from flashprof.report.figure_waterfall import figure_waterfall
from flashprof.report.site_figures import write_figures


def _site(name: str) -> Site:
    compare = CompareView(
        folder="", result=replace(study_results.regression(), base=name), localisation=localisations.hostile(name)
    )
    bisect = BisectView(folder="", result=search_results.two_culprits(), localisation=localisations.chained())
    trend = sites.trend(100.0, 101.0, 90.0, 91.0, changes=(2,), text=name)
    return Site(title=name, made="", version="", compares=(compare,), bisects=(bisect,), trends=(trend,))


def test_every_picture_is_written_as_svg_and_png(tmp_path: Path) -> None:
    written = write_figures(tmp_path, _site("none"))

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    assert sorted(path.name for path in written if path.suffix == ".svg") == [
        "bisect-bisect-4f1c2ab09d3e-posterior.svg",
        "bisect-bisect-4f1c2ab09d3e-proof.svg",
        "bisect-bisect-4f1c2ab09d3e-waterfall.svg",
        "compare-none-compile-4f1c2ab09d3e-effect.svg",
        "compare-none-compile-4f1c2ab09d3e-waterfall.svg",
        "trend-none.svg",
    ]


def test_files_are_the_same_at_every_call(tmp_path: Path) -> None:
    figures = [figure_waterfall(localisations.chained()) for _ in range(2)]
    stems = [tmp_path / name for name in ("one", "two")]
    written = [save(figure, stem) for figure, stem in zip(figures, stems, strict=True) if figure]

    assert [path.read_bytes() for path in written[0]] == [path.read_bytes() for path in written[1]]
    assert len(written) == 2


def test_names_are_letters_in_the_svg_whatever_they_hold(tmp_path: Path) -> None:
    name = "<b>$x_1$ \x00日本\n{} %s"
    figure = figure_waterfall(replace(localisations.chained(), base=name))
    assert figure is not None
    drawn = save(figure, tmp_path / "a")[0].read_text(encoding="utf-8")
    # What a text was made from stands beside it as a comment, whatever became of it.
    without_comments = re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL)

    assert "&lt;b&gt;$x_1$ 日本 {} %s</text>" in without_comments
    assert "<dc:date>" not in drawn


@pytest.mark.parametrize("level", [math.nan, 0.0])
def test_what_is_no_number_is_not_drawn(level: float) -> None:
    assert figure_waterfall(localisations.odd()) is None
    assert figure_effect([], tolerance=0.01, title="") is None
    assert figure_posterior(search_results.broken()) is None
    assert figure_trend(sites.trend(level)) is None


def test_texts_are_cut_and_on_one_line() -> None:
    assert text("a\n\u202eb" + 100 * "c").startswith("a bccc")
    assert len(text(1000 * "x")) == 60
