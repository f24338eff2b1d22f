"""
One lane of the calibration study: launches of the real pipeline, one after the other, on cores of its own.

    python -m benchmarks.calibration_lane --per-mille 20 --out lane.json          arms switched while it runs
    python -m benchmarks.calibration_lane --cold --per-mille 20 --out lane.json   one arm a launch

The candidate is the base with a planted slow-down (`--fault brake`, `pipeline.brake`); 0 per mille makes it A/A. What
is written are windows and blocks as `flashprof compare` makes them: comparisons are cut from them later, so that every
method judges the same data.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from flashprof.app.hot import HotPlan, hot_blocks, hot_results
from flashprof.app.judging import MachineJudge
from flashprof.app.measure import plain_windows, record
from flashprof.app.progress import Progress
from flashprof.app.subject import pipeline_command
from flashprof.app.wiring import wire
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.experiment import Experiment, Output, Sampling, SubjectSpec, WindowPlan
from flashprof.contracts.results import WindowKind
from flashprof.decide.orders import block_order
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.run_folder import create_run_folder
from flashprof.store.tail import read_event_logs
from flashprof.windows.table import build_windows

LAUNCH_S = 240.0
"""Of a hot launch: several launches a lane, so that a lane does not speak of one launch only."""
COLD_WINDOWS = WindowPlan(num_measure=3, measure_s=4.0, num_profile=0)
COMPETITOR = "while True: pass"


@click.command()
@click.option("--per-mille", default=0, type=click.IntRange(0, 900), help="Planted slow-down of the candidate.")
@click.option("--cold", is_flag=True, help="One arm a launch; --per-mille is then in force from the start.")
@click.option("--seconds", default=500.0, type=click.FloatRange(min=10))
@click.option("--cores", default="", help="Such as 4,5: this lane and its subject run on these.")
@click.option("--competitor", is_flag=True, help="A busy loop shares the lane's cores.")
@click.option("--toggles", default="swa,analytic-mask,early-exit", show_default=True)
@click.option("--train", "train_options", default="", help="More options of the pipeline's train.")
@click.option("--preset", default="tiny", show_default=True)
@click.option("--seed", default=0, type=click.IntRange(min=0), help="Of the orders of the arms.")
@click.option("--out", required=True, type=click.Path(path_type=Path))
def main(*, cores: str, competitor: bool, seconds: float, out: Path, cold: bool, **given: Any) -> None:
    """Record launches until the time is up."""
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    until_s = time.monotonic() + seconds
    launches: list[dict[str, Any]] = []
    about = {**given, "cold": cold, "competitor": competitor, "cores": cores}
    with _competitor() if competitor else contextlib.nullcontext(), TemporaryDirectory() as folder:
        while time.monotonic() < until_s and not _has_failed(launches):
            name = f"launch-{len(launches) + 1}"
            measure = measure_cold if cold else measure_hot
            launches.append(measure(Path(folder), name, until_s, given))
            out.write_text(json.dumps({"about": about, "launches": launches}), encoding="utf-8")


def measure_hot(folder: Path, name: str, until_s: float, given: dict[str, Any]) -> dict[str, Any]:
    """Blocks of one launch, for `LAUNCH_S` or until the lane's time is up."""
    experiment = _experiment(folder, name, given, fault="brake", windows=WindowPlan(num_profile=0))
    end_s = min(until_s, time.monotonic() + LAUNCH_S)
    seed = given["seed"] * 1000 + len(list(folder.iterdir()))
    path = folder / f".{name}.part"

    def on_block(block: Block) -> bool:
        del block
        return time.monotonic() < end_s

    schedule = hot_blocks(
        HotPlan(),
        {Arm.BASE: {"brake": 0}, Arm.CANDIDATE: {"brake": given["per_mille"]}},
        lambda number: block_order(seed, number),
        first_block=1,
        on_block=on_block,
        judge=MachineJudge(path / COUNTERS_FILE),
    )
    start_s = time.monotonic()
    run_folder = create_run_folder(folder, name)
    recording = record(experiment, run_folder, wire(experiment, os.environ, Path.cwd()), Silent(), schedule)
    logs = read_event_logs(path / "events")
    windows, blocks = hot_results(logs, launch=name, judge=MachineJudge(path / COUNTERS_FILE))
    lead = next((log.steps for log in logs if log.header.trains), [])
    return {
        "outcome": str(recording.outcome),
        "reason": recording.reason,
        "notes": list(recording.notes),
        "length_s": time.monotonic() - start_s,
        "windows": [asdict(window) for window in windows],
        "blocks": [asdict(block) for block in blocks],
        # What a step took and held: noise that is no Gaussian's, for the tests of the statistics.
        "steps": [[step.end_ns, step.num_tokens, step.num_padding_tokens] for step in lead],
    }


def measure_cold(folder: Path, name: str, until_s: float, given: dict[str, Any]) -> dict[str, Any]:
    """The measure windows of one launch of one arm."""
    del until_s
    experiment = _experiment(folder, name, given, fault=f"brake={given['per_mille']}", windows=COLD_WINDOWS)
    start_s = time.monotonic()
    run_folder = create_run_folder(folder, name)
    recording = record(experiment, run_folder, wire(experiment, os.environ, Path.cwd()), Silent(), plain_windows)
    path = folder / f".{name}.part"
    judge = MachineJudge(path / COUNTERS_FILE)
    measured = [
        window
        for window in build_windows(read_event_logs(path / "events"), steady_ns=recording.steady_ns)
        if window.kind is WindowKind.MEASURE
    ]
    return {
        "outcome": str(recording.outcome),
        "reason": recording.reason,
        "length_s": time.monotonic() - start_s,
        "tok_per_s": [window.tok_per_s for window in measured],
        "disturbances": [list(judge(window.start_ns, window.end_ns)) for window in measured],
        "ended_at_s": time.monotonic(),
    }


class Silent(Progress):
    """Shows nothing."""

    def stage(self, text: str, *, total_s: float | None = None) -> None:
        """Nothing."""

    def advance(self, done_s: float, detail: str = "") -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """What went wrong is worth a line."""
        print(text, file=sys.stderr)


def _experiment(folder: Path, name: str, given: dict[str, Any], *, fault: str, windows: WindowPlan) -> Experiment:
    subject = SubjectSpec(
        preset=given["preset"],
        toggles=given["toggles"],
        train_options=("--fault", fault, *given["train_options"].split()),
    )
    return Experiment(
        subject=SubjectSpec(**{**asdict(subject), "command": pipeline_command(subject)}),
        windows=windows,
        sampling=Sampling(stacks="off", resources="off"),
        output=Output(reports=folder, run_id=name),
    )


def _has_failed(launches: list[dict[str, Any]]) -> bool:
    """Twice in a row: what fails so fails again."""
    return len(launches) > 1 and all(launch["outcome"] != "completed" for launch in launches[-2:])


@contextlib.contextmanager
def _competitor() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", COMPETITOR])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
