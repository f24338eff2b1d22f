"""A hot comparison in virtual time: blocks alternate without pause, and events alone give the same blocks again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from fake_world import STEP_TOKENS, Script, World, press_ctrl_c

from flashprof.app.hot import HotPlan, hot_blocks, hot_results
from flashprof.app.measure import Recording, Schedule
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import EventLog
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import WindowKind
from flashprof.contracts.toggles import ToggleValues
from flashprof.store.run_folder import RunFolder
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import find_switches
from flashprof.windows.table import build_windows, check_tokens

ARMS: dict[Arm, ToggleValues] = {Arm.BASE: {"swa": True}, Arm.CANDIDATE: {"swa": False}}
PLAN = HotPlan(window_steps=4, min_settle_steps=1, max_settle_steps=12, num_pilot_blocks=3)


def noisy_steps(sd: float = 0.02, seed: int = 1) -> Callable[[int], float]:
    rng = random.Random(seed)
    factors = [1 + rng.gauss(0, sd) for _ in range(4000)]
    return lambda index: 0.1 * factors[index]


def slower(factor: float) -> Script:
    return Script(step_s=noisy_steps(), toggle_factor=lambda values: factor if values.get("swa") is False else 1.0)


@dataclass
class Study:
    """Takes blocks until there are enough."""

    num_blocks: int = 6
    first_block: int = 1
    plan: HotPlan = PLAN
    blocks: list[Block] = field(default_factory=list)

    def take(self, block: Block) -> bool:
        self.blocks.append(block)
        return len(self.blocks) < self.num_blocks

    def schedule(self) -> Schedule:
        return hot_blocks(
            self.plan,
            ARMS,
            lambda number: "ABBA" if number % 2 else "BAAB",
            first_block=self.first_block,
            on_block=self.take,
            site="here",
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def compare(world: World, study: Study) -> tuple[Recording, RunFolder]:
    return world.record(study.schedule())


def logs_of(folder: RunFolder) -> list[EventLog]:
    return read_event_logs(folder.events)


def mean_difference(blocks: list[Block]) -> float:
    return sum(block.difference for block in blocks) / len(blocks)


def test_blocks_show_what_the_candidate_costs(world: World) -> None:
    world.script = slower(1.2)
    study = Study()
    recording, _ = compare(world, study)

    assert (Outcome.COMPLETED, "") == (recording.outcome, recording.reason)
    assert -0.182 == pytest.approx(mean_difference(study.blocks), abs=0.02)
    assert [(1, "ABBA"), (2, "BAAB"), (3, "ABBA")] == [(block.number, block.order) for block in study.blocks[:3]]
    assert {(("run",), "here", 4)} == {(block.launches, block.site, block.num_windows) for block in study.blocks}


def test_events_alone_give_the_same_blocks_again(world: World) -> None:
    world.script = slower(1.2)
    study = Study(first_block=5)
    _, folder = compare(world, study)
    windows, blocks = hot_results(logs_of(folder), launch="run", site="here")

    assert tuple(study.blocks) == blocks
    assert list(range(5, 11)) == [block.number for block in blocks]
    assert 4 * 6 == len(windows)


def test_a_crash_keeps_the_complete_blocks_and_windows(world: World) -> None:
    world.script = Script(exits=(40.0, 1), last_words="RuntimeError: boom")
    study = Study(num_blocks=1000)
    recording, folder = compare(world, study)
    windows, blocks = hot_results(logs_of(folder), launch="run", site="here")

    assert Outcome.CRASHED is recording.outcome
    assert tuple(study.blocks) == blocks
    assert 4 * len(blocks) <= len(windows) < 4 * (len(blocks) + 1)


def test_each_arm_is_warmed_up_before_the_first_block(world: World) -> None:
    _, folder = compare(world, Study(num_blocks=1))
    switches = find_switches(logs_of(folder))

    assert ["warm-up base", "warm-up candidate", "1.1 base", "1.2 candidate", "1.3 candidate", "1.4 base"] == [
        switch.label for switch in switches
    ]
    # Steady state is not found in less than 12 blocks of 0.25 s.
    assert all(later.at_ns - earlier.at_ns > 3e9 for earlier, later in pairwise(switches[:3]))


@pytest.mark.parametrize(("after_steps", "compile_s"), [(1, 90.0), (4, 50.0)])
def test_compiling_at_the_first_use_is_waited_for(world: World, after_steps: int, compile_s: float) -> None:
    compiled: list[int] = []
    world.script = Script(step_s=lambda index: compile_s if index in compiled else 0.1)

    def plant() -> None:
        compiled.append(len(read_event_logs(world.reports / ".run.part" / "events")[0].steps) + after_steps)

    world.plan = replace(world.plan, start_timeout_s=600.0)
    world.when_stage("warming up the candidate", plant)
    study = Study(num_blocks=2)
    recording, _ = compare(world, study)

    assert Outcome.COMPLETED is recording.outcome, recording.reason
    assert 0 == pytest.approx(mean_difference(study.blocks), abs=1e-6)


def test_an_arm_that_never_trains_a_step_is_no_measurement(world: World) -> None:
    world.script = Script(toggle_factor=lambda values: 1e9 if values.get("swa") is False else 1.0)
    study = Study()
    recording, _ = compare(world, study)

    assert Outcome.TIMED_OUT is recording.outcome
    assert "no training step within 60 s of the first switch to the candidate" in recording.reason
    assert [] == study.blocks


@pytest.mark.parametrize("lag", [0, 1, 7])
def test_settle_steps_are_found_and_told_by_later_switches(world: World, lag: int) -> None:
    world.script = Script(
        step_s=noisy_steps(),
        toggle_factor=lambda values: 1.2 if values.get("swa") is False else 1.0,
        switch_lag_steps=lag,
    )
    study = Study(num_blocks=8)
    recording, folder = compare(world, study)
    switches = find_switches(logs_of(folder))
    told = [(later.block, later.settle_steps) for earlier, later in pairwise(switches) if earlier.cell != later.cell]

    assert {12} == {settle_steps for block, settle_steps in told if 1 <= block <= 3}
    assert {max(1, lag)} == {settle_steps for block, settle_steps in told if block > 3}
    assert 1 == sum(f"{max(1, lag)} steps are dropped" in note for note in recording.notes)
    assert -0.182 == pytest.approx(mean_difference(study.blocks[3:]), abs=0.02)


def test_the_arm_that_takes_longer_to_settle_decides_for_both(world: World) -> None:
    first_steps: dict[str, int] = {}

    def slow_after_a_switch_to_the_candidate(index: int) -> float:
        last = world.journal[-1] if world.journal else ""
        since = index - first_steps.setdefault(last, index)
        return 0.2 if last.endswith("candidate") and since < 5 else 0.1

    world.script = Script(step_s=slow_after_a_switch_to_the_candidate)
    _, folder = compare(world, Study(num_blocks=5))

    assert 5 == find_switches(logs_of(folder))[-1].settle_steps


def test_the_arm_in_force_needs_no_long_settling(world: World) -> None:
    _, folder = compare(world, Study(num_blocks=1))
    switches = [switch for switch in find_switches(logs_of(folder)) if switch.block]

    assert ["ABBA"] * 4 == [switch.order for switch in switches]
    assert [12, 12, 1, 12] == [switch.settle_steps for switch in switches]


def test_at_least_what_the_plan_says_is_dropped(world: World) -> None:
    study = Study(num_blocks=4, plan=HotPlan(min_settle_steps=5))
    _, folder = compare(world, study)

    assert 5 == find_switches(logs_of(folder))[-1].settle_steps


@pytest.mark.parametrize(("window_tokens", "num_steps"), [(None, 4), (6 * STEP_TOKENS, 6), (1, 1)])
def test_windows_are_cut_by_tokens(world: World, window_tokens: int | None, num_steps: int) -> None:
    study = Study(num_blocks=1, plan=HotPlan(window_tokens=window_tokens))
    _, folder = compare(world, study)
    windows, _ = hot_results(logs_of(folder), launch="run")

    *first, last = [window.num_steps for window in windows]

    # The others go on while the next switch is sent, read and obeyed.
    assert all(num_steps <= num <= num_steps + 3 for num in first)
    assert max(first) > num_steps == last


def test_no_pause_lies_between_blocks(world: World) -> None:
    study = Study(num_blocks=5)
    _, folder = compare(world, study)
    windows, _ = hot_results(logs_of(folder), launch="run")
    late = [window for window in windows if window.block > PLAN.num_pilot_blocks]
    gaps_s = [(later.start_ns - earlier.end_ns) / 1e9 for earlier, later in pairwise(late)]

    # One step settles, and at most three go by until the switch is sent, read and obeyed.
    assert max(gaps_s) <= 0.45


def test_the_windows_table_shows_the_same_windows(world: World) -> None:
    recording, folder = compare(world, Study(num_blocks=2))
    logs = logs_of(folder)
    windows, _ = hot_results(logs, launch="run")
    table = build_windows(logs, steady_ns=recording.steady_ns)
    check_tokens(table, logs)

    assert [(window.start_ns, window.end_ns, window.num_tokens) for window in windows] == [
        (row.start_ns, row.end_ns, row.num_tokens) for row in table if row.kind is WindowKind.MEASURE
    ]
    assert {"1.1 base", "2.4 candidate"} <= {row.label for row in table}


def test_a_refused_toggle_is_a_usage_error_with_its_reason(world: World) -> None:
    world.script = Script(refuses={"swa": "cold: it needs a new start"})
    with pytest.raises(UsageError) as caught:
        compare(world, Study())

    assert "swa: cold: it needs a new start" == caught.value.offered
    assert "kill_tree" == world.journal[-1]


def test_a_subject_that_does_not_answer_is_no_measurement(world: World) -> None:
    world.script = Script(acknowledges=False)
    study = Study()
    recording, _ = compare(world, study)

    assert Outcome.TIMED_OUT is recording.outcome
    assert "does not answer the command to set toggles; try: --method cold" == recording.reason.partition("subject ")[2]
    assert [] == study.blocks


def test_a_subject_without_steps_cannot_be_compared_hot(world: World) -> None:
    world.script = Script(emits=False)
    recording, _ = compare(world, Study())

    assert Outcome.TOOL_FAILED is recording.outcome
    assert "reports none" in recording.reason


def test_a_subject_that_does_not_repeat_the_detail_says_so(world: World) -> None:
    world.script = Script(repeats_detail=False)
    recording, _ = compare(world, Study())

    assert Outcome.TOOL_FAILED is recording.outcome
    assert "without repeating" in recording.reason


def test_a_window_that_never_fills_ends_the_launch(world: World) -> None:
    plan = HotPlan(window_tokens=10**9, window_timeout_s=30.0)
    recording, _ = compare(world, Study(plan=plan))

    assert Outcome.TIMED_OUT is recording.outcome
    assert "window 1.1 base did not get its 1,000,000,000 tokens within 30 s" in recording.reason


def test_ctrl_c_keeps_the_blocks(world: World) -> None:
    study = Study(num_blocks=1000)

    def interrupt(block: Block) -> bool:
        study.take(block)
        if block.number == 3:
            press_ctrl_c()
        return True

    schedule = hot_blocks(PLAN, ARMS, lambda _: "AB", first_block=1, on_block=interrupt)
    recording, folder = world.record(schedule)

    assert Outcome.INTERRUPTED is recording.outcome
    assert tuple(study.blocks) == hot_results(logs_of(folder), launch="run")[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_settle_steps": 0},
        {"min_settle_steps": 9, "max_settle_steps": 8},
        {"window_tokens": 0},
        {"window_steps": 0},
    ],
)
def test_a_plan_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        HotPlan(**wrong)
