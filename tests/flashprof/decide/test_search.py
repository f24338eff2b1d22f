"""The course of a search in simulated worlds: what it concludes, whatever breaks, and however often it is killed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from search_worlds import (
    Run,
    World,
    cold_plan,
    drive,
    hot_plan,
    line_of_commits,
    reading,
    search_reading,
    toggle_space,
)

from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import SearchRule, Stage
from flashprof.decide.choices import NUM_TO_CONTROL
from flashprof.decide.commit_space import CommitInfo, CommitSpace
from flashprof.decide.observations import CallBegan
from flashprof.decide.search import look, next_action, think
from flashprof.decide.search_actions import Build, Finish, Visit
from flashprof.decide.search_observations import LaunchEnded, Measured, SearchObservation, UserSkipped
from flashprof.decide.search_state import observe, replay

SPACE = toggle_space(("a", "b", "c"))
PLAN = hot_plan(SPACE)
CALM = 0.005
ONE = World(space=SPACE, effects={("b",): -0.18}, window_sd=CALM)
COMMITS = line_of_commits(16)
CULPRIT = World(space=COMMITS, effects={("c9",): -0.18}, window_sd=CALM)


def named(run: Run) -> list[str]:
    return [cause.name for cause in run.answer.culprits]


def stages(run: Run) -> Counter[Stage]:
    return Counter(visit.stage for visit in run.visits)


def is_proof(observation: SearchObservation) -> bool:
    return isinstance(observation, Measured) and observation.reading.stage is Stage.PROOF


@pytest.fixture(scope="module")
def one() -> Run:
    return drive(PLAN, ONE)


def test_one_toggle_is_found_proved_and_confirmed(one: Run) -> None:
    answer = one.answer

    assert (Verdict.REGRESSION, Standing.CONFIRMED, ["b"]) == (answer.verdict, answer.standing, named(one))
    assert answer.drop.low < -0.165 < answer.drop.high
    assert [(False, True), (True, True)] * 2 == [(proof.is_back, proof.is_shown) for proof in answer.proofs]
    assert answer.beliefs[0].probability >= 0.95
    assert (("b",),) == tuple(cause.members for cause in answer.beliefs[0].causes)
    assert (None, (), 0) == (answer.to_resolve_s, answer.failures, answer.num_reused)


def test_both_ends_come_first_and_again_in_between(one: Run) -> None:
    first = [visit.cell for visit in one.visits[:4]]
    hard = drive(PLAN, replace(ONE, effects={("b",): -0.03}, window_sd=0.03), max_steps=4 * NUM_TO_CONTROL)
    search = [visit for visit in hard.visits if visit.stage is Stage.SEARCH]

    assert {"good": 2, "bad": 2} == Counter(first)
    assert all("drift" in visit.why for visit in search[NUM_TO_CONTROL - 1 :: NUM_TO_CONTROL])


def test_all_of_a_hot_search_and_its_proof_lies_in_one_launch(one: Run) -> None:
    hot = {visit.run_id for visit in one.visits if visit.stage is not Stage.CONFIRM}
    cold = [visit for visit in one.visits if visit.stage is Stage.CONFIRM]

    assert {"hot-1"} == hot
    assert {PLAN.num_windows_cold} == set(Counter(visit.run_id for visit in cold).values())
    assert all(
        1 == len({visit.cell for visit in cold if visit.run_id == run_id}) for run_id in {v.run_id for v in cold}
    )


def test_a_pair_is_told_from_two_main_effects() -> None:
    plan = replace(PLAN, confirm=False)
    pair = drive(plan, replace(ONE, effects={("a", "c"): -0.18}))
    two = drive(plan, replace(ONE, effects={("a",): -0.09, ("c",): -0.09}))

    assert (["a × c"], ["a", "c"]) == (named(pair), named(two))
    assert [Verdict.REGRESSION] * 2 == [run.answer.verdict for run in (pair, two)]
    assert Standing.SCREENED is pair.answer.standing


def test_a_gain_that_masks_a_loss_is_named_and_needs_no_proof() -> None:
    run = drive(replace(PLAN, confirm=False), replace(ONE, effects={("a",): -0.18, ("c",): 0.15}))

    assert (["a"], ["c"]) == (named(run), [cause.name for cause in run.answer.gains])
    assert {("a",)} == {proof.cause.members for proof in run.answer.proofs} - {()}


def test_ends_that_are_alike_are_no_regression() -> None:
    run = drive(PLAN, replace(ONE, effects={}))

    assert (Verdict.NO_REGRESSION, []) == (run.answer.verdict, named(run))
    assert "alike" in run.answer.reason


def test_a_loss_no_larger_than_usual_is_found_since_the_ends_differ() -> None:
    run = drive(replace(PLAN, confirm=False), replace(ONE, effects={("b",): -0.028}, window_sd=0.002))

    assert (Verdict.REGRESSION, ["b"]) == (run.answer.verdict, named(run))
    assert ["b"] == [cause.name for cause in run.answer.beliefs[0].causes]


def test_a_refuted_proof_is_said_and_does_not_conclude() -> None:
    # Search readings say b, switching b says no: as if the search had met a disturbance in b's cells only.
    run = Run(state=replay(replace(PLAN, rule=SearchRule(tolerance=0.05)), [CallBegan()]))
    for num in range(400):
        action = next_action(run.state)
        run.steps.append((num, action))
        if not isinstance(action, Visit):
            break
        value = ONE.reading(action, num).log_tok_per_s
        if action.stage is Stage.PROOF:
            value = replace(ONE, effects={}).reading(action, num).log_tok_per_s
        run.learn(Measured(reading=reading(action, num, value)))

    assert Verdict.REGRESSION is not run.answer.verdict
    assert any(proof.is_refuted for proof in run.answer.proofs)


def test_a_proof_that_was_made_is_told_when_another_cause_leads(one: Run) -> None:
    proofs = [num for num, item in enumerate(one.observations) if is_proof(item)]
    # Eight switch b alone; later windows of the search say that it is c, and time is up.
    made = one.observations[: proofs[7] + 1]
    late = [search_reading("bc"[num % 2], 500 + num, (9.5, 9.32)[num % 2]) for num in range(200)]
    state = replay(replace(PLAN, confirm=False, rule=SearchRule(budget_s=1.0)), [*made, *late])
    answer = next_action(state)

    assert isinstance(answer, Finish)
    assert "b" not in [cause.name for cause in answer.beliefs[0].causes]
    assert ("b", False) in [(proof.cause.name, proof.is_back) for proof in answer.proofs if proof.comparison]


def test_a_cell_that_crashes_is_left_out_and_is_not_slow() -> None:
    run = drive(PLAN, replace(ONE, crashing=frozenset({"b", "a"})))

    assert (Verdict.REGRESSION, ["b"]) == (run.answer.verdict, named(run))
    assert any("crashed in b" in sentence for sentence in run.answer.failures)
    assert any("could not be switched alone" in note for note in run.answer.notes)


def test_a_search_without_an_end_says_so() -> None:
    run = drive(PLAN, replace(ONE, crashing=frozenset({"good"})))

    assert Verdict.INCONCLUSIVE is run.answer.verdict
    assert "the good end cannot be measured (crashed)" in run.answer.reason
    assert run.answer.drop is None


def test_an_interruption_stops_and_the_same_command_goes_on(one: Run) -> None:
    journal = one.observations[:7]
    end = LaunchEnded(run_id="hot-1", group="", outcome=Outcome.INTERRUPTED, length_s=70.0)
    stopped = next_action(replay(PLAN, [*journal, end]))
    again = drive(PLAN, ONE, journal=[*journal, end])

    assert isinstance(stopped, Finish)
    assert (Verdict.INCONCLUSIVE, "stopped; the same command goes on from here") == (stopped.verdict, stopped.reason)
    assert (["b"], 6) == (named(again), again.answer.num_reused)


def test_the_budget_ends_it_and_says_how_much_longer() -> None:
    run = drive(replace(PLAN, rule=SearchRule(budget_s=80.0)), ONE)

    assert (Verdict.INCONCLUSIVE, ["b"]) == (run.answer.verdict, named(run))
    assert "budget" in run.answer.reason
    assert run.answer.to_resolve_s > 0


def test_who_is_less_likely_than_not_is_not_named() -> None:
    run = drive(replace(cold_plan(COMMITS), rule=SearchRule(budget_s=160.0)), CULPRIT)
    best = run.answer.beliefs[0]

    assert best.probability < 0.5
    assert best.causes
    assert [] == named(run)
    assert run.answer.drop.high < 0


def test_a_budget_that_ends_the_confirmation_leaves_what_was_proved() -> None:
    run = drive(replace(PLAN, rule=SearchRule(budget_s=300.0)), ONE)

    assert (Verdict.REGRESSION, Standing.SCREENED) == (run.answer.verdict, run.answer.standing)
    assert any("not confirmed" in note for note in run.answer.notes)


def test_cold_toggles_need_a_launch_each_and_hot_ones_share() -> None:
    space = toggle_space(("a", "b", "c"), cold=("a",))
    run = drive(hot_plan(space), World(space=space, effects={("b",): -0.18}, window_sd=CALM))
    groups = {run_id: {v.group for v in run.visits if v.run_id == run_id} for run_id in {v.run_id for v in run.visits}}

    assert ["b"] == named(run)
    assert all(1 == len(found) for found in groups.values())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_killed_anywhere_the_journal_gives_the_same_next_action(one: Run, data: st.DataObject) -> None:
    num, action = data.draw(st.sampled_from(one.steps))
    journal = one.observations[:num]
    twice = [fact for fact in journal for _ in range(2)]

    assert action == next_action(replay(PLAN, journal))
    assert action == next_action(replay(PLAN, twice))


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 40))
def test_killed_anywhere_and_called_again_it_comes_to_the_same_answer(num: int) -> None:
    plan = replace(PLAN, confirm=False)
    killed = drive(plan, ONE, max_steps=num)
    run = drive(plan, ONE, journal=[fact for fact in killed.observations if not isinstance(fact, CallBegan)])
    readings = [fact.reading for fact in run.observations if isinstance(fact, Measured)]

    assert (Verdict.REGRESSION, ["b"]) == (run.answer.verdict, named(run))
    assert len(readings) == len({(r.launch, r.stage, r.proof, r.block, r.position, r.at_s) for r in readings})


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(), (("a",),), (("a",), ("b",)), (("b", "c"),)]))
def test_it_never_proves_what_is_not_so(seed: int, causes: tuple[tuple[str, ...], ...]) -> None:
    world = World(space=SPACE, effects=dict.fromkeys(causes, -0.12), window_sd=0.01, seed=seed)
    run = drive(replace(PLAN, confirm=False), world)

    if run.answer.verdict is Verdict.REGRESSION:
        assert set(causes) == {cause.members for cause in run.answer.culprits}
    assert not (causes and run.answer.verdict is Verdict.NO_REGRESSION)


def test_a_commit_is_found_among_broken_ones_and_shown_against_its_parent() -> None:
    run = drive(cold_plan(COMMITS), replace(CULPRIT, broken=frozenset({"c7", "c10", "c11"})))
    proof = run.answer.proofs[0]

    assert (Verdict.REGRESSION, Standing.CONFIRMED, ["c9"]) == (run.answer.verdict, run.answer.standing, named(run))
    assert ("c8", "c9") == (proof.base, proof.candidate)
    assert not {"c7", "c10", "c11"} & {visit.cell for visit in run.visits}


def test_each_commit_is_built_once_and_before_its_first_launch() -> None:
    run = drive(cold_plan(COMMITS, built=frozenset({"base"})), CULPRIT)
    builds = [action.group for _, action in run.steps if isinstance(action, Build)]

    assert len(builds) == len(set(builds))
    assert {visit.cell for visit in run.visits} - {"base"} == set(builds)


def test_a_culprit_beside_a_broken_parent_cannot_be_told_from_it() -> None:
    run = drive(cold_plan(COMMITS), replace(CULPRIT, broken=frozenset({"c8"})))

    assert Verdict.INCONCLUSIVE is run.answer.verdict
    assert {("c8",), ("c9",)} == {belief.causes[0].members for belief in run.answer.beliefs[:2]}


def test_a_culprit_on_a_side_branch_is_found_through_the_merge() -> None:
    names = [f"m{place}" for place in range(6)]
    sides = [f"s{place}" for place in range(4)]
    line = [CommitInfo(id=name, parents=((["base", *names])[place],)) for place, name in enumerate(names)]
    branch = [CommitInfo(id=name, parents=((["m1", *sides])[place],)) for place, name in enumerate(sides)]
    merge = CommitInfo(id="merge", parents=("m5", "s3"))
    last = CommitInfo(id="last", parents=("merge",))
    space = CommitSpace(commits=(*line, *branch, merge, last), good="base", bad="last", revertible=frozenset({"s2"}))
    run = drive(cold_plan(space), World(space=space, effects={("s2",): -0.18}, window_sd=CALM))

    assert (Verdict.REGRESSION, ["s2"]) == (run.answer.verdict, named(run))
    assert [("s1", "s2"), ("bad-without:s2", "last")] == [(p.base, p.candidate) for p in run.answer.proofs]


def test_a_cell_that_the_user_skips_is_not_asked_for(one: Run) -> None:
    cell = next(visit.cell for visit in one.visits if visit.cell not in ("good", "bad"))
    run = drive(replace(PLAN, confirm=False), ONE, journal=[UserSkipped(cell=cell)])

    assert cell not in {visit.cell for visit in run.visits}
    assert ["b"] == named(run)


def test_a_disturbed_window_is_no_evidence(one: Run) -> None:
    num, action = one.steps[6]
    state = replay(PLAN, one.observations[:num])
    assert isinstance(action, Visit)
    wild = observe(state, Measured(reading=reading(action, 99, 2.0, disturbances=("another process",))))

    assert think(state).view.leading == think(wild).view.leading


def test_a_look_says_what_is_believed_and_what_comes(one: Run) -> None:
    num, action = one.steps[6]
    state = replay(PLAN, one.observations[:num])
    seen = look(state, think(state))
    end = look(one.state, think(one.state))

    assert (action.cell, action.why, num - 1) == (seen.next_cell, seen.why, seen.num_readings)
    assert 1 >= sum(belief.probability for belief in seen.beliefs) > 0.5
    assert ("", one.answer.reason, None) == (end.next_cell, end.why, end.to_come_s)
