"""Bad days with real processes: each has its outcome in the manifest, a reason, and no process left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import foreign_trainer
import pytest
from fake_world import FakeProgress

from flashprof.app.run import run
from flashprof.app.session import Ports
from flashprof.app.wiring import wire
from flashprof.contracts.experiment import Experiment, Output, Sampling, SubjectKind, SubjectSpec, WindowPlan
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary
from flashprof.store.run_folder import read_manifest

pytestmark = pytest.mark.slow

PLAN = WindowPlan(
    num_measure=2,
    measure_s=0.3,
    num_profile=1,
    profile_s=0.2,
    settle_steps=1,
    steady_timeout_s=0.3,
    start_timeout_s=5.0,
    hang_timeout_s=1.0,
    stop_timeout_s=0.3,
)
NO_SAMPLING = Sampling(stacks="off", resources="off")


def experiment(reports: Path, mode: str, sampling: Sampling = NO_SAMPLING, plan: WindowPlan = PLAN) -> Experiment:
    command = (sys.executable, foreign_trainer.__file__, mode)
    return Experiment(
        subject=SubjectSpec(kind=SubjectKind.FOREIGN, command=command),
        windows=plan,
        sampling=sampling,
        output=Output(reports=reports, run_id=mode),
    )


def ports(what: Experiment) -> Ports:
    return wire(what, {"PATH": os.environ["PATH"]}, Path.cwd())


def measure(what: Experiment) -> RunSummary:
    return run(what, ports(what), FakeProgress())


def processes_of(reports: Path) -> list[int]:
    """Processes whose environment names a run folder there; zombies have none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(reports).encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("mode", "outcome", "reason"),
    [
        ("crash-loading", Outcome.LOAD_FAILED, "RuntimeError: no such checkpoint"),
        ("crash", Outcome.CRASHED, "ValueError: the batch is empty"),
        ("sigkill", Outcome.KILLED, "SIGKILL"),
        ("ends", Outcome.ENDED_EARLY, "finished by itself after 60 training steps"),
        ("hang", Outcome.HUNG, "no event and no output for 1 s"),
        ("nan", Outcome.WRONG_NUMBERS, "loss is nan at step 60"),
        ("deaf", Outcome.COMPLETED, ""),
        ("prints", Outcome.COMPLETED, ""),
        ("prints-nothing-useful", Outcome.COMPLETED, ""),
    ],
)
def test_a_bad_day(tmp_path: Path, mode: str, outcome: Outcome, reason: str) -> None:
    summary = measure(experiment(tmp_path, mode))

    assert outcome is summary.outcome, summary.reason
    assert reason in summary.reason
    assert str(outcome) == read_manifest(tmp_path / mode)["outcome"]
    assert [] == processes_of(tmp_path)
    assert (mode == "deaf") == any("was killed" in note for note in summary.notes)
    assert (mode == "prints") == (summary.tok_per_s is not None and summary.counted_by == "log")
    assert (mode == "prints-nothing-useful") == any("--tok-per-s" in note for note in summary.notes)


def test_real_samplers_see_a_foreign_trainer(tmp_path: Path) -> None:
    plan = replace(PLAN, profile_s=1.2)
    summary = measure(experiment(tmp_path, "healthy", Sampling(resources="schedstat", rate_hz=50), plan))

    assert Outcome.COMPLETED is summary.outcome
    assert {"trainer"} == {row.role for row in summary.threads}
    if not any("no stacks" in note for note in summary.notes):
        assert (tmp_path / "healthy" / "flamegraph.html").is_file()
        assert any("foreign_trainer.py" in frame.where for frame in summary.frames)


def test_without_pyspy_and_pidstat_a_run_goes_on_and_says_so(tmp_path: Path) -> None:
    # A Python with no py-spy beside it, and a PATH on which py-spy refuses and pidstat is missing.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "py-spy").write_text(
        "#!/bin/sh\necho 'Error: Permission Denied: Try running again with sudo' >&2\nexit 1\n"
    )
    (tools / "py-spy").chmod(0o755)
    python = Path(sys.executable).resolve()
    if python.with_name("py-spy").exists():
        pytest.skip("this Python has a py-spy beside it")
    settings = [f"--set=windows.{name}={getattr(PLAN, name)}" for name in ("num_measure", "measure_s", "profile_s")]
    settings += ["--set=windows.num_profile=1", "--set=windows.steady_timeout_s=0.3"]
    settings += [f"--reports={tmp_path}", "--run-id=x"]
    done = subprocess.run(
        [python, "-m", "flashprof.cli", "run", *settings, "--", python, foreign_trainer.__file__, "healthy"],
        env={"PATH": str(tools), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    notes = read_manifest(tmp_path / "x")["notes"]

    assert 0 == done.returncode, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert 1 == sum(note.startswith("no stacks, no flamegraph: ") for note in notes)
    assert 1 == sum("pidstat is not installed" in note for note in notes)
    assert list((tmp_path / "x" / "samples").glob("*/threads.csv"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk, and not everywhere")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_subject_that_fills_the_disk_leaves_a_run_with_its_outcome(small_disk: Path) -> None:
    summary = measure(experiment(small_disk, "fills-the-disk"))

    assert Outcome.TOOL_FAILED is summary.outcome
    assert "No space left on device" in summary.reason
    assert "tool failed" == read_manifest(small_disk / "fills-the-disk")["outcome"]
    assert [] == processes_of(small_disk)
