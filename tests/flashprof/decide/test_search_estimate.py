"""What a search will cost, by kind of launch."""

from __future__ import annotations

import pytest
from search_worlds import cold_plan, hot_plan, line_of_commits, toggle_space

from flashprof.decide.search_estimate import cell_s, estimate
from flashprof.decide.search_state import SearchCosts


def test_a_hot_search_starts_once_and_pays_for_visits() -> None:
    space = toggle_space("abc")
    costs = SearchCosts(window_s=3.0, switch_s=1.0, start_s=40.0)
    told = estimate(hot_plan(space, costs=costs, num_windows_cold=5))

    assert 40.0 + 24 * 4.0 == told.search_s
    assert 2 * 5 * 4 * 4.0 == told.proof_s
    # Five pairs of launches, of both switches.
    assert 10 * (40.0 + 5 * 3.0) == told.confirm_s


def test_what_is_not_confirmed_costs_nothing() -> None:
    assert 0.0 == estimate(hot_plan(toggle_space("abc"), confirm=False)).confirm_s


@pytest.mark.parametrize(("num", "num_cells"), [(1, 5), (7, 7), (127, 13)])
def test_commits_are_halved(num: int, num_cells: int) -> None:
    plan = cold_plan(line_of_commits(num))
    told = estimate(plan)

    assert 20.0 + 3 * 3.0 + 60.0 == cell_s(plan)
    assert num_cells * cell_s(plan) == told.search_s
    assert (10 * cell_s(plan), 0.0) == (told.proof_s, told.confirm_s)


def test_more_costs_more() -> None:
    few, many = (estimate(cold_plan(line_of_commits(num))) for num in (8, 64))

    assert few.search_s < many.search_s < 2 * few.search_s
