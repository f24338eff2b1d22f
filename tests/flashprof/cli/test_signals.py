"""FlashProf itself is stopped: what was measured is printed and kept, and no process stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import foreign_trainer
import pytest

from flashprof.store.run_folder import read_manifest

pytestmark = pytest.mark.slow

SETTINGS = ("measure_s=0.3", "num_profile=0", "steady_timeout_s=0.3", "num_measure=30", "stop_timeout_s=1")
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(mode: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flashprof.cli", "run", "--json", "--reports", str(tmp_path), "--run-id", "r"]
        command += [f"--set=windows.{setting}" for setting in SETTINGS]
        command += ["--set=sampling.resources=off", "--set=sampling.stacks=off"]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [*command, "--", sys.executable, foreign_trainer.__file__, mode],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with process:
            process.kill()


@pytest.mark.parametrize(
    ("number", "mode", "stage"),
    [
        (signal.SIGINT, "load-for-ever", "starting"),
        (signal.SIGINT, "healthy", "measure window 2"),
        (signal.SIGTERM, "healthy", "measure window 1"),
    ],
)
def test_an_interrupted_run_is_published_and_printed(
    tmp_path: Path, start: Start, number: signal.Signals, mode: str, stage: str
) -> None:
    flashprof = start(mode)
    _wait_for_stage(flashprof, stage)
    flashprof.send_signal(number)
    out, err = flashprof.communicate(timeout=20)
    summary = json.loads(out)
    labels = [window["label"] for window in summary["windows"] if window["kind"] == "measure"]

    assert 130 == flashprof.returncode
    assert "Traceback" not in err
    assert "interrupted" == summary["outcome"] == read_manifest(tmp_path / "r")["outcome"]
    assert ([] if stage != "measure window 2" else ["measure-1"]) == labels
    assert [] == _processes_of(tmp_path)


def test_nothing_outlives_a_killed_flashprof_and_its_folder_is_explained(tmp_path: Path, start: Start) -> None:
    flashprof = start("healthy")
    _wait_for_stage(flashprof, "measure window 1")
    before = _processes_of(tmp_path)
    flashprof.kill()
    flashprof.wait()
    deadline_s = time.monotonic() + 5
    while _processes_of(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    left = _processes_of(tmp_path)
    again = start("healthy")
    _, err = again.communicate(timeout=20)

    assert before
    assert [] == left
    assert 2 == again.returncode
    assert f"rm -r {tmp_path}/.r.part" in err


def _wait_for_stage(flashprof: subprocess.Popen[str], stage: str) -> None:
    assert flashprof.stderr is not None
    for line in flashprof.stderr:
        if stage in line:
            # A moment later: in the middle of the stage, where it is waited for something.
            time.sleep(0.2)
            return
    raise AssertionError(f"it ended before the stage {stage!r}")


def _processes_of(reports: Path) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLASHPROF_RUN_DIR={reports}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
