"""Measuring one cell in virtual time: every end has its outcome, and nothing is left running."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import PLAN, FakeSampler, Script, World, press_ctrl_c

from flashprof.app.session import Session
from flashprof.contracts.control import CommandName
from flashprof.contracts.errors import ToolError, UsageError
from flashprof.contracts.experiment import SubjectKind
from flashprof.contracts.outcome import Outcome
from flashprof.store.tail import read_event_logs


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_healthy_run_takes_its_windows_in_turn_with_samplers_around_profile_windows_only(world: World) -> None:
    recording, _ = world.record()

    assert (Outcome.COMPLETED, "") == (recording.outcome, recording.reason)
    assert [
        "window_start measure-1",
        "window_end measure-1",
        "sampler on profile-1",
        "window_start profile-1",
        "window_end profile-1",
        "sampler off",
        "window_start measure-2",
        "window_end measure-2",
        "sampler on profile-2",
        "window_start profile-2",
        "window_end profile-2",
        "sampler off",
        "window_start measure-3",
        "window_end measure-3",
        "stop",
        "kill_tree",
    ] == world.journal


def test_windows_last_as_long_as_planned(world: World) -> None:
    _, folder = world.record()
    acks = {(ack.name, ack.detail.get("label")): ack.at_ns for ack in read_event_logs(folder.events)[0].acks}

    for label, seconds in (("measure-1", 2.0), ("profile-1", 1.0)):
        length_s = (acks["window_end", label] - acks["window_start", label]) / 1e9
        assert seconds == pytest.approx(length_s, abs=0.3), label


def test_a_schedule_does_what_is_done_between_steady_state_and_stop(world: World) -> None:
    seen: list[tuple[str, bool]] = []

    def schedule(session: Session) -> None:
        ack = session.command(CommandName.SET_TOGGLES, values={"swa": True}, label="x")
        assert ack is not None
        seen.append((session.run_id, ack.detail == {"values": {"swa": True}, "refused": {}, "label": "x"}))

    recording, _ = world.record(schedule)

    assert Outcome.COMPLETED is recording.outcome
    assert [("run", True)] == seen
    assert ["set_toggles x", "stop", "kill_tree"] == world.journal


def test_settle_steps_lie_between_a_sampler_and_its_window(world: World) -> None:
    world.plan = replace(PLAN, settle_steps=7)
    attached_ns: list[int] = []
    world.samplers[0].on_start = lambda: attached_ns.append(world.clock.now_ns)
    _, folder = world.record()
    log = read_event_logs(folder.events)[0]
    started_ns = next(ack.at_ns for ack in log.acks if ack.detail.get("label") == "profile-1")

    assert 7 <= sum(attached_ns[0] < step.end_ns <= started_ns for step in log.steps)


def test_the_subject_finds_the_run_folder_and_todays_emitter(world: World) -> None:
    world.record()
    emitter = world.reports / ".run.part" / "emitter" / "flashprof"

    assert {"__init__.py", "contracts", "emit.py"} <= {path.name for path in emitter.iterdir()}


def test_a_sampler_that_cannot_attach_is_left_out_with_its_remedy(world: World) -> None:
    refused = FakeSampler(world.journal, "spy", refusal=ToolError("no permission", next_command="ask root"))
    world.samplers.append(refused)
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert ["spy was left out: no permission; try: ask root"] == [note for note in recording.notes if "spy" in note]
    assert ["spy on profile-1"] == [entry for entry in world.journal if entry.startswith("spy")]
    assert "sampler on profile-2" in world.journal


def test_without_any_sampler_there_is_no_profile_window(world: World) -> None:
    world.samplers[0].refusal = ToolError("no permission")
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert not [entry for entry in world.journal if "profile" in entry and "window" in entry]


@pytest.mark.parametrize("error", [ToolError("unknown columns"), OSError(28, "No space left on device")])
def test_a_sampler_that_cannot_finish_costs_its_samples_only(world: World, error: Exception) -> None:
    world.samplers[0].stop_error = error
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert any(("unknown columns" if isinstance(error, ToolError) else "No space") in note for note in recording.notes)
    assert "kill_tree" == world.journal[-1]


def test_windows_of_a_subject_that_does_not_answer_are_cut_by_our_clock(world: World) -> None:
    world.script = Script(acknowledges=False)
    recording, _ = world.record()
    starts = [ack for ack in recording.observed if ack.name == CommandName.WINDOW_START]

    assert Outcome.COMPLETED is recording.outcome
    assert ["measure-1", "profile-1", "measure-2", "profile-2", "measure-3"] == [a.detail["label"] for a in starts]
    assert 1 == sum("does not answer" in note for note in recording.notes)
    assert "SIGINT" in world.journal


def test_a_run_that_never_settles_is_measured_and_says_so(world: World) -> None:
    world.script = Script(step_s=lambda index: max(0.05, 0.6 * 0.98**index))
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert recording.steady_ns is None
    assert any("had not settled after 20 s" in note for note in recording.notes)


@pytest.mark.parametrize(
    ("script", "outcome", "reason"),
    [
        (Script(exits=(1.0, 1), last_words="ValueError: no such model"), Outcome.LOAD_FAILED, "no such model"),
        (Script(exits=(1.0, 0)), Outcome.LOAD_FAILED, "status 0"),
        (Script(exits=(1.0, -9)), Outcome.KILLED, "SIGKILL"),
        (Script(exits=(9.0, 1), last_words="RuntimeError: boom"), Outcome.CRASHED, "boom"),
        (Script(exits=(9.0, 1), last_words="torch.OutOfMemoryError: CUDA out of memory"), Outcome.OUT_OF_MEMORY, "mem"),
        (Script(exits=(9.0, -9)), Outcome.KILLED, "SIGKILL"),
        (Script(exits=(9.0, 0)), Outcome.ENDED_EARLY, "finished by itself"),
        (Script(load_s=None), Outcome.TIMED_OUT, "no training step within 60 s"),
        (Script(silent_from_step=80), Outcome.HUNG, "no event and no output for 60 s"),
        (Script(obeys_stop=False, obeys_sigint=False), Outcome.TIMED_OUT, "asked to stop"),
    ],
    ids=lambda value: value if isinstance(value, Outcome) else "",
)
def test_each_bad_end_has_its_outcome_and_leaves_nothing(
    world: World, script: Script, outcome: Outcome, reason: str
) -> None:
    world.script = script
    recording, _ = world.record()

    assert outcome is recording.outcome
    assert reason in recording.reason
    assert "kill_tree" == world.journal[-1]
    assert _num_attached(world) == 0


def test_windows_before_a_crash_are_kept(world: World) -> None:
    world.script = Script(exits=(9.0, 1))
    _, folder = world.record()
    ended = [ack.detail["label"] for ack in read_event_logs(folder.events)[0].acks if ack.name == "window_end"]

    assert "measure-1" in ended
    assert "measure-3" not in ended


def test_a_subject_that_obeys_sigint_only_is_a_clean_end(world: World) -> None:
    world.script = Script(obeys_stop=False)
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert ["stop", "SIGINT", "kill_tree"] == world.journal[-3:]


def test_a_subject_that_refuses_to_stop_is_killed_with_a_note(world: World) -> None:
    world.script = Script(obeys_stop=False, obeys_sigint=False)
    recording, _ = world.record()

    assert "the subject did not end when asked and was killed" in recording.notes


def test_a_foreign_subject_that_ignores_sigint_is_still_measured(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(emits=False, obeys_sigint=False)
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert "the subject did not end when asked and was killed" in recording.notes


STAGES = ["starting", "waiting for steady", "measure window 2", "profile window 1", "stopping"]


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_is_an_outcome_in_every_stage(world: World, stage: str) -> None:
    world.when_stage(stage, press_ctrl_c)
    recording, _ = world.record()

    assert (Outcome.INTERRUPTED, "stopped by the user") == (recording.outcome, recording.reason)
    assert "kill_tree" == world.journal[-1]
    assert _num_attached(world) == 0
    assert any("interrupted" in note for note in world.progress.notes)


@pytest.mark.parametrize("stage", STAGES[1:4])
def test_after_ctrl_c_a_training_subject_may_end_cleanly(world: World, stage: str) -> None:
    world.when_stage(stage, press_ctrl_c)
    world.record()

    assert ["stop", "kill_tree"] == [entry for entry in world.journal if entry in ("stop", "kill_tree", "SIGINT")]


def test_after_ctrl_c_samplers_are_detached_before_the_subject_ends(world: World) -> None:
    world.when_stage("profile window 1", press_ctrl_c)
    world.record()

    assert world.journal.index("sampler off") < world.journal.index("stop")


def test_a_second_ctrl_c_ends_the_subject_at_once(world: World) -> None:
    world.script = Script(obeys_stop=False, obeys_sigint=False)
    world.when_stage("measure window 1", press_ctrl_c)
    world.when_stage("stopping", press_ctrl_c)
    recording, _ = world.record()

    assert Outcome.INTERRUPTED is recording.outcome
    assert "kill_tree" == world.journal[-1]
    assert "SIGINT" not in world.journal


def test_ctrl_c_while_a_sampler_attaches_detaches_it(world: World) -> None:
    world.samplers[0].on_start = press_ctrl_c
    recording, _ = world.record()

    assert Outcome.INTERRUPTED is recording.outcome
    assert _num_attached(world) == 0


def test_a_command_that_cannot_be_written_is_a_failure_of_the_tool(world: World) -> None:
    world.when_stage("measure window 2", lambda: shutil.rmtree(world.reports / ".run.part" / "control"))
    recording, _ = world.record()

    assert Outcome.TOOL_FAILED is recording.outcome
    assert "cannot send command" in recording.reason
    assert "kill_tree" == world.journal[-1]


def test_ctrl_c_where_no_command_can_be_written_still_ends_everything(world: World) -> None:
    world.when_stage("measure window 1", lambda: shutil.rmtree(world.reports / ".run.part" / "control"))
    world.when_stage("measure window 1", press_ctrl_c)
    recording, _ = world.record()

    assert Outcome.INTERRUPTED is recording.outcome
    assert "kill_tree" == world.journal[-1]


def test_what_our_own_pipeline_refuses_is_a_usage_error_with_its_words(world: World) -> None:
    said = "error: topology 'x' is not TARGETS+DRAFTERS\n  got: x\n  allowed: 1+1, 2+1\n  try: --topology 1+1"
    world.script = Script(exits=(0.3, 2), last_words=said)
    with pytest.raises(UsageError) as caught:
        world.record()

    assert [
        "error: the pipeline refuses: topology 'x' is not TARGETS+DRAFTERS",
        "  got: x",
        "  allowed: 1+1, 2+1",
        "  try: --topology 1+1",
    ] == caught.value.lines()
    assert "kill_tree" == world.journal[-1]


def test_status_2_of_a_foreign_subject_is_its_failure(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(exits=(0.3, 2), emits=False, last_words="train.py: error: unrecognized arguments")
    recording, _ = world.record()

    assert Outcome.LOAD_FAILED is recording.outcome
    assert "unrecognized arguments" in recording.reason


def test_a_foreign_subject_without_any_throughput_is_sampled_with_a_note(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(load_s=None, emits=False)
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert any("--tok-per-s" in note for note in recording.notes)
    assert "sampler on profile-1" in world.journal


@pytest.mark.parametrize(
    ("script", "pattern"), [(Script(load_s=40.0), ""), (Script(load_s=40.0, emits=False), r"tok/s=([\d,]+)")]
)
def test_a_foreign_subject_that_promises_throughput_is_waited_for(world: World, script: Script, pattern: str) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script, world.pattern = script, pattern
    recording, _ = world.record()

    assert Outcome.COMPLETED is recording.outcome
    assert not any("--tok-per-s" in note for note in recording.notes)


def _num_attached(world: World) -> int:
    num_on = sum(" on " in entry for entry in world.journal)
    return num_on - sum(entry.endswith(" off") for entry in world.journal)
