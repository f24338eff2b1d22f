"""A trend laid out: what goes where, and which steps are named."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from sites import point, trend

from flashprof.contracts.results import Interval
from flashprof.contracts.site import Trend
from flashprof.report.site_trend import BOTTOM, LEFT, RIGHT, TOP, trend_picture

RATES = st.floats(min_value=1e-3, max_value=1e9)


def test_a_fall_is_drawn_where_it_begins_with_its_size() -> None:
    picture = trend_picture(trend(100.0, 100.0, 90.0, 90.0, changes=(2,)), {})

    assert picture is not None
    assert ["▼ −10.0 %"] == [step.text for step in picture.steps]
    assert picture.marks[1].x < picture.steps[0].x < picture.marks[2].x
    assert [True] == [step.is_fall for step in picture.steps]
    assert "tok/s fell by 10.0 % with run-2" in picture.said


def test_a_rise_is_told_from_a_fall_by_more_than_its_colour() -> None:
    picture = trend_picture(trend(90.0, 100.0, changes=(1,)), {})

    assert picture is not None
    assert "▲ +11.1 %" == picture.steps[0].text
    assert "tok/s rose by 11.1 %" in picture.said


def test_without_a_change_there_is_one_level() -> None:
    picture = trend_picture(trend(100.0, 100.0, 100.0), {})

    assert picture is not None
    assert 1 == len(picture.levels)
    assert "3 runs, no change point" == picture.said


def test_points_lead_to_their_runs() -> None:
    picture = trend_picture(trend(100.0, 101.0), {"run-1": "#run/one"})

    assert picture is not None
    assert ["", "#run/one"] == [mark.href for mark in picture.marks]


def test_a_point_without_a_number_is_left_out_and_the_step_stays_in_place() -> None:
    made = trend(100.0, math.nan, 100.0, 90.0, changes=(3,))
    picture = trend_picture(made, {})

    assert picture is not None
    assert 3 == len(picture.marks)
    assert picture.marks[1].x < picture.steps[0].x < picture.marks[2].x
    assert trend_picture(trend(math.nan, math.inf, 0.0, -1.0), {}) is None


def test_a_commit_is_named_where_it_is_new() -> None:
    points = tuple(point(f"run-{number}", 100.0, number, "a" * 40 if number < 2 else "b" * 40) for number in range(4))
    picture = trend_picture(Trend(cell="", points=points), {})

    assert picture is not None
    assert ["aaaaaaa", "bbbbbbb"] == [label.text for label in picture.commits]
    assert [picture.marks[0].x, picture.marks[2].x] == [label.at for label in picture.commits]


def test_labels_of_many_runs_do_not_touch() -> None:
    picture = trend_picture(trend(*[100.0] * 28), {})

    assert picture is not None
    for labels, room in ((picture.commits, 50), (picture.dates, 70)):
        assert len(labels) > 2
        assert all(later.at - label.at >= room for label, later in pairwise(labels))


def test_an_endless_interval_does_not_flatten_the_rest() -> None:
    made = trend(100.0, 90.0)
    wide = Interval(estimate=95.0, low=-math.inf, high=1e12, level=0.95, num_samples=2, method="t")
    picture = trend_picture(replace(made, points=(*made.points, replace(made.points[0], tok_per_s=wide))), {})

    assert picture is not None
    assert picture.marks[1].y - picture.marks[0].y > 30


@given(st.lists(RATES, min_size=1, max_size=30), st.lists(st.integers(min_value=-3, max_value=40), max_size=5))
def test_whatever_the_numbers_all_is_drawn_within_the_picture(rates: list[float], changes: list[int]) -> None:
    points = tuple(point(f"run-{number}", rate, number % 28) for number, rate in enumerate(rates))
    picture = trend_picture(Trend(cell="", points=points, change_points=tuple(changes)), {})

    assert picture is not None
    assert len(rates) == len(picture.marks)
    assert len(picture.levels) == len(picture.steps) + 1
    assert all(
        LEFT <= mark.x <= RIGHT and TOP <= mark.y_high <= mark.y <= mark.y_low <= BOTTOM for mark in picture.marks
    )
    assert 1 <= len(picture.ticks) <= 8
