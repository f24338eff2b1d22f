"""
Record the calibration study: lanes side by side, each on two cores of its own.

    python -m benchmarks.calibration_record --kind hot --tasks aa,20,50,170 --seconds 3000 --out lanes/

Kind `hot` switches the arms while the subject runs, `cold` starts one arm a launch. A task is a planted slow-down in
per mille, `aa` for none, or `competitor` for none beside a busy loop; written twice, it gets two lanes. With fewer
lanes than tasks a lane does several in turn and shares the time among them.

Lanes that fill a machine disturb each other: 15 on 32 cores of one host scattered by 10 % a block, ten times what one
lane on two quiet cores did. `--spacing 6` leaves the cores between lanes idle.

What was recorded is judged by `benchmarks.calibration`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

CORES_A_LANE = 2
GRACE_S = 120.0
"""A launch that has begun when the time is up is finished."""


@click.command()
@click.option("--kind", type=click.Choice(["hot", "cold"]), required=True)
@click.option("--tasks", default="aa,competitor,20,50,170", show_default=True)
@click.option("--seconds", default=500.0, type=click.FloatRange(min=30), help="Of all tasks of a lane together.")
@click.option("--spacing", default=CORES_A_LANE, type=click.IntRange(min=2), help="Cores from lane to lane.")
@click.option("--lanes", "num_lanes", default=0, help="0: as many as the cores allow, at most one a task.")
@click.option("--toggles", default="swa,analytic-mask,early-exit", show_default=True)
@click.option("--out", required=True, type=click.Path(path_type=Path))
def main(*, kind: str, tasks: str, seconds: float, spacing: int, num_lanes: int, toggles: str, out: Path) -> None:
    """Run the lanes and say what each left."""
    out.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    names = tasks.split(",")
    num_lanes = min(num_lanes or max(1, len(cores) // spacing), len(names))
    todo = [names[lane::num_lanes] for lane in range(num_lanes)]
    start_s = time.monotonic()
    seed = int(time.time()) % 100_000
    for turn in range(max(map(len, todo))):
        running = []
        for lane, lane_tasks in enumerate(todo):
            if turn < len(lane_tasks):
                # Every other core where there is room: two threads of one core are slower together.
                step = 2 if spacing > CORES_A_LANE + 1 else 1
                own = cores[spacing * lane :: step][:CORES_A_LANE]
                seed += 1
                command = [*_task(kind, lane_tasks[turn]), "--seed", str(seed), "--toggles", toggles]
                command += ["--cores", ",".join(map(str, own)), "--seconds", str(seconds / len(lane_tasks))]
                running.append(_start(command, out / f"{kind}-{lane_tasks[turn]}-{seed}.json"))
        for process in running:
            process.wait(timeout=seconds + GRACE_S)
    click.echo(f"{len(list(out.glob('*.json')))} files in {out} after {time.monotonic() - start_s:.0f} s")


def _task(kind: str, task: str) -> list[str]:
    options = ["--per-mille", task if task.isdigit() else "0"]
    options += ["--competitor"] if task == "competitor" else []
    return [*options, "--cold"] if kind == "cold" else options


def _start(options: Sequence[str], out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.calibration_lane", "--out", str(out), *options]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with out.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log)


if __name__ == "__main__":
    main()
