"""Whatever launches do, a study ends, asks for nothing that it gave up, and resumes from its journal."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from study_facts import LEVEL, cold_failed, cold_launch, hot_block, hot_ended, judge

from flashprof.contracts.comparison import Arm, DecisionRule, Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import MethodChoice
from flashprof.decide.actions import Action, Finish, LaunchCold, MeasureHot
from flashprof.decide.observations import (
    CallBegan,
    ColdFailed,
    Observation,
    cut_off,
    observation_from_json,
    observation_to_json,
)
from flashprof.decide.plan import StudyPlan
from flashprof.decide.study import StudyState, next_action, observe, replay

FAILURES = st.sampled_from([outcome for outcome in Outcome if not outcome.is_measurement])
OUTCOMES = st.one_of(st.just(Outcome.COMPLETED), FAILURES)
DIFFERENCES = st.sampled_from([-0.2, -0.03, 0.0])
PLANS = st.builds(
    StudyPlan,
    base=st.just("none"),
    candidate=st.just("swa"),
    method=st.sampled_from(MethodChoice),
    confirmed=st.sampled_from([(), (Verdict.REGRESSION,), (Verdict.REGRESSION, Verdict.NO_REGRESSION)]),
    rule=st.builds(DecisionRule, budget_s=st.integers(1, 1_000).map(float), tolerance=st.sampled_from([0.01, 0.04])),
    seed=st.integers(0, 5),
    max_retries=st.integers(0, 3),
    sites=st.sampled_from([("here",), ("gpu 0", "gpu 1")]),
)


def what_comes_of(action: Action, data: st.DataObject) -> list[Observation]:
    """One thing that may happen when the application does *action*."""
    outcome = data.draw(OUTCOMES)
    match action:
        case MeasureHot():
            if data.draw(st.booleans()):
                return [hot_block(action.first_block, data.draw(DIFFERENCES), launch=action.launch)]
            return [hot_ended(action.launch, outcome)]
        case LaunchCold(arm=arm, block=block, attempt=attempt) if outcome is Outcome.COMPLETED:
            level = LEVEL + (data.draw(DIFFERENCES) if arm is Arm.CANDIDATE else 0.0)
            return [cold_launch(arm, block, level, attempt=attempt, site=action.site)]
        case LaunchCold():
            return [cold_failed(action.arm, action.block, outcome, attempt=action.attempt)]
    return []


class Studies(RuleBasedStateMachine):
    """An application that does what the study wants, in a world where everything can fail."""

    @initialize(plan=PLANS)
    def begin(self, plan: StudyPlan) -> None:
        self.state = StudyState(plan=plan)
        self.journal: list[Observation] = []
        self.used: set[str] = set()
        self.learn(CallBegan())

    def learn(self, observation: Observation) -> None:
        self.journal.append(observation)
        self.state = observe(self.state, observation)

    @property
    def action(self) -> Action:
        return next_action(self.state, judge)

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        action = self.action
        if isinstance(action, Finish):
            return
        assert action.run_id not in self.state.ended
        for observation in what_comes_of(action, data):
            self.learn(observation)

    @rule(plan=PLANS)
    def call_again(self, plan: StudyPlan) -> None:
        """With another rule, another budget, after a finish or a stop: what is asked stays the same."""
        kept = replace(plan, seed=self.state.plan.seed, method=self.state.plan.method)
        self.state = replay(kept, self.journal)
        self.learn(CallBegan())

    @precondition(lambda self: not isinstance(self.action, Finish))
    @rule()
    def kill_and_resume(self) -> None:
        action = self.action
        assert not isinstance(action, Finish)
        self.learn(cut_off(action.run_id, length_s=5.0))
        self.learn(CallBegan())

    @rule(data=st.data())
    def hear_it_again(self, data: st.DataObject) -> None:
        before = self.state
        observation = data.draw(st.sampled_from(self.journal))
        if not isinstance(observation, CallBegan):
            assert before == observe(before, observation)

    @invariant()
    def a_replayed_journal_is_the_same_study(self) -> None:
        lines = [observation_to_json(observation) for observation in self.journal]
        again = replay(self.state.plan, map(observation_from_json, lines))

        assert self.state == again
        assert self.action == next_action(again, judge)

    @invariant()
    def nothing_is_asked_of_an_arm_that_was_given_up(self) -> None:
        action = self.action
        if isinstance(action, LaunchCold):
            assert not self.state.given_up
        if isinstance(action, MeasureHot):
            assert not self.state.given_up
            assert not self.state.is_hot_over

    @invariant()
    def no_failure_is_in_a_block(self) -> None:
        failed = {observation.run_id for observation in self.journal if isinstance(observation, ColdFailed)}

        assert not failed & {run_id for block in self.state.cold_blocks for run_id in block.launches}

    @invariant()
    def blocks_count_once_and_hold_both_arms(self) -> None:
        for blocks in (self.state.hot_blocks, self.state.cold_blocks):
            assert len(blocks) == len({block.number for block in blocks})
        assert all(len(set(block.launches)) == 2 for block in self.state.cold_blocks)

    @invariant()
    def the_budget_holds_but_for_the_other_launch_of_a_pair(self) -> None:
        action = self.action
        is_spent = self.state.spent_s >= self.state.plan.rule.budget_s
        if is_spent and not isinstance(action, Finish):
            assert isinstance(action, LaunchCold)
            assert self.state.pair(action.block)


TestStudies = Studies.TestCase
TestStudies.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(PLANS, st.data())
@settings(max_examples=150, deadline=None)
def test_every_study_ends_within_its_budget(plan: StudyPlan, data: st.DataObject) -> None:
    state = replay(plan, [CallBegan()])
    num_steps = 0
    while not isinstance(action := next_action(state, judge), Finish):
        num_steps += 1
        # Each failure costs 10 s at least here, each block 20 s.
        assert num_steps <= plan.rule.budget_s / 10 + 3
        for observation in what_comes_of(action, data):
            state = observe(state, observation)

    assert state.spent_s <= plan.rule.budget_s + 120
    assert all(text.count(": ") >= 1 for text in action.failures)
