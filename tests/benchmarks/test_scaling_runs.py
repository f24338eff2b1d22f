"""What the scaling model takes from a run folder: capacities, variation, devices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from scaling_folders import header, step, wait, work, write_run

from benchmarks.scaling_runs import num_devices, read_run, run_command, start, step_work_s, variation
from flashprof.contracts.events import EventLog
from pipeline.presets import TINY

WHOLE = [(0, 10**12)]


def test_a_stage_is_its_slowest_lane(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"), TINY)

    assert ("1+1", 9_900.0, 2, 8) == (run.topology, run.tok_per_s, run.num_devices, run.depth)
    assert (20_000.0, 10_000.0) == (run.stages.target_tok_per_s, run.stages.drafter_tok_per_s)
    assert 1000 == run.stages.batch_tokens
    assert pytest.approx(variation([0.1, 0.09, 0.11])) == run.stages.drafter_cv
    assert 0 == run.stages.target_cv


def test_waiting_is_no_work() -> None:
    records = [step(0, 50), step(1, 150), step(2, 200)]
    log = EventLog(header=header("target"), spans=[wait(60, 110), wait(160, 190, "cuda")], steps=records)

    assert [0.05, 0.05] == step_work_s(log, WHOLE)
    assert [] == step_work_s(log, [(0, 1)])


def test_a_device_tells_the_work_that_its_host_waits_for() -> None:
    """The host runs ahead: its waits lie beside steps that the device ends later."""
    device = [work(60, 140, "main:cuda0"), work(150, 190, "main:cuda0"), work(150, 170, "main:cuda0", depth=1)]
    host = [work(40, 60), work(100, 110), wait(60, 100), work(151, 199, "uploader")]
    log = EventLog(header=header("drafter"), spans=[*device, *host], steps=[step(0, 50), step(1, 150), step(2, 200)])

    assert [0.08, 0.04] == step_work_s(log, WHOLE)


def test_a_host_that_works_longer_than_its_device_holds_it_up() -> None:
    spans = [work(60, 140), work(150, 200), work(70, 120, "main:cuda0"), work(160, 200, "main:cuda0")]
    log = EventLog(header=header("drafter"), spans=spans, steps=[step(0, 50), step(1, 150), step(2, 200)])

    assert [0.08, 0.05] == step_work_s(log, WHOLE)


def test_a_run_that_measured_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measured nothing: crashed"):
        read_run(write_run(tmp_path / "run", outcome="crashed"), TINY)


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", 2), ("target-0 cuda:0, drafter-0 cuda:0", 1), ("target-0 cuda:0, target-1 cuda:1, drafter-0 cuda:2", 3)],
)
def test_devices_are_counted_once(device: str, expected: int) -> None:
    assert expected == num_devices({"workload.device": device, "machine.num_cores": "2"})


def test_a_command_that_fails_or_hangs_is_told() -> None:
    fails = [sys.executable, "-c", "import sys; sys.exit('no such thing')"]
    hangs = [sys.executable, "-c", "import signal; signal.pause()"]

    assert "status 1: no such thing" == start(fails, 30)
    assert "took longer than 0 s" == start(hangs, 0.3)
    assert not start([sys.executable, "-c", ""], 30)


def test_the_command_is_one_that_flashprof_takes() -> None:
    from flashprof.cli.run import command

    given: dict[str, Any] = {"preset": "tiny", "toggles": "all", "train": "--device cpu", "windows": 3, "window_s": 2.0}
    words = run_command("5+3", given, Path("out"))
    context = command.make_context("run", words[words.index("run") + 1 :])

    assert ("tiny", "5+3", "--device cpu") == tuple(
        context.params[name] for name in ("preset", "topology", "train_options")
    )
    assert "windows.num_measure=3" in context.params["settings"]
