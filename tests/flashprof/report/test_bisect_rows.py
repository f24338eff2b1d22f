"""Rows, bars and strips of a bisection's tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
import search_results
from hypothesis import given
from hypothesis import strategies as st
from search_results import cell, interval

from flashprof.report import bisect_rows as rows


@pytest.mark.parametrize(
    ("share", "drawing"),
    [(0.0, "...."), (0.001, "#..."), (0.25, "#..."), (0.5, "##.."), (0.7, "###."), (1.0, "####"), (1.5, "####")],
)
def test_a_bar_is_as_long_as_its_share(share: float, drawing: str) -> None:
    assert drawing == rows.bar(share, width=4, marks=rows.ASCII)


@given(share=st.floats(), width=st.integers(0, 60))
def test_a_bar_has_its_width_whatever_the_share(share: float, width: int) -> None:
    assert width == len(rows.bar(share, width=width, marks=rows.ASCII))


def test_shares_of_the_drop_add_up_in_logs_and_gains_are_negative() -> None:
    found = [row[3] for row in rows.cause_rows(search_results.two_culprits())]

    assert found == ["69 %", "55 %", "−22 %"]


@pytest.mark.parametrize("whole", [None, interval(0.01, 0.02), interval(float("nan"), 0.1), interval(-1.0, 0.0)])
def test_where_there_is_no_drop_there_are_no_shares(whole: object) -> None:
    result = replace(search_results.one_culprit(), drop=whole)

    assert rows.cause_rows(result)[0][3] == "–"


def test_a_culprit_without_a_known_effect_has_dashes() -> None:
    result = replace(search_results.one_culprit(), beliefs=(), proofs=())

    assert rows.cause_rows(result) == [("swa (on → off)", "–", "–", "–")]


def test_ends_come_first_and_what_has_no_number_last() -> None:
    cells = (
        cell("x", "", None),
        cell("bad", "", 5.0),
        cell("slow", "", 6.0),
        cell("fast", "", 8.0),
        cell("good", "", 9.0),
    )
    ordered = rows.in_order(replace(search_results.one_culprit(), cells=cells))

    assert ["good", "bad", "fast", "slow", "x"] == [info.cell for info in ordered]


def test_a_strip_shows_which_end_a_cell_is_near() -> None:
    cells = (cell("good", "", 200.0), cell("bad", "", 100.0), cell("mid", "", 150.0), cell("x", "", None))
    drawn = rows.strips(replace(search_results.one_culprit(), cells=cells), width=5, marks=rows.ASCII)

    assert {"good": "|   *", "bad": "*   |", "mid": "| * |"} == drawn


@pytest.mark.parametrize("rates", [(), (None,), (7.0,), (7.0, 7.0)])
def test_a_strip_needs_no_spread(rates: tuple[float | None, ...]) -> None:
    cells = tuple(cell(f"c{place}", "", rate) for place, rate in enumerate(rates))
    drawn = rows.strips(replace(search_results.one_culprit(), cells=cells), width=5, marks=rows.ASCII)

    assert [rate for rate in rates if rate is not None] == [7.0 for strip in drawn.values() if strip == "  *"]
