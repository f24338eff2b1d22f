"""Rows of the overview: runs, verdicts, and what the folder holds."""

from __future__ import annotations

import math
from dataclasses import replace

import study_results
from run_summaries import crashed, foreign, healthy, interval
from search_results import failed_end, undecided
from sites import localisation, run_view, site, widgets

from flashprof.contracts.results import RunSummary
from flashprof.contracts.site import BisectView, CompareView, RunView, Site
from flashprof.report.site_overview import VerdictRow, counts, run_rows, verdict_rows


def _view(summary: RunSummary) -> RunView:
    return RunView(folder="x/", summary=summary)


def test_a_run_is_one_row_with_its_cell_and_speed() -> None:
    view = run_view("run-1", "compile,swa")
    (row,) = run_rows([view], ["#run/run-1"])

    assert "#run/run-1" == row.href
    assert ("run-1", "compile,swa", "9f5d97f0c0ff") == (row.name, row.what, row.commit)
    assert healthy().tok_per_s is not None
    assert healthy().tok_per_s.estimate == row.tok_per_s
    assert next(str(lane.lane) for lane in healthy().lanes if lane.is_limiting) == row.limiting


def test_a_failure_is_marked_and_has_no_number() -> None:
    (row,) = run_rows([_view(replace(crashed(), tok_per_s=None))], ["#"])

    assert ("✕", "bad") == (row.outcome.sign, row.outcome.tone)
    assert "–" == row.rate
    assert math.isnan(row.tok_per_s)
    assert row.whisker is None
    assert row.reason


def test_a_foreign_run_is_called_by_its_command() -> None:
    (row,) = run_rows([_view(foreign())], ["#"])

    assert foreign().cell["command"][:10] == row.what[:10]


def test_runs_alike_share_an_axis_and_others_do_not() -> None:
    slow, fast = (replace(healthy(), tok_per_s=interval(rate, rate - 10, rate + 10)) for rate in (100.0, 200.0))
    other = replace(slow, cell={**slow.cell, "machine": "another"}, tok_per_s=interval(9e6, 8e6, 1e7))
    rows = run_rows([_view(item) for item in (slow, fast, other)], ["#"] * 3)

    assert rows[0].whisker is not None
    assert rows[1].whisker is not None
    assert rows[2].whisker is not None
    assert 0.0 == rows[0].whisker.low
    assert 100.0 == rows[1].whisker.high
    assert rows[0].whisker.high < rows[1].whisker.low
    assert 50.0 == rows[2].whisker.at


def test_an_endless_interval_reaches_from_end_to_end() -> None:
    endless = replace(healthy(), tok_per_s=interval(150.0, -math.inf, math.inf))
    near = replace(healthy(), tok_per_s=interval(100.0, 90.0, 200.0))
    row, _ = run_rows([_view(endless), _view(near)], ["#"] * 2)

    assert row.whisker is not None
    assert (0.0, 100.0) == (row.whisker.low, row.whisker.high)
    assert 0.0 < row.whisker.at < 100.0


def _rows(made: Site) -> list[VerdictRow]:
    compares = [f"#compare/{number}" for number, _ in enumerate(made.compares)]
    return verdict_rows(
        made, compares, [f"#bisect/{number}" for number, _ in enumerate(made.bisects)], widgets().headline
    )


def test_the_newest_verdict_comes_first() -> None:
    assert ["bisect", "compare"] == [row.kind for row in _rows(site())]


def test_a_comparison_says_what_fell_and_where() -> None:
    view = CompareView(folder="c/", result=study_results.regression(), localisation=localisation("swa"))
    (row,) = _rows(Site(title="", made="", version="", compares=(view,)))

    assert ("▼", "regression") == (row.badge.sign, row.badge.word)
    assert "%" in row.answer
    assert not row.answer.startswith("regression")
    assert "swa fell" == row.where


def test_a_question_without_an_answer_has_failed() -> None:
    compare = CompareView(folder="c/", result=study_results.failed_arm())
    rows = _rows(Site(title="", made="", version="", compares=(compare,), bisects=(_bisect(),)))

    assert ["failed", "failed"] == [row.badge.word for row in rows]
    assert ["", ""] == [row.where for row in rows]


def _bisect() -> BisectView:
    return BisectView(folder="b/", result=failed_end())


def test_counts_tell_runs_from_launches_and_what_failed() -> None:
    assert "2 runs (1 not completed), 1 comparison, 1 bisect, 1 launch, 1 unreadable folder" == counts(site())
    assert "0 runs" == counts(Site(title="", made="", version=""))


def test_what_a_failed_run_had_measured_is_on_no_axis() -> None:
    failed = replace(healthy(), outcome=crashed().outcome, tok_per_s=interval(9e9, 8e9, 1e10))
    rows = run_rows([_view(failed), _view(healthy())], ["#"] * 2)

    assert not rows[0].is_comparable
    assert rows[0].whisker is None
    assert rows[1].whisker is not None
    assert 0.0 < rows[1].whisker.at < 100.0


def test_an_open_bisect_does_not_say_so_twice() -> None:
    (row,) = _rows(Site(title="", made="", version="", bisects=(BisectView(folder="b/", result=undecided()),)))

    assert "inconclusive" == row.badge.word
    assert "inconclusive" not in row.answer
