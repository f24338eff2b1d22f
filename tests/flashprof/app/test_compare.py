"""A whole comparison in virtual time: found, confirmed, resumed after whatever stopped it, honest about failures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import Script
from study_world import BASE, CANDIDATE, FakeMeter, Launch, StudyWorld

from flashprof.app.compare import plan
from flashprof.cli.compare import exit_status
from flashprof.contracts.comparison import DecisionRule, Method, Standing, Verdict
from flashprof.contracts.errors import ToolError, UsageError
from flashprof.contracts.study import MethodChoice

SLOWER = 1.2
"""A sixth of the tok/s."""


@pytest.fixture
def world(tmp_path: Path) -> StudyWorld:
    return StudyWorld(tmp_path)


def only_candidate(change: Callable[[Script], Script]) -> Callable[[Launch, Script], Script]:
    return lambda launch, script: change(script) if launch.toggles == CANDIDATE.expression else script


def test_a_slower_candidate_is_found_hot_and_confirmed_by_launches(world: StudyWorld) -> None:
    world.factor = SLOWER
    result = world.compare()
    hot, cold = result.comparisons

    assert (Verdict.REGRESSION, Standing.CONFIRMED) == (result.verdict, result.standing)
    assert (Method.HOT, Method.COLD) == (hot.method, cold.method)
    assert 1 / SLOWER - 1 == pytest.approx(hot.effect.estimate, abs=0.01)
    assert 1 / SLOWER - 1 == pytest.approx(cold.effect.estimate, abs=0.02)
    assert "hot-1" == world.run_ids[0]
    assert 2 * cold.num_blocks == len(world.run_ids) - 1
    assert (0, (), False) == (result.num_reused, result.failures, result.is_interrupted)
    assert result.spent_s == pytest.approx(hot.spent_s + cold.spent_s)


def test_a_launch_in_which_both_arms_took_turns_has_no_throughput_of_its_own(world: StudyWorld) -> None:
    result = world.compare()
    summary = json.loads((Path(dict(result.paths)["study"]) / "launches" / "hot-1" / "summary.json").read_text())

    assert summary["tok_per_s"] is None
    assert any("took turns" in note for note in summary["notes"])


def test_each_pair_launches_both_arms_in_the_order_that_its_block_tells(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.cold_only()
    result = world.compare()

    assert [run_id for block in result.blocks for run_id in block.launches] == world.run_ids
    assert {"AB", "BA"} == {block.order for block in result.blocks}
    letters = {"none": "A", "swa": "B"}
    assert "".join(block.order for block in result.blocks) == "".join(letters[item.toggles] for item in world.launches)


@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_no_regression_needs_no_launches_to_confirm_it(world: StudyWorld, factor: float) -> None:
    world.factor = factor
    result = world.compare()

    assert (Verdict.NO_REGRESSION, Standing.SCREENED) == (result.verdict, result.standing)
    assert ["hot-1"] == world.run_ids


def test_screening_alone_confirms_nothing(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.ask(confirm=False)
    result = world.compare()

    assert (Verdict.REGRESSION, Standing.SCREENED) == (result.verdict, result.standing)
    assert ["hot-1"] == world.run_ids


def test_a_spent_budget_is_inconclusive_and_a_larger_one_goes_on(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.ask(rule=DecisionRule(budget_s=25.0))
    first = world.compare()
    world.ask(rule=DecisionRule(budget_s=600.0))
    second = world.compare()

    assert Verdict.INCONCLUSIVE is first.verdict
    assert first.comparisons[0].to_resolve_s is not None or first.comparisons[0].num_blocks < 4
    assert first.blocks
    assert (len(first.blocks), first.blocks) == (second.num_reused, second.blocks[: len(first.blocks)])
    assert (Verdict.REGRESSION, Standing.CONFIRMED) == (second.verdict, second.standing)
    assert second.spent_s > first.spent_s >= 25.0


def test_the_same_command_says_the_same_and_measures_nothing(world: StudyWorld) -> None:
    world.factor = SLOWER
    first = world.compare()
    launched = list(world.run_ids)
    second = world.compare()

    assert launched == world.run_ids
    assert replace(first, num_reused=len(first.blocks)) == second


def test_fresh_puts_aside_what_was_measured(world: StudyWorld) -> None:
    world.compare()
    world.ask(fresh=True)
    result = world.compare()

    assert (0, ["hot-1", "hot-1"]) == (result.num_reused, world.run_ids)


def test_another_question_has_another_folder(world: StudyWorld) -> None:
    first = world.compare()
    world.ask(windows=replace(world.request.windows, measure_s=2.0))
    second = world.compare()
    world.ask(windows=replace(world.request.windows, start_timeout_s=99.0))
    third = world.compare()

    assert first.study != second.study
    assert (second.study, len(second.blocks)) == (third.study, third.num_reused)


def test_results_are_left_in_the_folder(world: StudyWorld) -> None:
    result = world.compare()
    document = json.loads((world.study / "comparison.json").read_text())

    assert {"comparison.json", "verdict.json", "report.md", "report.txt", "study.json", "journal.jsonl"} <= {
        path.name for path in world.study.iterdir()
    }
    assert "no regression" == document["verdict"] == json.loads((world.study / "verdict.json").read_text())["verdict"]
    assert str(world.study) == dict(result.paths)["study"]


def test_progress_tells_of_few_blocks(world: StudyWorld) -> None:
    world.ask(rule=DecisionRule(budget_s=130.0, tolerance=0.0))
    result = world.compare()
    told = [stage.split()[1] for stage in world.progress.stages if stage.startswith("block ")]

    assert 32 < len(result.blocks) < 48
    assert ["1", "2", "4", "8", "16", "32"] == told


def test_a_dry_run_starts_nothing_and_counts_what_is_there(world: StudyWorld) -> None:
    before = plan(world.request, world.ports)
    is_untouched = not world.reports.exists()
    result = world.compare()
    after = plan(world.request, world.ports)

    assert is_untouched
    assert ["hot-1"] == world.run_ids
    assert not any(line.startswith("reused") for line in before)
    assert any(f"{len(result.blocks)} hot blocks" in line for line in after if line.startswith("reused"))
    assert f"folder    {world.study}" == after[-1]


def test_what_earlier_launches_took_goes_into_the_plan(world: StudyWorld) -> None:
    world.compare()
    guessed = plan(world.request, world.ports)
    world.cold_only()
    world.compare()
    world.ask(method=MethodChoice.AUTO)
    learnt = plan(world.request, world.ports)

    assert any("1 s to start" in line and "1 earlier run" in line for line in guessed)
    assert any("1 s to start" in line and "earlier runs of this cell" in line for line in learnt)


# Failures

FAILURES = {
    "crashed": (
        lambda script: replace(script, exits=(5.0, 1), last_words="RuntimeError: boom"),
        {"cold-1-candidate-1", "cold-1-candidate-2", "cold-2-candidate-1", "cold-2-candidate-2"},
    ),
    "out of memory": (
        lambda script: replace(script, exits=(5.0, 1), last_words="torch.OutOfMemoryError: CUDA out of memory."),
        {"cold-1-candidate-1", "cold-1-candidate-2"},
    ),
    "wrong numbers": (
        lambda script: replace(script, loss=lambda index: math.nan),
        {"cold-1-candidate-1"},
    ),
    "hung": (
        lambda script: replace(script, silent_from_step=30),
        {"cold-1-candidate-1", "cold-1-candidate-2", "cold-2-candidate-1", "cold-2-candidate-2"},
    ),
    "failed while loading": (
        lambda script: replace(script, load_s=None, exits=(1.0, 1), last_words="OSError: no weights"),
        {"cold-1-candidate-1", "cold-1-candidate-2"},
    ),
}


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_candidate_that_always_fails_is_named_and_never_a_number(world: StudyWorld, outcome: str) -> None:
    change, launched = FAILURES[outcome]
    world.script = only_candidate(change)
    world.cold_only()
    result = world.compare()

    assert (Verdict.INCONCLUSIVE, (), ()) == (result.verdict, result.comparisons, result.blocks)
    assert launched == {run_id for run_id in world.run_ids if "candidate" in run_id}
    assert len(launched) == len(result.failures)
    assert all(outcome in failure for failure in result.failures)
    assert 4 == exit_status(result, "pass")


def test_a_crash_by_chance_is_tried_again_and_leaves_no_trace_in_the_effect(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.cold_only()

    def crash(launch: Launch, script: Script) -> Script:
        is_first = launch.run_id == "cold-1-candidate-1"
        return replace(script, exits=(5.0, 1), last_words="RuntimeError: boom") if is_first else script

    world.script = crash
    result = world.compare()

    assert Verdict.REGRESSION is result.verdict
    assert 1 / SLOWER - 1 == pytest.approx(result.comparisons[0].effect.estimate, abs=0.02)
    assert "cold-1-candidate-2" in result.blocks[0].launches
    assert ["cold-1-candidate-1"] == [failure.partition(":")[0] for failure in result.failures]
    assert 1 == exit_status(result, None)


def test_hot_launches_that_crash_keep_their_blocks_and_another_goes_on(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.ask(confirm=False)
    world.script = lambda launch, script: (
        replace(script, exits=(24.0, 1), last_words="RuntimeError: boom") if launch.run_id == "hot-1" else script
    )
    result = world.compare()

    assert Verdict.REGRESSION is result.verdict
    assert [("hot-1",), ("hot-2",)] == sorted({block.launches for block in result.blocks})
    assert list(range(1, len(result.blocks) + 1)) == [block.number for block in result.blocks]
    assert 1 == len(result.failures)
    assert "its complete blocks count" in result.failures[0]


def test_hot_launches_that_give_nothing_leave_the_question_to_cold_ones(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.script = lambda launch, script: (
        replace(script, exits=(9.0, 1), last_words="RuntimeError: boom") if "hot" in launch.run_id else script
    )
    result = world.compare()

    assert (Verdict.REGRESSION, Standing.CONFIRMED) == (result.verdict, result.standing)
    assert ["hot-1", "hot-2"] == world.run_ids[:2]
    assert all("cold" in run_id for run_id in world.run_ids[2:])
    assert any("nothing more was screened" in note for note in result.notes)


def test_a_hot_launch_with_wrong_numbers_compares_nothing(world: StudyWorld) -> None:
    world.script = lambda launch, script: replace(script, loss=lambda index: math.inf if index > 40 else 5.0 - index)
    result = world.compare()

    assert (Verdict.INCONCLUSIVE, (), ["hot-1"]) == (result.verdict, result.comparisons, world.run_ids)
    assert 4 == exit_status(result, None)


@pytest.mark.parametrize(
    ("method", "stage", "nth"),
    [(MethodChoice.AUTO, "block 2 is measured", 1), (MethodChoice.COLD, "measure window 2", 4)],
)
def test_a_full_disk_stops_the_study_and_keeps_what_it_has(
    world: StudyWorld, method: MethodChoice, stage: str, nth: int
) -> None:
    def fill() -> None:
        raise OSError(28, "No space left on device")

    world.factor = SLOWER
    world.ask(method=method)
    world.at_stage(stage, fill, nth=nth)
    first = world.compare()
    second = world.compare()

    assert (Verdict.INCONCLUSIVE, 1) == (first.verdict, len(first.failures))
    assert "No space left on device" in first.failures[0]
    assert len(first.blocks) == second.num_reused > 0
    assert (Verdict.REGRESSION, ()) == (second.verdict, second.failures)


def test_a_journal_that_cannot_be_written_is_an_error_with_a_way_out(world: StudyWorld) -> None:
    def block_the_way() -> None:
        (world.study / "journal.jsonl").rename(world.study / "journal.old")
        (world.study / "journal.jsonl").mkdir()

    world.at_stage("alternating", block_the_way)
    with pytest.raises(ToolError, match="cannot write to the study folder") as caught:
        world.compare()

    assert "goes on" in str(caught.value.next_command)


# Toggles, sites, disturbances


def test_a_toggle_that_cannot_be_switched_is_wrong_input(world: StudyWorld) -> None:
    world.script = lambda launch, script: replace(script, refuses={"swa": "cold: it needs a new start"})
    with pytest.raises(UsageError, match="refuses to switch") as caught:
        world.compare()

    assert "swa: cold" in str(caught.value.offered)
    assert [] == list((world.study / "launches").iterdir())


def test_a_toggle_that_is_not_honoured_never_makes_a_block(world: StudyWorld) -> None:
    world.cold_only()
    world.applied = dict(BASE.values)
    for _ in range(2):
        with pytest.raises(UsageError, match="does not honour toggle swa") as caught:
            world.compare()

    assert ("swa=on", "swa=off") == (caught.value.offered, caught.value.allowed)
    assert ["cold-1-base-1"] == [path.name for path in (world.study / "launches").iterdir()]


def test_blocks_go_round_the_gpu_sets_and_stay_on_one(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.ask(gpu_sets=((0, 1), (2, 3)))
    world.cold_only()
    result = world.compare()
    visible = {launch.run_id: launch.env["CUDA_VISIBLE_DEVICES"] for launch in world.launches}

    assert [("0,1",), ("2,3",), ("0,1",)] == [
        tuple({visible[run_id] for run_id in block.launches}) for block in result.blocks[:3]
    ]
    assert all(block.site.endswith(f" GPU {visible[block.launches[0]]}") for block in result.blocks)
    # What they took is known to the next plan, though GPUs are part of a cell.
    assert any("1 s to start" in line for line in plan(world.request, world.ports))
    assert Verdict.REGRESSION is result.verdict


def test_plain_launches_see_the_gpus_that_the_user_shows(world: StudyWorld) -> None:
    world.compare()

    assert "CUDA_VISIBLE_DEVICES" not in world.launches[0].env


def test_a_disturbed_window_leaves_its_block_out_and_says_so(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.ask(confirm=False)
    world.meter = meter = FakeMeter(world.clock)
    world.at_stage("block 2 is measured", lambda: meter.be_busy(1.5))
    result = world.compare()
    (comparison,) = result.comparisons
    disturbed = [block for block in result.blocks if block.disturbances]

    assert Verdict.REGRESSION is result.verdict
    assert 3 in [block.number for block in disturbed]
    assert (len(disturbed), len(result.blocks) - len(disturbed)) == (comparison.num_left_out, comparison.num_blocks)
    assert "other processes used" in disturbed[0].disturbances[0]
    assert "block 3 left out: other processes used" in (world.study / "report.txt").read_text()
