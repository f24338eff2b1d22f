"""The strip of a series: every run on it, none across a change, the baseline where it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from histories import launch, steps, stored
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.app.history import show
from flashprof.contracts.history import Change, ChangeStatus, LaunchKind, Level, Series
from flashprof.contracts.results import Interval
from flashprof.report.compare_strip import ASCII
from flashprof.report.history_strip import MAX_ROWS, scale, strip_rows

WIDTH = 41
RATE = Interval(estimate=9_000.0, low=8_900.0, high=9_100.0, level=0.95, num_samples=5, method="t")
LEVEL = Level(run_ids=("run-000",), since="2026-11-01", tok_per_s=RATE)


def series(changes: list[float], starts: tuple[int, ...] = ()) -> Series:
    launches = tuple(launch(number, change) for number, change in enumerate(changes))
    found = tuple(
        Change(
            index=start,
            run_id=launches[start].run_id,
            started=launches[start].started,
            effect=RATE,
            seen="",
            commits=("", ""),
            status=ChangeStatus.OPEN,
        )
        for start in starts
    )
    return Series(
        cell="c",
        kind=LaunchKind.RUN,
        title="t",
        launches=launches,
        changes=found,
        baseline=LEVEL,
        level=LEVEL,
    )


def test_faster_runs_lie_to_the_right_and_the_baseline_is_a_line() -> None:
    rows = strip_rows(series([-0.04, -0.02, 0.02, 0.04]), width=WIDTH, marks=ASCII)
    columns = [row.drawing.index("*") for row in rows]
    (zero,) = {row.drawing.index("|") for row in rows}

    assert sorted(columns) == columns
    assert columns[1] < zero < columns[2]


def test_a_run_has_its_own_interval() -> None:
    made = series([-0.04, 0.0, 0.04])
    narrow, wide = (
        strip_rows(
            replace(made, launches=(made.launches[0], replace(made.launches[1], error=error))), width=WIDTH, marks=ASCII
        )[1]
        for error in (0.001, 0.009)
    )

    assert narrow.drawing.count("-") < wide.drawing.count("-")


@given(num=st.integers(1, 200), starts=st.sets(st.integers(1, 199), max_size=6))
@settings(deadline=None, max_examples=60)
def test_every_run_is_in_a_row_of_one_level(num: int, starts: set[int]) -> None:
    inside = tuple(sorted(start for start in starts if start < num))
    rows = strip_rows(series([0.0] * num, inside), width=WIDTH, marks=ASCII)
    counts = [int(row.count[:-1]) if row.count else 1 for row in rows]
    firsts = {sum(counts[:place]) for place in range(len(rows))}

    assert num == sum(counts)
    assert set(inside) <= firsts
    assert len(inside) == sum(row.is_change for row in rows)
    assert len(rows) <= MAX_ROWS + 1


def test_the_scale_names_both_ends_of_the_axis() -> None:
    low, high = (int(end.replace(",", "")) for end in scale(series([-0.1, 0.0]), width=WIDTH).split())

    assert 7_500 < low < 8_100
    assert 9_000 < high < 9_500
    assert WIDTH == len(scale(series([-0.1, 0.0]), width=WIDTH))


@pytest.mark.parametrize("changes", [[0.0], [0.0, 0.0], [-0.99, 50.0]])
def test_any_series_is_drawn_within_its_width(changes: list[float]) -> None:
    rows = strip_rows(series(changes), width=WIDTH, marks=ASCII)

    assert all("*" in row.drawing and len(row.drawing) <= WIDTH for row in rows)


def test_a_series_of_a_store_is_drawn(tmp_path: Path) -> None:
    (made,) = show(stored(tmp_path / "h.sqlite", steps((30, 0.0), (12, -0.06)))).series
    rows = strip_rows(made, width=WIDTH, marks=ASCII)
    (first,) = (row for row in rows if row.is_change)

    assert launch(30).started[:10] == first.when[:10]
    assert all("|" in row.drawing[row.drawing.index("*") :] for row in rows if row.when >= first.when)
