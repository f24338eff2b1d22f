r"""
Real gates, one after the other: `python -m benchmarks.gate_real record --out DIR`, and `benchmarks.gate` judges them.

Each trial is one `flashprof gate` in a process of its own, in a repository made for it. On a large machine many lanes
record at once, each under `taskset` on two cores of its own:

    for lane in 0 1 2 3; do
        taskset -c $((2 * lane)),$((2 * lane + 1)) python -m benchmarks.gate_real record \
            --out DIR --lane $lane --lanes 4 --seconds 900 &
    done
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks.gate_repos import KINDS, competitor, gate_arguments, gate_env, make_case, make_repo
from benchmarks.gate_trials import Trial, read_lane, read_result, write_lane
from benchmarks.results_file import hardware, versions
from flashprof.cli.option_types import duration_s

ANSWERED = (0, 1, 3)
"""Exit statuses of a gate that came to an answer."""
SHORT_WINDOWS = ("windows.num_measure=3", "windows.measure_s=4")
STOP_S = 60.0
"""What a gate may take to stop when it is asked to: it stops its subject and writes down what it has."""
MAX_FAILED = 3
"""Trials in a row: what fails so fails again."""
APART = 10_000
"""Numbers of trials from seed to seed."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One of those that record at the same time."""

    out: Path
    kinds: tuple[str, ...]
    """In turn; each lane begins with another."""
    lane: int
    num_lanes: int
    seed: int
    budget_s: float
    settings: tuple[str, ...]
    cli: tuple[str, ...] = (sys.executable, "-m", "flashprof.cli", "gate")
    """Tests put another in its place."""
    clock: Callable[[], float] = time.monotonic

    @property
    def path(self) -> Path:
        """Of its lines."""
        return self.out / f"lane-{self.lane}.jsonl"

    def kind(self, done: int) -> str:
        """Of the trial after *done* others."""
        return self.kinds[(self.lane + done) % len(self.kinds)]

    def number(self, done: int) -> int:
        """Of the trial after *done* others; no lane has another's."""
        return APART * self.seed + self.lane + done * self.num_lanes


@click.group()
def main() -> None:
    """Record real gates."""


@main.command()
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Of all lanes; what is there goes on.")
@click.option("--kinds", default=",".join(KINDS), show_default=True)
@click.option("--seconds", default=900.0, type=click.FloatRange(min=1), help="Begin no trial after so long.")
@click.option(
    "--stop-seconds", default=None, type=click.FloatRange(min=1), help="Stop the trial under way; it goes on."
)
@click.option("--budget", "budget_s", default="20m", show_default=True, callback=duration_s, help="Of a gate.")
@click.option("--set", "settings", multiple=True, default=SHORT_WINDOWS, show_default=True, help="Of a gate.")
@click.option("--lane", default=0, type=click.IntRange(min=0), help="This one's number.")
@click.option("--lanes", "num_lanes", default=1, type=click.IntRange(min=1), help="How many record at once.")
@click.option("--seed", default=0, type=click.IntRange(min=0), help="Another machine gets another.")
def record(*, out: Path, kinds: str, seconds: float, stop_seconds: float | None, **given: object) -> None:
    """Run gates until the time is up, and keep a line of each."""
    names = tuple(kinds.split(","))
    unknown = sorted(set(names) - set(KINDS))
    if unknown:
        raise click.BadParameter(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}", param_hint="--kinds")
    lane = Lane(out=out.resolve(), kinds=names, **given)  # type: ignore[arg-type]
    if lane.lane >= lane.num_lanes:
        raise click.BadParameter(f"of {lane.num_lanes} lanes the last is {lane.num_lanes - 1}", param_hint="--lane")
    start_s = time.monotonic()
    stop_s = None if stop_seconds is None else start_s + stop_seconds
    run_lane(lane, until_s=start_s + seconds, stop_s=stop_s)


def run_lane(lane: Lane, *, until_s: float, stop_s: float | None) -> None:
    """
    Run one gate after the other.

    Args:
        lane: What to do.
        until_s: By the lane's clock; no trial begins later.
        stop_s: The same; a trial that is under way is stopped then, and goes on with the next call.

    Raises:
        ClickException: Trials fail one after the other.
    """
    lane.out.mkdir(parents=True, exist_ok=True)
    trials = read_lane(lane.path)
    num_failed = 0
    while lane.clock() < min(until_s, math.inf if stop_s is None else stop_s):
        trial = run_trial(lane, len(trials), stop_s)
        if trial is None:
            return
        trials.append(trial)
        write_lane(lane.path, trials)
        is_answered = trial.status in ANSWERED
        num_failed = 0 if is_answered else num_failed + 1
        folder = _folder(lane, trial.number)
        if is_answered:
            shutil.rmtree(folder, ignore_errors=True)
        click.echo(line(trial))
        if num_failed == MAX_FAILED:
            raise click.ClickException(f"{MAX_FAILED} trials in a row failed; see {folder}")


def run_trial(lane: Lane, done: int, stop_s: float | None) -> Trial | None:
    """One gate; None where it was stopped before its end."""
    name, number = lane.kind(done), lane.number(done)
    kind, folder = KINDS[name], _folder(lane, number)
    folder.mkdir(parents=True, exist_ok=True)
    case = make_case(kind)
    repo = make_repo(case, folder, number)
    asked = gate_arguments(case, repo, number=number, budget_s=lane.budget_s, settings=lane.settings)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    begin_s = time.monotonic()
    with competitor(number) if kind.is_busy else contextlib.nullcontext():
        status = _call(
            (*lane.cli, *asked, "--reports", str(folder / "reports")),
            folder,
            None if stop_s is None else stop_s - lane.clock(),
        )
    if status is None:
        return None
    return Trial(
        kind=name,
        number=number,
        lane=lane.lane,
        num_lanes=lane.num_lanes,
        settings=lane.settings,
        budget_s=lane.budget_s,
        started=started,
        hardware=hardware(),
        commit=versions()["commit"],
        status=status,
        wall_s=time.monotonic() - begin_s,
        **read_result((folder / "stdout").read_text(encoding="utf-8")),
    )


def line(trial: Trial) -> str:
    """For who watches."""
    change = "" if trial.change is None else f"{100 * trial.change[0]:+.1f} %"
    found = trial.verdict or f"exit status {trial.status}"
    return f"{trial.number:6} {trial.kind:10} {found:14} {change:>8} {len(trial.pairs):3} pairs {trial.wall_s:6.0f} s"


def _folder(lane: Lane, number: int) -> Path:
    return lane.out / f"lane-{lane.lane}" / f"trial-{number}"


def _call(command: tuple[str, ...], folder: Path, limit_s: float | None) -> int | None:
    """The exit status; None where it was asked to stop since it took longer."""
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(command, cwd=folder, env=gate_env(os.environ), stdout=stdout, stderr=stderr)
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            return None
        finally:
            # Whatever ends this process: a gate that goes on would disturb the next one.
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
