"""Runs of one cell make a trend, whatever the commit; others do not join it."""

from __future__ import annotations

import math
from dataclasses import replace

import run_summaries
from report_folders import FACTS, interval

from flashprof.app.trends import find_trends
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.site import RunView

SECOND_CELL = {**FACTS, "toggles.swa": "on"}


def run(number: int, rate: float = 1000.0, **changes: object) -> RunView:
    """A run that began on day *number*."""
    summary = replace(run_summaries.healthy(), run_id=f"run-{number}", tok_per_s=interval(rate))
    view = RunView(folder=f"run-{number}/", summary=summary, facts=FACTS, started=f"2026-11-{number:02}T00:00:00+00:00")
    return replace(view, **changes)  # type: ignore[arg-type]


def commit(number: int) -> dict[str, str]:
    return {**FACTS, "source.commit": f"{number:040}", "versions.flashprof-dflash": f"0.{number}"}


def test_runs_of_one_cell_stand_by_time_with_their_commits() -> None:
    (trend,) = find_trends([run(number, facts=commit(number)) for number in (3, 1, 2)])

    assert ["run-1", "run-2", "run-3"] == [point.run_id for point in trend.points]
    assert [f"{number:040}" for number in (1, 2, 3)] == [point.commit for point in trend.points]
    assert () == trend.change_points


def test_another_level_is_marked_at_its_first_run() -> None:
    rates = [1000.0 + 3 * (number % 5) for number in range(1, 25)]
    runs = [run(number, rate * (0.9 if number >= 15 else 1)) for number, rate in enumerate(rates, start=1)]
    (trend,) = find_trends(runs)

    assert (14,) == trend.change_points


def test_two_cells_make_two_trends_whose_names_tell_them_apart() -> None:
    runs = [run(1), run(2), run(3), run(4, facts=SECOND_CELL), run(5, facts=SECOND_CELL)]
    trends = find_trends(runs)
    names = [trend.cell for trend in trends]

    assert [3, 2] == [len(trend.points) for trend in trends]
    assert names[0] != names[1]
    assert "toggles.swa: off → on" in names[1]


def test_what_is_no_measurement_of_its_own_is_no_point() -> None:
    summary = run(3).summary
    others = [
        run(3, is_part_of="compare-1"),
        run(4, summary=replace(summary, outcome=Outcome.CRASHED)),
        run(5, summary=replace(summary, tok_per_s=None)),
        run(6, summary=replace(summary, tok_per_s=interval(0.0))),
        run(7, summary=replace(summary, tok_per_s=interval(math.inf))),
        run(8, facts={}),
        run(9, started=""),
    ]
    (trend,) = find_trends([run(1), run(2), *others])

    assert ["run-1", "run-2"] == [point.run_id for point in trend.points]


def test_a_single_run_is_no_trend() -> None:
    assert () == find_trends([run(1), run(2, facts=SECOND_CELL)])
