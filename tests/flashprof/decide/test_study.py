"""The course of a study: what it wants next, whatever it was told, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from study_facts import LEVEL, cold_failed, cold_launch, cold_pair, hot_block, hot_ended, judge

from flashprof.contracts.comparison import Arm, Block, Comparison, DecisionRule, Method, Standing, Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import MethodChoice
from flashprof.decide.actions import Action, Finish, LaunchCold, MeasureHot
from flashprof.decide.observations import CallBegan, Observation, cut_off
from flashprof.decide.orders import ARM_OF, block_order
from flashprof.decide.plan import StudyPlan
from flashprof.decide.study import StudyState, next_action, observe, replay
from flashprof.stats.compare import compare_blocks

PLAN = StudyPlan(base="none", candidate="swa", sites=("here",))
COLD = replace(PLAN, method=MethodChoice.COLD)
SCREEN = replace(PLAN, confirmed=())
SLOWER, SAME = -0.2, 0.0


def real_judge(blocks: Sequence[Block], rule: DecisionRule, spent_s: float) -> Comparison:
    return compare_blocks(blocks, rule, spent_s=spent_s)


def after(plan: StudyPlan, *observations: Observation) -> Action:
    return next_action(replay(plan, [CallBegan(), *observations]), judge)


def finish(plan: StudyPlan, *observations: Observation) -> Finish:
    action = after(plan, *observations)
    assert isinstance(action, Finish)
    return action


def hot_blocks(num: int, difference: float = SLOWER) -> list[Observation]:
    return [hot_block(number, difference) for number in range(1, num + 1)]


def cold_pairs(num: int, difference: float = SLOWER) -> list[Observation]:
    return [launch for number in range(1, num + 1) for launch in cold_pair(number, difference)]


def first_arm(block: int) -> Arm:
    return ARM_OF[block_order(PLAN.seed, block, 2)[0]]


def other(arm: Arm) -> Arm:
    return next(item for item in Arm if item is not arm)


def test_it_screens_first_and_goes_on_block_by_block_in_one_launch() -> None:
    assert MeasureHot(launch=1, first_block=1, site="here") == after(PLAN)
    assert MeasureHot(launch=1, first_block=3, site="here") == after(PLAN, *hot_blocks(2))


def test_a_launch_that_ended_with_an_open_answer_is_followed_by_another_on_the_next_site() -> None:
    plan = replace(PLAN, sites=("gpu 0", "gpu 1"))
    action = after(plan, hot_block(1), hot_ended(1))

    assert MeasureHot(launch=2, first_block=2, site="gpu 1") == action
    assert "hot-2" == action.run_id


def test_a_screened_regression_is_confirmed_by_pairs_in_their_drawn_order() -> None:
    arm = first_arm(1)
    first = after(PLAN, *hot_blocks(3), hot_ended())
    second = after(PLAN, *hot_blocks(3), hot_ended(), cold_launch(arm, 1))

    assert LaunchCold(arm=arm, block=1, attempt=1, site="here") == first
    assert f"cold-1-{arm}-1" == first.run_id
    assert LaunchCold(arm=other(arm), block=1, attempt=1, site="here") == second


def test_a_confirmed_regression_stands_on_its_cold_launches() -> None:
    answer = finish(PLAN, *hot_blocks(3), hot_ended(), *cold_pairs(3))

    assert (Verdict.REGRESSION, Standing.CONFIRMED) == (answer.verdict, answer.standing)
    assert [Method.HOT, Method.COLD] == [comparison.method for comparison in answer.comparisons]
    assert [60.0, 300.0] == [comparison.spent_s for comparison in answer.comparisons]
    assert (360.0, (), ()) == (answer.spent_s, answer.failures, answer.notes)


def test_a_cold_block_is_the_difference_of_its_launches() -> None:
    (block,) = replay(COLD, cold_pair(1, -0.25)).cold_blocks

    assert (-0.25, LEVEL, 10, 100.0) == (
        block.difference,
        block.base_log_tok_per_s,
        block.num_windows,
        block.length_s,
    )
    assert block_order(COLD.seed, 1, 2) == block.order
    assert [f"cold-1-{ARM_OF[letter]}-1" for letter in block.order] == list(block.launches)


def test_no_regression_needs_no_confirmation_unless_it_is_asked_for() -> None:
    both = replace(PLAN, confirmed=(Verdict.REGRESSION, Verdict.NO_REGRESSION))
    answer = finish(PLAN, *hot_blocks(3, SAME), hot_ended())

    assert (Verdict.NO_REGRESSION, Standing.SCREENED) == (answer.verdict, answer.standing)
    assert isinstance(after(both, *hot_blocks(3, SAME), hot_ended()), LaunchCold)


def test_cold_launches_that_contradict_the_screening_stand_and_say_so() -> None:
    answer = finish(PLAN, *hot_blocks(3, SLOWER), hot_ended(), *cold_pairs(3, SAME))

    assert (Verdict.NO_REGRESSION, Standing.CONFIRMED) == (answer.verdict, answer.standing)
    assert ("hot blocks said regression, cold launches say no regression: the cold ones stand",) == answer.notes


def test_cold_launches_without_an_answer_leave_the_screened_verdict() -> None:
    rule = DecisionRule(budget_s=250)
    answer = finish(replace(PLAN, rule=rule), *hot_blocks(3), hot_ended(), *cold_pairs(2))

    assert (Verdict.REGRESSION, Standing.SCREENED) == (answer.verdict, answer.standing)
    assert ("hot blocks said regression, cold launches have not confirmed it yet",) == answer.notes


def test_screening_alone_and_cold_launches_alone() -> None:
    assert Standing.SCREENED is finish(SCREEN, *hot_blocks(3), hot_ended()).standing
    assert isinstance(after(COLD), LaunchCold)
    assert Standing.CONFIRMED is finish(COLD, *cold_pairs(3)).standing


def test_the_budget_ends_it_with_an_open_answer() -> None:
    plan = replace(SCREEN, rule=DecisionRule(budget_s=100))
    answer = finish(plan, hot_block(1), hot_block(2), hot_ended(length_s=100))

    assert (Verdict.INCONCLUSIVE, Standing.SCREENED, 100.0) == (answer.verdict, answer.standing, answer.spent_s)
    assert isinstance(after(plan, hot_block(1), hot_block(2), hot_ended(length_s=99)), MeasureHot)


def test_start_up_of_a_running_launch_counts_against_the_budget() -> None:
    plan = replace(SCREEN, rule=DecisionRule(budget_s=100))

    assert isinstance(after(plan, replace(hot_block(1), launch_s=100.0)), Finish)


def test_a_pair_is_completed_beyond_the_budget_but_tried_once_only() -> None:
    plan = replace(COLD, rule=DecisionRule(budget_s=40))
    arm = first_arm(1)
    half = cold_launch(arm, 1, length_s=50)
    failed = cold_failed(other(arm), 1, Outcome.KILLED)

    assert LaunchCold(arm=other(arm), block=1, attempt=1, site="here") == after(plan, half)
    assert isinstance(after(plan, half, failed), Finish)
    assert isinstance(after(plan, *cold_pair(1)), Finish)


def test_a_larger_budget_and_a_stricter_rule_go_on_with_all_blocks() -> None:
    facts = [*hot_blocks(3), hot_ended(), *cold_pairs(2)]
    larger = replace(PLAN, rule=DecisionRule(budget_s=9_999, tolerance=0.001))

    assert isinstance(after(replace(PLAN, rule=DecisionRule(budget_s=200)), *facts), Finish)
    assert LaunchCold(arm=first_arm(3), block=3, attempt=1, site="here") == after(larger, *facts)


def test_blocks_of_earlier_calls_are_counted_as_reused() -> None:
    answer = finish(PLAN, *hot_blocks(3), hot_ended(), *cold_pairs(2), CallBegan(), *cold_pair(3))

    assert 5 == answer.num_reused


def test_blocks_and_launches_count_once() -> None:
    facts = [*hot_blocks(2), hot_ended(), *cold_pairs(1), cold_failed(Arm.BASE, 2, Outcome.KILLED)]
    once = replay(PLAN, facts)

    assert once == replay(PLAN, [*facts, *facts])


def test_of_two_launches_of_an_arm_in_a_block_the_first_counts_and_both_cost() -> None:
    twice = replay(COLD, [*cold_pair(1, -0.2), cold_launch(Arm.CANDIDATE, 1, LEVEL, attempt=2)])

    assert [pytest.approx(-0.2)] == [block.difference for block in twice.cold_blocks]
    assert 150.0 == twice.spent_s


@pytest.mark.parametrize(
    ("outcome", "num_attempts"), [(Outcome.KILLED, 3), (Outcome.HUNG, 2), (Outcome.TIMED_OUT, 2), (Outcome.CRASHED, 2)]
)
def test_a_failed_launch_is_retried_within_its_block_and_then_the_block_is_skipped(
    outcome: Outcome, num_attempts: int
) -> None:
    arm = first_arm(1)
    seen: list[Observation] = []
    for attempt in range(1, num_attempts + 1):
        assert LaunchCold(arm=arm, block=1, attempt=attempt, site="here") == after(COLD, *seen)
        seen.append(cold_failed(arm, 1, outcome, attempt=attempt))

    assert LaunchCold(arm=first_arm(2), block=2, attempt=1, site="here") == after(COLD, *seen)
    late = [cold_launch(arm, 1, attempt=9) for arm in Arm]
    assert () == replay(COLD, [*seen, *late]).cold_blocks


def test_an_arm_that_fails_in_two_blocks_running_is_given_up() -> None:
    def crashes(block: int) -> list[Observation]:
        return [cold_failed(Arm.CANDIDATE, block, Outcome.CRASHED, attempt=attempt) for attempt in (1, 2)]

    answer = finish(COLD, *crashes(1), *crashes(2))

    assert Verdict.INCONCLUSIVE is answer.verdict
    assert "cold-2-candidate-2: crashed; not launched any more" in answer.failures[-1]
    assert isinstance(after(COLD, *crashes(1), *cold_pair(2), *crashes(3)), LaunchCold)


def test_an_arm_that_does_not_fit_is_given_up_and_the_screened_verdict_stays() -> None:
    facts = [cold_failed(Arm.BASE, 1, Outcome.OUT_OF_MEMORY, attempt=attempt) for attempt in (1, 2)]
    answer = finish(PLAN, *hot_blocks(3), hot_ended(), *facts)

    assert (Verdict.REGRESSION, Standing.SCREENED) == (answer.verdict, answer.standing)
    assert 2 == len(answer.failures)


@pytest.mark.parametrize(
    "end", [hot_ended(1, Outcome.WRONG_NUMBERS), cold_failed(Arm.BASE, 4, Outcome.WRONG_NUMBERS)], ids=["hot", "cold"]
)
def test_wrong_numbers_leave_nothing_to_compare_in_this_call_and_in_later_ones(end: Observation) -> None:
    answer = finish(PLAN, *hot_blocks(3), end, *cold_pairs(3), CallBegan())

    assert (Verdict.INCONCLUSIVE, ()) == (answer.verdict, answer.comparisons)
    assert "--fresh" in answer.notes[0]


def test_hot_launches_that_fail_without_a_block_give_way_to_cold_ones() -> None:
    crashes = [hot_ended(launch, Outcome.CRASHED) for launch in (1, 2)]

    assert MeasureHot(launch=2, first_block=1, site="here") == after(PLAN, *crashes[:1])
    assert isinstance(after(PLAN, *crashes), LaunchCold)
    assert Verdict.INCONCLUSIVE is finish(SCREEN, *crashes).verdict
    assert Standing.CONFIRMED is finish(PLAN, *crashes, *cold_pairs(3)).standing


def test_a_hot_launch_that_crashes_after_a_block_has_got_on() -> None:
    facts: list[Observation] = []
    for launch in (1, 2, 3, 4):
        facts += [hot_block(launch, -0.03, launch=launch, length_s=1), hot_ended(launch, Outcome.CRASHED, length_s=9)]

    assert MeasureHot(launch=5, first_block=5, site="here") == after(PLAN, *facts)
    assert "hot-4: crashed; its complete blocks count. So it was." == replay(PLAN, facts).failures[-1].sentence


def test_a_hot_launch_that_ends_well_without_a_block_is_not_repeated_for_ever() -> None:
    answer = finish(SCREEN, hot_ended(1))

    assert "hot-1: ended early; not launched any more" in answer.failures[0]


@pytest.mark.parametrize("outcome", [Outcome.INTERRUPTED, Outcome.TOOL_FAILED])
def test_a_stop_keeps_everything_and_the_next_call_goes_on(outcome: Outcome) -> None:
    arm = first_arm(1)
    facts = [*hot_blocks(3), hot_ended(), cold_failed(arm, 1, outcome)]
    answer = finish(PLAN, *facts)

    assert (Verdict.REGRESSION, 70.0, 1) == (answer.verdict, answer.spent_s, len(answer.failures))
    assert LaunchCold(arm=arm, block=1, attempt=2, site="here") == after(PLAN, *facts, CallBegan())
    done = [replace(launch, run_id=f"{launch.run_id} again") for launch in cold_pair(1)]
    assert () == finish(PLAN, *facts, CallBegan(), *done, *cold_pair(2), *cold_pair(3)).failures


def test_a_launch_that_nobody_saw_end_is_no_try() -> None:
    arm = first_arm(1)
    facts = [cold_failed(arm, 1, Outcome.KILLED, attempt=attempt) for attempt in (1, 2)]
    resumed = [cut_off(f"cold-1-{arm}-3", length_s=5), CallBegan()]

    assert LaunchCold(arm=arm, block=1, attempt=4, site="here") == after(COLD, *facts, *resumed)
    assert MeasureHot(launch=2, first_block=2, site="here") == after(
        PLAN, hot_block(1), cut_off("hot-1", length_s=30), CallBegan()
    )


def test_a_new_call_gives_what_failed_another_chance() -> None:
    facts = [cold_failed(first_arm(1), 1, Outcome.OUT_OF_MEMORY, attempt=attempt) for attempt in (1, 2)]

    assert isinstance(after(COLD, *facts), Finish)
    assert LaunchCold(arm=first_arm(1), block=1, attempt=3, site="here") == after(COLD, *facts, CallBegan())
    once_more = cold_failed(first_arm(1), 1, Outcome.OUT_OF_MEMORY, attempt=3)
    assert LaunchCold(arm=first_arm(1), block=1, attempt=4, site="here") == after(COLD, *facts, CallBegan(), once_more)


def test_tries_of_a_hot_launch_begin_anew_with_each_block_and_each_call() -> None:
    crashes = [hot_ended(launch, Outcome.CRASHED) for launch in (1, 2, 3)]

    assert MeasureHot(launch=3, first_block=1, site="here") == after(PLAN, crashes[0], CallBegan(), crashes[1])
    assert MeasureHot(launch=4, first_block=2, site="here") == after(
        PLAN, crashes[0], hot_block(1, launch=2), *crashes[1:]
    )


def test_both_launches_of_a_pair_use_one_site_and_pairs_go_round() -> None:
    plan = replace(COLD, sites=("gpu 0", "gpu 1"))
    moved = replace(COLD, sites=("gpu 7",))
    half = cold_launch(first_arm(2), 2, site="gpu 1")

    assert LaunchCold(arm=first_arm(2), block=2, attempt=1, site="gpu 1") == after(plan, *cold_pair(1))
    assert LaunchCold(arm=other(first_arm(2)), block=2, attempt=1, site="gpu 1") == after(moved, *cold_pair(1), half)


def test_disturbed_launches_and_split_pairs_are_marked() -> None:
    base, candidate = cold_pair(1)
    split = replay(COLD, [base, replace(candidate, site="there")])
    disturbed = replay(COLD, [base, replace(candidate, disturbances=("gpu 0: thermal",))])

    assert ("its launches ran on here and on there",) == split.cold_blocks[0].disturbances
    assert ("gpu 0: thermal",) == disturbed.cold_blocks[0].disturbances


@pytest.mark.parametrize(("true", "verdict"), [(-0.05, Verdict.REGRESSION), (0.0, Verdict.NO_REGRESSION)])
def test_with_the_real_judge_noise_ends_in_the_right_verdict(true: float, verdict: Verdict) -> None:
    rng = np.random.default_rng(4)
    plan = replace(PLAN, rule=DecisionRule(budget_s=9_999), confirmed=(Verdict.REGRESSION, Verdict.NO_REGRESSION))
    state = replay(plan, [CallBegan()])
    while not isinstance(action := next_action(state, real_judge), Finish):
        match action:
            case MeasureHot(first_block=number):
                fact = hot_block(number, rng.normal(true, 0.005))
                order = block_order(plan.seed, number)
                state = observe(state, replace(fact, block=replace(fact.block, order=order)))
            case LaunchCold(arm=arm, block=number):
                level = LEVEL + rng.normal(0, 0.005) + (true if arm is Arm.CANDIDATE else 0)
                state = observe(state, cold_launch(arm, number, level))

    assert (verdict, Standing.CONFIRMED) == (action.verdict, action.standing)
    assert 30 > action.comparisons[0].num_blocks


def test_the_states_of_a_study_are_values() -> None:
    state = StudyState(plan=PLAN)
    observe(state, hot_block(1))

    assert StudyState(plan=PLAN) == state
