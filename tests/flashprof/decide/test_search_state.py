"""What a search knows: each fact counts once, failures are no numbers, and a skip is not bad."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_worlds import cold_plan, hot_plan, line_of_commits, search_reading, toggle_space

from flashprof.contracts.outcome import Outcome
from flashprof.decide.observations import CallBegan
from flashprof.decide.search_observations import Built, LaunchEnded, SearchObservation, Undone, UserSkipped
from flashprof.decide.search_state import SearchState, observe, replay

TOGGLES = hot_plan(toggle_space(("a", "b", "c")))
COMMITS = cold_plan(line_of_commits(4))

FACTS = st.one_of(
    st.just(CallBegan()),
    st.builds(search_reading, st.sampled_from(["good", "bad", "a"]), st.integers(0, 5)),
    st.builds(
        LaunchEnded,
        run_id=st.sampled_from(["hot-1", "hot-2"]),
        group=st.just(""),
        outcome=st.sampled_from(Outcome),
        length_s=st.floats(0, 99),
        cell=st.sampled_from(["", "a"]),
    ),
    st.builds(UserSkipped, cell=st.sampled_from(["a", "b"])),
    st.builds(Undone, num=st.integers(1, 3)),
)


def after(*observations: SearchObservation, plan=TOGGLES) -> SearchState:
    return replay(plan, [CallBegan(), *observations])


def ended(outcome: Outcome, num: int = 1, cell: str = "", group: str = "", prefix: str = "hot") -> LaunchEnded:
    return LaunchEnded(run_id=f"{prefix}-{num}", group=group, outcome=outcome, length_s=50.0, cell=cell)


@given(st.lists(FACTS, max_size=12), st.integers(0, 12))
def test_replay_is_observing_one_after_the_other(facts: list[SearchObservation], cut: int) -> None:
    state = replay(TOGGLES, facts[:cut])
    for fact in facts[cut:]:
        state = observe(state, fact)

    assert replay(TOGGLES, facts) == state


@given(st.lists(FACTS, max_size=12))
def test_a_reading_or_an_end_delivered_twice_changes_nothing(facts: list[SearchObservation]) -> None:
    once = [fact for fact in facts if not isinstance(fact, Undone | UserSkipped | CallBegan)]

    assert replay(TOGGLES, once) == replay(TOGGLES, [*once, *once])


def test_an_undone_reading_stays_undone_when_it_is_delivered_again() -> None:
    first, second = search_reading("good", 0), search_reading("bad", 1)
    state = after(first, second, Undone(num=1), second)

    assert (first.reading,) == state.readings
    assert (first.reading,) == after(first, UserSkipped(cell="a"), Undone(num=1)).readings
    assert 7.0 + 45.0 == state.spent_s


def test_a_skip_by_the_user_leaves_the_cell_out_until_it_is_undone() -> None:
    skip = UserSkipped(cell="a")

    assert "skipped by the user" == after(skip).why_skipped("a")
    assert ("", "") == (after(skip).why_skipped("a+b"), after(skip, skip, Undone(num=1)).why_skipped("a"))


def test_a_launch_that_still_runs_counts_its_start_and_then_its_whole_life() -> None:
    running = after(search_reading("good", 0), search_reading("bad", 1))

    assert ("hot-1", 52.0) == (running.running, running.spent_s)
    assert (None, 50.0) == (
        observe(running, ended(Outcome.COMPLETED)).running,
        observe(running, ended(Outcome.COMPLETED)).spent_s,
    )
    assert (None, "hot-2") == (observe(running, CallBegan()).running, observe(running, CallBegan()).next_run_id("hot-"))


def test_time_between_windows_is_spent_too() -> None:
    """Choosing the next window took 50 s of 60 once: the user's budget is of what it all takes."""
    soon, late = (after(search_reading("good", 0), search_reading("bad", num)) for num in (1, 101))

    assert soon.spent_s + 400 == late.spent_s


