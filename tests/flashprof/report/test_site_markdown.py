"""report.md says what report.html says, in Markdown that no text of a run can break."""

from __future__ import annotations

import re
from dataclasses import replace

import run_summaries
import search_results
import study_results
from report_folders import interval

from flashprof.contracts.localisation import Localisation
from flashprof.contracts.site import BisectView, BrokenFolder, CompareView, RunView, Site, Trend, TrendPoint
from flashprof.report.site_markdown import MAX_RUNS, render_site_markdown

HOSTILE = "<img src=x>|`x`[y](javascript:z)\n# heading"


def headline(localisation: Localisation) -> str:
    return f"most of it is in {localisation.base}"


def site(**parts: object) -> Site:
    return Site(**{"title": "FlashProf: reports", "made": "2026-11-30T10:00:00+00:00", "version": "1.2", **parts})  # type: ignore[arg-type]


def run(number: int = 1, **changes: object) -> RunView:
    summary = replace(run_summaries.healthy(), run_id=f"run-{number}", **changes)  # type: ignore[arg-type]
    return RunView(folder="run/", summary=summary, started="2026-11-29T10:00:00+00:00")


def test_comparisons_and_bisects_come_first_with_verdict_and_place() -> None:
    localisation = Localisation(base="mask", candidate="", base_ns_per_token=1.0, difference=interval(1.0))
    compared = CompareView(folder="c/", result=study_results.regression(), localisation=localisation)
    found = BisectView(folder="b/", result=search_results.one_culprit())
    text = render_site_markdown(site(runs=(run(),), compares=(compared,), bisects=(found,)), headline=headline)

    assert text.index("## Comparisons") < text.index("## Bisects") < text.index("## Runs")
    assert "regression" in text
    assert "most of it is in mask" in text
    assert "| run-1 | 2026-11-29 10:00 |" in text


def test_a_trend_marks_the_run_where_another_level_begins() -> None:
    points = tuple(
        TrendPoint(
            run_id=f"r{number}", started="2026-11-29T10:00:00+00:00", tok_per_s=interval(1000.0), commit="c" * 40
        )
        for number in range(3)
    )
    text = render_site_markdown(
        site(trends=(Trend(cell="tiny", points=points, change_points=(2,)),)), headline=headline
    )
    marked = [line for line in text.splitlines() if "another level" in line]

    assert 1 == len(marked)
    assert "| r2 |" in marked[0]


def test_what_was_not_read_and_launches_of_comparisons_are_no_runs() -> None:
    launch = replace(run(2), is_part_of="compare-1")
    broken = BrokenFolder(folder="half", line="it has no summary.json")
    text = render_site_markdown(site(runs=(run(), launch), broken=(broken,), notes=("a note",)), headline=headline)

    assert "run-2" not in text
    assert "- half: it has no summary.json" in text
    assert "- a note" in text


def test_text_of_a_run_stays_text() -> None:
    hostile = run(reason=HOSTILE, cell={"toggles": HOSTILE})
    text = render_site_markdown(
        site(title=HOSTILE, runs=(hostile,), broken=(BrokenFolder(folder=HOSTILE, line=HOSTILE),)), headline=headline
    )

    assert "<img" not in text
    assert not re.search(r"[^\\]\]\(javascript", text)
    assert "`x`" not in text
    assert "\n# heading" not in text


def test_of_very_many_runs_the_newest_are_listed() -> None:
    text = render_site_markdown(site(runs=tuple(run(number) for number in range(MAX_RUNS + 5))), headline=headline)

    assert "5 older runs are in report.html." in text
    assert f"run-{MAX_RUNS} " not in text
