"""Whole runs on the CPU: numbers, tokens, phases, commands, and workers that are killed."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import wait_for_lines

from flashprof.contracts.control import CommandName, CommandWriter
from flashprof.contracts.errors import SubjectError
from flashprof.contracts.events import EventLog
from flashprof.contracts.outcome import Outcome
from flashprof.stats.sanity import check_numbers
from pipeline.data.buckets import ROW_MULTIPLE
from pipeline.presets import FILLED, TINY
from pipeline.signals import StopSignals
from pipeline.toggles import ROUNDING

pytestmark = pytest.mark.slow

NUM_STEPS = 12
LIGHT = replace(TINY, data=replace(TINY.data, token_budget=1024), drafter=replace(TINY.drafter, num_anchors=16))
Train = Callable[..., Any]


@pytest.fixture(scope="module")
def base_losses() -> dict[int, float]:
    """Losses of the cell `none` on 1+1, filled by the first test that needs them."""
    return {}


@pytest.fixture
def losses_of_none(train: Train, base_losses: dict[int, float]) -> dict[int, float]:
    if not base_losses:
        base_losses.update(train().gauges("loss"))
    return base_losses


def num_trained_tokens(log: EventLog) -> int:
    return sum(step.num_tokens for step in log.steps)


@pytest.mark.parametrize("topology", ["1+1", "2+1", "1+2", "shared"])
def test_a_run_trains_every_step_and_counts_every_token(train: Train, topology: str) -> None:
    run = train(topology=topology)
    drafters = [log for name, log in run.logs.items() if name.startswith("drafter")]
    targets = [log for name, log in run.logs.items() if name.startswith("target")]

    assert f"finished after {NUM_STEPS} steps" in run.said
    for log in drafters:
        losses = [gauge.value for gauge in log.gauges if gauge.name == "loss"]
        ends = [mark.detail for mark in log.marks if mark.name == "end"]
        assert list(range(NUM_STEPS)) == [step.step for step in log.steps]
        assert NUM_STEPS == len(losses)
        assert all(map(math.isfinite, losses))
        assert [{"num_tokens": num_trained_tokens(log), "num_steps": NUM_STEPS}] == ends
        assert {0.0} == {gauge.value for gauge in log.gauges if gauge.name == "hidden_mismatch"}
    # What the dispatcher hands out, targets compute and drafters train is the same text.
    expected = num_trained_tokens(run.logs["dispatcher-0"])
    assert expected == sum(map(num_trained_tokens, targets)) == sum(map(num_trained_tokens, drafters))


def test_the_same_seed_gives_the_same_losses_also_from_two_targets(
    train: Train, losses_of_none: dict[int, float]
) -> None:
    assert losses_of_none == train(topology="2+1").gauges("loss")


def test_toggles_that_declare_no_difference_make_none(train: Train, losses_of_none: dict[int, float]) -> None:
    assert losses_of_none == train("queue=4,async-metrics,grad-norm,warmup,docids,early-exit").gauges("loss")


def test_sliding_all_layers_changes_the_numbers(train: Train, losses_of_none: dict[int, float]) -> None:
    assert losses_of_none != train("swa").gauges("loss")


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
def test_compiled_and_closed_forms_change_numbers_by_rounding_at_most(
    train: Train, losses_of_none: dict[int, float]
) -> None:
    run = train("compile,analytic-mask,fused-loss")

    assert losses_of_none == pytest.approx(run.gauges("loss"), rel=ROUNDING)
    assert 1 == len([mark for mark in run.logs["drafter-0"].marks if mark.name == "compile"])


def test_filled_batches_are_packed_rows_with_hardly_any_padding(train: Train) -> None:
    preset = replace(LIGHT, data=replace(LIGHT.data, batches=FILLED))

    filled = train("warmup", preset=preset, num_steps=6)

    steps = filled.logs["target-0"].steps
    assert 0.93 * 1024 < sum(step.num_tokens for step in steps) / len(steps)
    assert all(step.num_padding_tokens < ROW_MULTIPLE for step in steps)
    ways = {mark.detail["way"] for mark in filled.logs["target-0"].marks if mark.detail.get("phase") == "forward"}
    assert {"layers: 6, eager, packed"} == ways
    assert re.search(r"batch shapes; [0-3]\.[0-9] % padding", filled.said)
    assert {0.0} == {gauge.value for gauge in filled.logs["drafter-0"].gauges if gauge.name == "hidden_mismatch"}


def test_accumulated_batches_make_one_step(train: Train) -> None:
    preset = replace(LIGHT, recipe=replace(LIGHT.recipe, accumulate=3))

    run = train(topology="2+2", num_steps=4, preset=preset)

    for name in ("drafter-0", "drafter-1"):
        log = run.logs[name]
        assert 4 == len(log.steps)
        assert 12 == len([span for span in log.spans if span.phase == "backward"])
    assert num_trained_tokens(run.logs["dispatcher-0"]) == sum(
        num_trained_tokens(run.logs[f"drafter-{rank}"]) for rank in range(2)
    )


@pytest.mark.parametrize(
    ("expression", "fault", "reason"),
    [
        ("async-metrics", "metrics-unordered", "read before their copy was ordered"),
        ("none", "pack-unordered", "not those that the target computed"),
        ("all", "none", None),
    ],
)
def test_fast_but_wrong_is_caught_and_all_that_is_healthy_passes(
    train: Train, expression: str, fault: str, reason: str | None
) -> None:
    run = train(expression, fault=fault)

    found = check_numbers(list(run.logs.values()))
    assert (reason is None and found is None) or (reason is not None and reason in str(found))


def test_phases_cover_the_wall_time_of_every_lane(train: Train) -> None:
    run = train(num_steps=40)

    for name, log in run.logs.items():
        # The first steps load caches; a lane's own steps mark the stretch that is looked at.
        start_ns, end_ns = log.steps[8].end_ns, log.steps[-2].end_ns
        covered_ns = sum(
            min(span.end_ns, end_ns) - max(span.start_ns, start_ns)
            for span in log.spans
            if span.depth == 0 and span.thread == "main" and span.end_ns > start_ns and span.start_ns < end_ns
        )
        assert covered_ns / (end_ns - start_ns) > 0.97, name


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_commands_reach_all_drafters_before_the_same_step_and_stop_ends_the_run(train: Train, run_folder: Path) -> None:
    def command() -> None:
        wait_for_lines(run_folder / "events" / "drafter-0.jsonl", '["step"', 3)
        writer = CommandWriter(run_folder / "control")
        writer.send(CommandName.SET_TOGGLES, values={"swa": True, "queue": 6, "warmup": True})
        writer.send(CommandName.WINDOW_START, label="a", kind="measure")
        wait_for_lines(run_folder / "events" / "drafter-1.jsonl", '["ack"', 2)
        writer.send(CommandName.STOP)

    commander = in_background(command)
    run = train(topology="1+2", num_steps=0)
    commander.join()
    acks = {name: [(ack.command_id, ack.name, ack.step) for ack in log.acks] for name, log in run.logs.items()}
    detail = run.logs["drafter-0"].acks[0].detail

    assert "stopped by command" in run.said
    assert acks["drafter-0"] == acks["drafter-1"]
    assert [(1, "set_toggles"), (2, "window_start")] == [ack[:2] for ack in acks["drafter-0"]]
    assert [(3, "stop")] == [ack[:2] for ack in acks["dispatcher-0"]]
    assert {"swa": True, "queue": 6} == detail["values"]
    assert ["warmup"] == list(detail["refused"])
    assert run.logs["drafter-0"].steps[-1].step == run.logs["drafter-1"].steps[-1].step


def test_a_noted_signal_ends_all_drafters_after_the_same_step(train: Train, run_folder: Path) -> None:
    signals = StopSignals()

    def interrupt() -> None:
        wait_for_lines(run_folder / "events" / "drafter-0.jsonl", '["step"', 3)
        signals.note(signal.SIGINT, None)

    interrupter = in_background(interrupt)
    run = train("queue=4", topology="2+2", num_steps=0, signals=signals)
    interrupter.join()
    num_steps = [len(run.logs[f"drafter-{rank}"].steps) for rank in range(2)]

    assert num_steps[0] == num_steps[1] >= 3
    assert f"stopped by SIGINT after {num_steps[0]} steps; nothing saved" in run.said


@pytest.mark.parametrize(("victim", "topology"), [("target-0", "2+1"), ("drafter-1", "1+2"), ("drafter-0", "1+1")])
def test_a_killed_worker_ends_the_run_by_name_and_nobody_stays(
    train: Train, run_folder: Path, victim: str, topology: str, capfd: pytest.CaptureFixture[str]
) -> None:
    killed_at_s = []

    def kill() -> None:
        path = run_folder / "events" / f"{victim}.jsonl"
        wait_for_lines(path, '["step"', 3)
        pid = int(path.read_text(encoding="utf-8").split('"pid": ')[1].split(",")[0])
        killed_at_s.append(time.perf_counter())
        os.kill(pid, signal.SIGKILL)

    killer = in_background(kill)
    with pytest.raises(SubjectError) as caught:
        train(topology=topology, num_steps=0)
    took_s = time.perf_counter() - killed_at_s[0]
    killer.join()

    assert f"{victim} was killed by SIGKILL" == caught.value.what
    assert "it left no message" == caught.value.where
    assert Outcome.KILLED is caught.value.outcome
    assert took_s < 10
    # The fork server, which serves the next test, has no worker left.
    assert [] == [child for server in psutil.Process().children() for child in server.children()]
    assert "Traceback" not in capfd.readouterr().err