def test_a_crash_is_tried_again_and_then_its_cell_is_left_out() -> None:
    once = after(ended(Outcome.CRASHED, 1, "a"))
    twice = observe(once, ended(Outcome.CRASHED, 2, "a"))

    assert ("", "crashed", "") == (once.why_skipped("a"), twice.why_skipped("a"), twice.why_skipped("b"))
    assert () == twice.readings
    assert (
        "hot-2: crashed in a; left out from now on, the same crash twice is no accident." == twice.failures[1].sentence
    )


def test_a_launch_with_readings_that_fails_keeps_them_and_is_no_reason_to_give_up() -> None:
    facts = [search_reading("good", num, launch=f"hot-{num}") for num in range(1, 6)]
    ends = [ended(Outcome.CRASHED, num) for num in range(1, 6)]
    state = after(*[fact for pair in zip(facts, ends, strict=True) for fact in pair])

    assert (5, "") == (len(state.readings), state.why_skipped("good"))


def test_cells_that_crash_one_after_the_other_give_up_their_group() -> None:
    ends = [ended(Outcome.CRASHED, num, "abcd"[num // 2]) for num in range(5)]

    assert ["", "crashed"] == [after(*ends[:num]).why_skipped("bad") for num in (3, 4)]


def test_a_clean_end_without_a_reading_is_not_tried_for_ever() -> None:
    assert "ended early" == after(ended(Outcome.COMPLETED)).why_skipped("good")


def test_wrong_numbers_take_out_the_readings_of_the_group_for_good() -> None:
    good, wrong = (search_reading(cell, num, launch=f"cold-{num}") for num, cell in enumerate(("base", "c1"), start=1))
    end = ended(Outcome.WRONG_NUMBERS, 2, group="c1", prefix="cold")
    state = after(good, wrong, end, CallBegan(), plan=COMMITS)

    assert (good.reading,) == state.readings
    assert "wrong numbers" == state.why_skipped("c1")
    assert "none of its readings count" in state.failures[0].sentence


@pytest.mark.parametrize(("outcome", "num"), [(Outcome.CRASHED, 1), (Outcome.TIMED_OUT, 2)])
def test_a_build_that_fails_is_no_bad_commit_and_only_what_may_pass_is_tried_again(outcome: Outcome, num: int) -> None:
    build = Built(group="c1", outcome=outcome, length_s=60.0)
    states = [after(*[build] * count, plan=COMMITS) for count in range(1, num + 1)]

    assert [""] * (num - 1) + [str(outcome)] == [state.why_skipped("c1") for state in states]
    assert (num, 60.0 * num) == (states[-1].num_builds, states[-1].spent_s)


def test_what_is_built_is_not_built_again() -> None:
    built = Built(group="c1", outcome=Outcome.COMPLETED, length_s=60.0)
    known = replace(COMMITS, built=frozenset({"base"}))

    assert (True, False) == (after(plan=COMMITS).needs_build("c1"), after(built, plan=COMMITS).needs_build("c1"))
    assert (False, False) == (after(plan=known).needs_build("base"), after().needs_build("good"))


def test_a_new_call_tries_again_what_may_have_passed_but_not_a_crash() -> None:
    crashes = [ended(Outcome.CRASHED, num, "a") for num in (1, 2)]
    hangs = [ended(Outcome.HUNG, num, "b") for num in (3, 4)]
    ends = [ended(Outcome.CRASHED, num, "bad") for num in (5, 6)]
    facts = [search_reading("good", 0, launch="hot-0"), *crashes, *hangs, *ends]

    assert ["crashed", "hung", "crashed"] == [after(*facts).why_skipped(cell) for cell in ("a", "b", "bad")]
    assert ["crashed", "", ""] == [after(*facts, CallBegan()).why_skipped(cell) for cell in ("a", "b", "bad")]
    assert 1 == after(*facts, CallBegan()).num_reused


def test_an_interruption_stops_this_call_and_no_other() -> None:
    state = after(search_reading("good", 0), ended(Outcome.INTERRUPTED))

    assert (True, False) == (state.is_stopped, observe(state, CallBegan()).is_stopped)
