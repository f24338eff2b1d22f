"""Blocks of a proof: in one launch or in pairs of launches, in a drawn order, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_worlds import cold_plan, hot_plan, line_of_commits, reading, toggle_space

from flashprof.contracts.comparison import Method, Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Cause, SearchRule, Stage
from flashprof.decide.observations import CallBegan
from flashprof.decide.orders import block_order
from flashprof.decide.proofs import (
    Trial,
    ends_trial,
    is_half_done,
    next_window,
    proof_trials,
    refuted_causes,
    rest_of_launch,
)
from flashprof.decide.search_observations import LaunchEnded, Measured, Undone, UserSkipped
from flashprof.decide.search_state import SearchPlan, SearchState, observe, replay

SPACE = toggle_space(("a", "b", "c"))
PLAN = hot_plan(SPACE)
A, B = Cause(("a",)), Cause(("b",))
SLOW = {"a": -0.2, "bad": -0.2}


def begun(plan: SearchPlan = PLAN) -> SearchState:
    return replay(plan, [CallBegan()])


def trial(state: SearchState, cause: Cause = A, place: int = 0, stage: Stage = Stage.PROOF) -> Trial:
    return proof_trials(state, [cause], stage)[place]


def windows(
    state: SearchState,
    num: int,
    effects: Mapping[str, float],
    *,
    cause: Cause = A,
    stage: Stage = Stage.PROOF,
    place: int = 0,
) -> SearchState:
    """Take *num* windows of one trial; the noise is small and never the same."""
    for _ in range(num):
        visit = rest_of_launch(state, "") or next_window(state, trial(state, cause, place, stage), "")
        count = len(state.seen)
        value = 9.0 + effects.get(visit.cell, 0.0) + 1e-4 * (count * 7 % 11)
        if state.running not in (None, visit.run_id):
            end = LaunchEnded(run_id=state.running, group="", outcome=Outcome.COMPLETED, length_s=60.0)
            state = observe(state, end)
        state = observe(state, Measured(reading=reading(visit, count, value)))
    return state


def test_a_hot_block_is_four_windows_of_one_launch_in_the_drawn_order() -> None:
    state = windows(begun(), 4, SLOW)
    (block,) = trial(state).blocks

    assert (Method.HOT, 4, ("hot-1",), 12.0) == (block.method, block.num_windows, block.launches, block.length_s)
    assert block_order(PLAN.seed + 1, 1, 4) == block.order
    assert ["good" if letter == "A" else "a" for letter in block.order] == [item.cell for item in state.readings]
    assert abs(block.difference + 0.2) < 0.01


def test_a_block_that_its_launch_did_not_complete_is_begun_again() -> None:
    state = observe(windows(begun(), 3, SLOW), CallBegan())
    visit = next_window(state, trial(state), "")

    assert (1, 0, "hot-2") == (visit.block, visit.position, visit.run_id)
    assert () == trial(state).blocks
    assert 1 == len(trial(windows(state, 4, SLOW)).blocks)


def test_a_cold_block_is_two_launches_with_all_their_windows() -> None:
    plan = cold_plan(line_of_commits(3), num_windows_cold=2)
    state = windows(begun(plan), 4, {"c1": -0.2}, cause=Cause(("c1",)))
    (block,) = trial(state, Cause(("c1",))).blocks

    assert (Method.COLD, 4, ("cold-1", "cold-2")) == (block.method, block.num_windows, block.launches)
    assert [0, 1, 0, 1] == [item.position for item in state.readings]
    assert {"c0", "c1"} == {item.cell for item in state.readings}
    assert block.length_s > 60.0
    assert abs(block.difference + 0.2) < 0.01


def test_a_launch_that_ended_with_fewer_windows_is_a_side_all_the_same() -> None:
    plan = cold_plan(line_of_commits(3), num_windows_cold=3)
    state = windows(begun(plan), 1, {}, cause=Cause(("c1",)))
    first = rest_of_launch(state, "{number} of {total}")
    state = observe(state, LaunchEnded(run_id="cold-1", group="", outcome=Outcome.CRASHED, length_s=9.0))
    second = next_window(state, trial(state, Cause(("c1",))), "")

    assert first is not None
    assert ("cold-1", 1, "2 of 3") == (first.run_id, first.position, first.why)
    assert rest_of_launch(state, "") is None
    assert ("cold-2", 1, 0) == (second.run_id, second.block, second.position)
    assert first.cell != second.cell


def test_windows_that_slow_down_show_the_cause_and_alike_ones_refute_it() -> None:
    shown, refuted = windows(begun(), 24, SLOW), windows(begun(), 24, {})

    assert (Verdict.REGRESSION, True) == (trial(shown).verdict, trial(shown).proof.is_shown)
    assert frozenset() == refuted_causes(shown)
    assert (Verdict.NO_REGRESSION, frozenset({A})) == (trial(refuted).verdict, refuted_causes(refuted))


def test_each_comparison_has_a_number_of_its_own_however_often_it_is_asked_for() -> None:
    state = windows(windows(begun(), 4, SLOW), 4, SLOW, place=1)

    assert [1, 2, 3, 4] == [item.number for item in proof_trials(state, [A, B], Stage.PROOF)]
    assert [1, 2] == [item.number for item in proof_trials(state, [B, A], Stage.PROOF)][2:]
    assert 3 == trial(state, stage=Stage.CONFIRM).number


def test_alpha_is_shared_among_all_that_is_ever_tried() -> None:
    state = windows(windows(begun(), 4, SLOW), 4, SLOW, place=1)
    state = windows(state, 4, SLOW, cause=B)
    alphas = [trial(state, cause, place).comparison.rule.alpha for cause, place in ((A, 0), (A, 1), (B, 0))]

    assert [0.01 / 2, 0.01 / 2, 0.01 / 6] == alphas


def test_where_nothing_else_differs_alone_and_back_are_one_comparison_that_the_ends_share() -> None:
    plan = hot_plan(toggle_space(("a", "b")))
    pair = Cause(("a", "b"))
    state = windows(begun(plan), 4, {"bad": -0.2}, cause=pair)

    assert 1 == len(proof_trials(state, [pair], Stage.PROOF))
    assert (1, 1) == (ends_trial(state).number, len(ends_trial(state).blocks))


def test_confirmation_is_cold_and_so_is_a_cold_toggle() -> None:
    plan = hot_plan(toggle_space(("a", "b"), cold=("a",)))

    assert [False, True] == [trial(begun(), stage=stage).is_cold for stage in (Stage.PROOF, Stage.CONFIRM)]
    assert [True, False] == [trial(begun(plan), cause).is_cold for cause in (A, B)]


def test_a_disturbed_window_leaves_its_hot_block_out() -> None:
    state = windows(begun(), 3, SLOW)
    visit = next_window(state, trial(state), "")
    state = observe(state, Measured(reading=reading(visit, 9, 3.0, disturbances=("another process",))))

    assert (("another process",), 1) == (trial(state).blocks[0].disturbances, trial(state).comparison.num_left_out)
    assert 2 == next_window(state, trial(state), "").block


def test_what_was_skipped_is_not_tried_unless_it_is_known_already() -> None:
    skip = UserSkipped(cell="a")

    assert [True] == [item.is_back for item in proof_trials(observe(begun(), skip), [A], Stage.PROOF)]
    assert 2 == len(proof_trials(observe(windows(begun(), 24, SLOW), skip), [A], Stage.PROOF))


def test_a_block_in_the_running_launch_is_worth_completing() -> None:
    half, whole = windows(begun(), 2, SLOW), windows(begun(), 4, SLOW)

    assert (True, False) == (is_half_done(half, trial(half)), is_half_done(whole, trial(whole)))
    assert not is_half_done(observe(half, CallBegan()), trial(half))


def test_an_undone_window_is_taken_again_at_its_place() -> None:
    state = observe(windows(begun(), 4, SLOW), Undone(num=1))
    visit = next_window(state, trial(state), "")

    assert (1, 3) == (visit.block, visit.position)


def test_the_tolerance_is_the_users() -> None:
    state = windows(begun(replace(PLAN, rule=SearchRule(tolerance=0.3))), 24, {"a": -0.1})

    assert Verdict.NO_REGRESSION is trial(state).verdict


def test_a_cell_at_the_other_side_of_a_block_is_another_comparison() -> None:
    seed = next(seed for seed in range(9) if block_order(seed + 1, 1)[0] == "B")
    state = windows(begun(replace(hot_plan(toggle_space(("a", "b"))), seed=seed)), 1, {})
    space, (only,) = state.plan.space, state.readings

    # The candidate of `a alone` is the base of `b back`: its place in the block is another one.
    assert ("a", ("a", "bad")) == (only.cell, space.back(B))
    assert 1 == trial(state).number
    assert 1 not in [item.number for item in proof_trials(state, [B], Stage.PROOF)]
