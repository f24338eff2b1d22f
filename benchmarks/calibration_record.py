"""
Record the calibration study: many lanes side by side, each on two cores of its own.

    python -m benchmarks.calibration_record --kind hot --seconds 500 --out lanes/       arms switched while it runs
    python -m benchmarks.calibration_record --kind cold --seconds 500 --out lanes/      one arm a launch
    python -m benchmarks.calibration_record --kind hot --lanes 1 --seconds 3000 …       on two cores, one after the other

On a machine with many cores the lanes share caches and memory, as tenants of a shared host do. What was recorded is
judged by `benchmarks.calibration`.
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
HOT = (
    *("aa", "aa", "aa", "aa", "competitor", "competitor", "competitor"),
    *("20", "20", "20", "20", "20", "50", "50", "170"),
)
"""What 15 lanes do; of fewer lanes, each takes several in turn."""
COLD = (*["aa"] * 7, *["20"] * 2, *["50"] * 3, *["170"] * 3)
TASKS = {"hot": HOT, "cold": COLD}
GRACE_S = 120.0
"""A launch that has begun when the time is up is finished."""


@click.command()
@click.option("--kind", type=click.Choice(list(TASKS)), required=True)
@click.option("--seconds", default=500.0, type=click.FloatRange(min=30), help="Of all tasks of a lane together.")
@click.option("--lanes", "num_lanes", default=0, help="0: as many as the cores allow, at most one a task.")
@click.option("--tasks", "chosen", default="", help="Such as aa,170: only these.")
@click.option("--out", required=True, type=click.Path(path_type=Path))
def main(*, kind: str, seconds: float, num_lanes: int, chosen: str, out: Path) -> None:
    """Run the lanes and say what each left."""
    out.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    tasks = [task for task in TASKS[kind] if not chosen or task in chosen.split(",")]
    num_lanes = min(num_lanes or len(cores) // CORES_A_LANE, len(tasks))
    lanes = [tasks[lane::num_lanes] for lane in range(num_lanes)]
    start_s = time.monotonic()
    seed = int(time.time()) % 100_000
    for turn in range(max(map(len, lanes))):
        running = [
            _start(
                kind,
                lane_tasks[turn],
                cores[CORES_A_LANE * lane :][:CORES_A_LANE],
                seconds / len(lane_tasks),
                seed,
                out,
            )
            for lane, lane_tasks in enumerate(lanes)
            if turn < len(lane_tasks)
        ]
        seed += len(running)
        for process in running:
            process.wait(timeout=seconds + GRACE_S)
    click.echo(f"{len(list(out.glob('*.json')))} files in {out} after {time.monotonic() - start_s:.0f} s")


def _start(kind: str, task: str, cores: Sequence[int], seconds: float, seed: int, out: Path) -> subprocess.Popen[bytes]:
    name = f"{kind}-{task}-{seed}-{cores[0]}"
    command = [sys.executable, "-m", "benchmarks.calibration_lane", "--out", str(out / f"{name}.json")]
    command += ["--cores", ",".join(map(str, cores)), "--seconds", str(seconds), "--seed", str(seed + cores[0])]
    command += ["--per-mille", task if task.isdigit() else "0"]
    command += ["--competitor"] if task == "competitor" else []
    command += ["--cold"] if kind == "cold" else []
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with (out / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log)


if __name__ == "__main__":
    main()
