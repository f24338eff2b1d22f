"""A whole gate: a real repository and its worktree, a trainer in virtual time that reads its speed from its tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import Script, press_ctrl_c
from gate_world import SLOW, TOK_THRESHOLD, GateWorld, git
from study_world import Launch

from flashprof.app.gate import plan
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.gate import EQUAL_PACE, MEMORY, START_UP, GateMode, Threshold

CANDIDATE = "candidate"


@pytest.fixture
def world(tmp_path: Path) -> GateWorld:
    return GateWorld(tmp_path).make()


def is_head(launch: Launch) -> bool:
    return CANDIDATE in launch.run_id


def dies(launch: Launch, script: Script) -> Script:
    del launch
    return replace(script, exits=(0.5, 1), last_words="RuntimeError: boom")


def test_a_harmless_change_may_land_and_leaves_nothing_behind(world: GateWorld) -> None:
    before = (git(world.repo, "status", "--porcelain"), git(world.repo, "rev-parse", "HEAD"))
    found = world.gate()

    assert (Verdict.NO_REGRESSION, GateMode.INTERLEAVED) == (found.verdict, found.mode)
    assert (world.base, world.head) == (found.base_commit, found.head_commit)
    assert f"{world.head[:12]} change" == found.head
    assert 8 == len(world.launches)
    assert {"base", CANDIDATE} == {run_id.split("-")[2] for run_id in world.run_ids}
    assert before == (git(world.repo, "status", "--porcelain"), git(world.repo, "rev-parse", "HEAD"))
    assert 1 == len(git(world.repo, "worktree", "list").splitlines())
    assert found.localisation is None
    assert not any("differ in more" in note for note in found.notes)


def test_a_slow_change_fails_says_where_and_is_not_measured_twice(world: GateWorld) -> None:
    world.head = world.commit("slow", speed=SLOW)
    found = world.gate()
    num_launches = len(world.launches)
    (metric,) = found.metrics

    assert Verdict.REGRESSION is found.verdict
    assert metric.change is not None
    assert pytest.approx(-0.074, abs=0.01) == metric.change.estimate
    assert pytest.approx(10_000, rel=0.02) == metric.base
    assert found.reason == metric.reason
    assert found.localisation is not None
    assert "trainer forward" == found.localisation.parts[0].name
    assert found.study is not None
    assert 4 == len(found.study.blocks)
    assert Verdict.REGRESSION is world.gate().verdict
    assert num_launches == len(world.launches)


def test_a_failed_gate_is_explained_by_two_launches_more(world: GateWorld) -> None:
    world.commit("slow", speed=SLOW)
    world.want(explain=True)
    world.gate()

    assert 8 + 2 == len(world.launches)


def test_what_is_in_no_commit_is_measured_and_said(world: GateWorld) -> None:
    world.write("speed", SLOW)
    found = world.gate()

    assert Verdict.REGRESSION is found.verdict
    assert found.head.endswith("with changes that are in no commit")


def test_another_change_is_another_gate_and_logs_are_none(world: GateWorld) -> None:
    clean = plan(world.gated, world.ports)[-1]
    (world.repo / "train.log").write_text("step 1\n")
    logged = plan(world.gated, world.ports)[-1]
    (world.repo / "new.py").write_text("import os\n")
    changed = plan(world.gated, world.ports)[-1]

    assert clean.startswith("folder")
    assert clean == logged
    assert clean != changed


def test_a_head_that_is_named_is_measured_in_place_of_the_tree(world: GateWorld) -> None:
    world.write("speed", SLOW)
    world.want(head_ref="change")
    found = world.gate()

    assert Verdict.NO_REGRESSION is found.verdict
    assert all("worktrees" in launch.env["PYTHONPATH"] for launch in world.launches)


def test_what_has_landed_since_is_not_the_changes_doing(world: GateWorld) -> None:
    git(world.repo, "checkout", "-q", "main")
    world.commit("faster", speed="0.8")
    git(world.repo, "checkout", "-q", "change")
    found = world.gate()

    assert Verdict.NO_REGRESSION is found.verdict
    assert world.base == found.base_commit
    assert any("has gone on since" in note for note in found.notes)


def test_a_head_that_does_not_run_is_no_regression(world: GateWorld) -> None:
    world.script = lambda launch, script: dies(launch, script) if is_head(launch) else script
    found = world.gate()

    assert (Verdict.INCONCLUSIVE, True) == (found.verdict, found.is_failed)
    assert found.reason.startswith("head does not run, while base does")
    assert "boom" in found.reason
    assert found.failures


def test_a_base_that_does_not_run_is_said_to_be_the_base(world: GateWorld) -> None:
    world.script = lambda launch, script: script if is_head(launch) else dies(launch, script)
    found = world.gate()

    assert found.is_failed
    assert found.reason.startswith("base does not run")


def test_a_head_that_does_not_compile_is_not_launched(world: GateWorld) -> None:
    world.write("train", "print(\n")
    found = world.gate()

    assert (Verdict.INCONCLUSIVE, True, 0) == (found.verdict, found.is_failed, len(world.launches))
    assert found.reason.startswith("head does not run")
    assert "train.py" in found.reason


def test_wrong_numbers_are_a_failure(world: GateWorld) -> None:
    world.script = lambda launch, script: replace(script, counts_wrong=is_head(launch))
    found = world.gate()

    assert (Verdict.INCONCLUSIVE, True) == (found.verdict, found.is_failed)


def test_a_gate_that_was_stopped_goes_on(world: GateWorld) -> None:
    def look() -> None:
        if len(world.launches) == 3 and "stopped" not in world.progress.notes:
            world.progress.note("stopped")
            press_ctrl_c()

    world.clock.on_sleep.append(look)
    stopped = world.gate()
    found = world.gate()

    assert (True, False, Verdict.INCONCLUSIVE) == (stopped.is_interrupted, stopped.is_failed, stopped.verdict)
    assert Verdict.NO_REGRESSION is found.verdict
    assert len(world.launches) <= 9


def test_the_budget_ends_it_and_a_larger_one_goes_on(world: GateWorld) -> None:
    world.want(budget_s=20.0)
    short = world.gate()
    num_launches = len(world.launches)
    world.want(budget_s=1200.0)
    found = world.gate()

    assert (Verdict.INCONCLUSIVE, False) == (short.verdict, short.is_failed)
    assert 4 == num_launches
    assert Verdict.NO_REGRESSION is found.verdict
    assert 8 == len(world.launches)


def test_start_up_has_a_threshold_of_its_own(world: GateWorld) -> None:
    world.script = lambda launch, script: replace(script, load_s=9.0 if is_head(launch) else 6.0)
    world.want(thresholds=(TOK_THRESHOLD, Threshold(metric=START_UP, max_regression=0.2)))
    found = world.gate()
    tok_per_s, start_up = found.metrics

    # It decides: tok/s need not be waited for.
    assert Verdict.REGRESSION is found.verdict
    assert (Verdict.REGRESSION, "s") == (start_up.verdict, start_up.unit)
    assert pytest.approx((6.0, 9.0), abs=0.7) == (start_up.base, start_up.head)
    assert tok_per_s.verdict is not Verdict.REGRESSION
    assert found.reason == start_up.reason


def test_a_phase_has_a_threshold_of_its_own(world: GateWorld) -> None:
    world.commit("slow", speed=SLOW)
    thresholds = (
        replace(TOK_THRESHOLD, max_regression=0.2),
        Threshold(metric="phase:trainer forward", max_regression=0.02),
    )
    world.want(thresholds=thresholds)
    found = world.gate()

    assert Verdict.REGRESSION is found.verdict
    assert "ns a token" == found.metrics[1].unit
    assert pytest.approx(100_000, rel=0.03) == found.metrics[1].base
    assert Verdict.REGRESSION is found.metrics[1].verdict


def test_a_threshold_that_nothing_can_decide_is_refused_and_costs_one_pair(world: GateWorld) -> None:
    world.want(thresholds=(TOK_THRESHOLD, Threshold(metric=MEMORY, max_regression=0.1)))
    with pytest.raises(UsageError, match="memory is not recorded") as refused:
        world.gate()
    num_launches = len(world.launches)
    world.want(thresholds=(TOK_THRESHOLD, Threshold(metric="phase:trainer forwards", max_regression=0.1)))
    with pytest.raises(UnknownNameError) as unknown:
        world.gate()

    assert "memory_allocated_gib" in str(refused.value)
    assert "trainer forward" in unknown.value.known
    assert 2 == num_launches == len(world.launches)


def test_a_revision_that_is_not_there_is_refused(world: GateWorld) -> None:
    world.want(base_ref="mian")
    with pytest.raises(UnknownNameError, match="mian") as unknown:
        world.gate()

    assert "main" in unknown.value.known


def test_a_folder_outside_git_is_refused_in_the_gates_own_words(world: GateWorld, tmp_path: Path) -> None:
    world.want(repo=tmp_path)
    with pytest.raises(UsageError, match="not a git repository") as refused:
        world.gate()

    assert "flashprof gate" in (refused.value.next_command or "")


def test_base_and_head_alike_are_said_to_be(world: GateWorld) -> None:
    world.want(base_ref="change")

    assert any("the same commit" in line for line in plan(world.gated, world.ports))


def test_the_plan_starts_nothing_and_counts_what_is_there(world: GateWorld) -> None:
    lines = plan(world.gated, world.ports)
    is_new = not world.reports.exists()
    world.gate()
    later = plan(world.gated, world.ports)

    assert is_new
    assert any(line.startswith("measure") and f"{world.base[:12]} start" in line for line in lines)
    assert any(line.startswith("allowed") and "tok/s 3 %" in line for line in lines)
    assert not any(line.startswith("reused") for line in lines)
    assert any(line.startswith("reused    4 cold blocks") for line in later)


def test_a_failed_gate_goes_on_to_the_commit(world: GateWorld) -> None:
    world.commit("docs", readme="more\n")
    slow = world.commit("slow", speed="1.25")
    world.commit("rename", train="print('tok/s=2')\n")
    world.want(bisect=True, bisect_budget_s=36000.0)
    found = world.gate()

    assert (Verdict.REGRESSION, slow) == (found.verdict, found.culprit)
    assert any("slow" in note and "bisected" in note for note in found.notes)
    assert "bisect" in dict(found.paths)


def test_changes_that_are_in_no_commit_cannot_be_bisected(world: GateWorld) -> None:
    world.write("speed", SLOW)
    world.want(bisect=True)
    found = world.gate()

    assert (Verdict.REGRESSION, "") == (found.verdict, found.culprit)
    assert any("not bisected: head has changes" in note for note in found.notes)


def test_a_budget_that_is_spent_leaves_no_bisection(world: GateWorld) -> None:
    world.commit("slow", speed=SLOW)
    world.want(bisect=True, budget_s=80.0)
    found = world.gate()

    assert (Verdict.REGRESSION, "") == (found.verdict, found.culprit)
    assert any("--bisect-budget" in note for note in found.notes)


def test_a_phase_that_costs_more_fails_where_launches_differ_by_more_than_it_costs(world: GateWorld) -> None:
    even = {"forward": 0.3, "backward": 0.5, "loss": 0.2}
    slow = {"forward": 0.3, "backward": 0.5, "loss": 0.28}
    sum_slow = sum(slow.values())

    def draws_its_pace(launch: Launch, script: Script) -> Script:
        shares = {name: share / sum_slow for name, share in slow.items()} if is_head(launch) else even
        return replace(script, shares=shares)

    world.noise = 0.08
    world.script = draws_its_pace
    world.commit("slow", speed=SLOW)
    found = world.gate()
    whole, even_pace = found.metrics

    assert EQUAL_PACE == even_pace.threshold.metric
    assert (Verdict.INCONCLUSIVE, Verdict.REGRESSION) == (whole.verdict, even_pace.verdict)
    assert (Verdict.REGRESSION, even_pace.reason) == (found.verdict, found.reason)
    assert even_pace.change is not None
    assert pytest.approx(-0.074, abs=0.01) == even_pace.change.estimate
