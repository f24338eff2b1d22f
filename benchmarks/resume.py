"""
What does a `kill -9` cost? `python -m benchmarks.resume`, eight to twelve minutes on two cores.

A short run is killed at a random moment of its start, of its training or of a save, and started again with
`--resume auto` until its steps are done: the whole run, its main process, a drafter or a target gets the signal. Every
loss that either has recorded must be that of a run which nobody killed, bit for bit, and no step may be missing.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import platformdirs
import psutil

from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import decode
from flashprof.emit import RUN_DIR_VARIABLE
from pipeline.checkpoint.folder import find_checkpoint, has_checkpoints, read_state

TOPOLOGIES = ("1+1", "2+2")
MAIN = "dispatcher-0"
VICTIMS = ("all", MAIN, "drafter-0", "target-0")
"""`all`: every process of the run at once; the others by their name in the process list."""
MOMENTS = ("start", "training", "save")
NUM_STEPS = 60
SAVE_EVERY = 3
WORKLOAD = ("--token-budget", "1024", "--anchors", "16")
"""A third of the tiny preset's work: some 20 steps a second."""
END_LIMIT_S = 10.0
"""In which a run must have ended, with all its processes, once one of them is dead."""
RUN_LIMIT_S = 300.0
END_STEPS = 10
"""No kill is meant for these, since the run could be over before it comes."""
START_SPREAD_S = 5.0
LOAD_SPREAD_S = 0.5
STEP_SPREAD_S = 0.1
SAVE_SPREAD_S = 0.02

Losses = dict[tuple[str, int], float]
"""Of (drafter, step)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One kill."""

    topology: str
    victim: str
    moment: str
    step: int
    """The kill comes when so many steps are done, or while the checkpoint of this step is written."""
    delay_s: float
    """After that, or after the victim has appeared."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A run that was killed and resumed."""

    plan: Plan
    status: int
    """With which the killed run ended."""
    num_trained: int
    """Steps that it had behind it."""
    num_saved: int
    """Steps in its newest checkpoint."""
    end_s: float
    """From the kill until all its processes were gone."""
    num_left: int
    """Processes that were not."""
    resumed_status: int
    num_unequal: int
    """Losses, of the killed or the resumed run, that are not those of the whole one."""
    num_missing: int
    """Losses that neither has."""

    @property
    def num_lost(self) -> int:
        """Steps that had to be trained again."""
        return self.num_trained - self.num_saved


@dataclass(frozen=True)
class Started:
    """A trainer in a session of its own."""

    process: subprocess.Popen[bytes]
    folder: Path
    """Its run folder; beside it lie its log and the checkpoints."""

    @property
    def checkpoints(self) -> Path:
        """Of this run and the one that continues it."""
        return self.folder.parent / "checkpoints"

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self.folder.with_suffix(".log").read_text(encoding="utf-8")

    def alive(self) -> dict[int, str]:
        """Process number to the name in the process list."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = process.name()
        return found

    def kill(self, victim: str) -> None:
        """SIGKILL; who has ended by itself is not missed."""
        with suppress(ProcessLookupError):
            if victim == "all":
                os.killpg(self.process.pid, signal.SIGKILL)
            elif victim == MAIN:
                # It has its name only once it has imported.
                self.process.kill()
            else:
                for pid in [pid for pid, name in self.alive().items() if name == victim]:
                    os.kill(pid, signal.SIGKILL)

    def end(self, limit_s: float) -> tuple[int, int]:
        """Wait until all processes are gone; returns the status, and how many were left and had to be killed."""
        left = self._left_after(limit_s)
        self.kill("all")
        self._left_after(limit_s)
        return self.process.wait(), len(left)

    def _left_after(self, limit_s: float) -> dict[int, str]:
        deadline_s = time.perf_counter() + limit_s
        while (left := self.alive()) and time.perf_counter() < deadline_s:
            time.sleep(0.02)
        return left

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Look a thousand times a second, until the run has ended at the latest."""
        while not condition() and self.process.poll() is None:
            time.sleep(0.001)


@click.command()
@click.option("--kills", default=24, show_default=True, type=click.IntRange(min=1), help="24: each combination once.")
@click.option("--steps", default=NUM_STEPS, show_default=True, type=click.IntRange(min=2 * END_STEPS))
@click.option("--seed", default=0, show_default=True, help="Of the moments.")
@click.option("--cache", type=click.Path(path_type=Path), help="Where the preset's data are kept.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, kills: int, steps: int, seed: int, cache: Path | None, results: Path) -> None:
    """Measure, print, and write the results file."""
    cache = cache or Path(platformdirs.user_cache_dir("flashprof"))
    trials = []
    whole: dict[str, Losses] = {}
    for plan in itertools.islice(make_plans(random.Random(seed), steps), kills):
        if plan.topology not in whole:
            whole[plan.topology] = train_whole(plan.topology, cache, num_steps=steps)
        trial = try_kill(plan, whole[plan.topology], cache, num_steps=steps)
        click.echo(line(trial))
        trials.append(trial)
    measures = to_measures(trials)
    for measure in measures:
        click.echo(str(measure))
    data = {
        "num_steps": steps,
        "save_every": SAVE_EVERY,
        "seed": seed,
        "trials": [asdict(trial) | {"num_lost": trial.num_lost} for trial in trials],
    }
    path = write_results("resume", measures, data, folder=results)
    click.echo(f"written to {path}")


def make_plans(rng: random.Random, num_steps: int) -> Iterator[Plan]:
    """Kills without end: every combination of moment, victim and topology in turn, the rest random."""
    for moment, victim, topology in itertools.cycle(itertools.product(MOMENTS, VICTIMS, TOPOLOGIES)):
        # Workers appear late in the start; the other two are killed while they import.
        start_s = START_SPREAD_S if victim in ("all", MAIN) else LOAD_SPREAD_S
        spread_s = {"start": start_s, "training": STEP_SPREAD_S, "save": SAVE_SPREAD_S}[moment]
        step = rng.randrange(1, num_steps - END_STEPS)
        yield Plan(
            topology=topology,
            victim=victim,
            moment=moment,
            step=step - step % SAVE_EVERY or SAVE_EVERY if moment == "save" else step,
            delay_s=rng.uniform(0, spread_s),
        )


def start(folder: Path, run: str, topology: str, cache: Path, num_steps: int) -> Started:
    """Start the run that is called *run* in *folder*; it continues what an earlier one has saved there."""
    started_folder, checkpoints = folder / run, folder / "checkpoints"
    (started_folder / "control").mkdir(parents=True)
    # A resumed run has its workload from the checkpoint.
    workload = () if has_checkpoints(checkpoints) else WORKLOAD
    options = ["--topology", topology, "--steps", str(num_steps), "--cache", str(cache), "--log-every", "1"]
    saving = ["--checkpoints", str(checkpoints), "--save-every", str(SAVE_EVERY), "--resume", "auto"]
    with started_folder.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "train", *workload, *options, *saving],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", RUN_DIR_VARIABLE: str(started_folder)},
            start_new_session=True,
        )
    return Started(process, started_folder)


def train_whole(topology: str, cache: Path, *, num_steps: int) -> Losses:
    """
    The losses of a run that nobody kills.

    Raises:
        click.ClickException: It failed.
    """
    with TemporaryDirectory(prefix="resume-") as folder:
        run = start(Path(folder), "whole", topology, cache, num_steps)
        status, _ = run.end(RUN_LIMIT_S)
        if status:
            raise click.ClickException(run.log)
        return read_losses(run.folder)


def try_kill(plan: Plan, whole: Losses, cache: Path, *, num_steps: int) -> Trial:
    """Kill one run as planned, resume it, and compare both with the *whole* one."""
    with TemporaryDirectory(prefix="resume-") as folder:
        killed = start(Path(folder), "killed", plan.topology, cache, num_steps)
        wait_for_moment(killed, plan)
        kill_s = time.perf_counter()
        killed.kill(plan.victim)
        status, num_left = killed.end(END_LIMIT_S)
        end_s = time.perf_counter() - kill_s
        checkpoints = killed.checkpoints
        num_saved = read_state(find_checkpoint(checkpoints)).step if has_checkpoints(checkpoints) else 0
        resumed = start(Path(folder), "resumed", plan.topology, cache, num_steps)
        resumed_status, _ = resumed.end(RUN_LIMIT_S)
        before, after = read_losses(killed.folder), read_losses(resumed.folder)
        num_trained = max(num_saved, count_steps(killed.log))
    return Trial(
        plan=plan,
        status=status,
        num_trained=num_trained,
        num_saved=num_saved,
        end_s=end_s,
        num_left=num_left,
        resumed_status=resumed_status,
        num_unequal=num_unequal(whole, before) + num_unequal(whole, after),
        num_missing=num_missing(whole, before, after, num_saved),
    )


def num_unequal(whole: Losses, losses: Losses) -> int:
    """Those that are not, bit for bit, what the *whole* run had in their place."""
    return sum(whole.get(place) != loss for place, loss in losses.items())


def num_missing(whole: Losses, before: Losses, after: Losses, num_saved: int) -> int:
    """
    Those that the resumed run had to train and did not, and holes in what the killed one wrote down *before*.

    The end of what it trained is not asked for: losses are written four times a second. That it was trained shows in
    the losses that follow.
    """
    ends = dict(sorted(before))
    holes = sum(place not in before for place in whole if place[1] < ends.get(place[0], 0))
    return holes + sum(place not in after for place in whole if place[1] >= num_saved)


def count_steps(log: str) -> int:
    """The steps that the first drafter had behind it; unlike losses, lines are written at once."""
    return max(map(int, re.findall(r"^step=(\d+) ", log, flags=re.MULTILINE)), default=0)


def wait_for_moment(run: Started, plan: Plan) -> None:
    """Return when the kill is due, or when the run has ended before."""
    part = run.checkpoints / f".step-{plan.step:08d}.part"
    if plan.moment == "training":
        run.wait_until(lambda: count_steps(run.log) >= plan.step)
    elif plan.moment == "save":
        run.wait_until(part.exists)
    elif plan.victim not in ("all", MAIN):
        run.wait_until(lambda: plan.victim in run.alive().values())
    time.sleep(plan.delay_s)


def read_losses(folder: Path) -> Losses:
    """All that drafters have written down; a file that a kill has left without a first line holds nothing."""
    losses = {}
    for path in sorted(folder.glob("events/drafter-*.jsonl")):
        with suppress(FormatError):
            log = decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))
            losses.update({(path.stem, gauge.step): gauge.value for gauge in log.gauges if gauge.name == "loss"})
    return losses


def to_measures(trials: list[Trial]) -> list[Measure]:
    """The goals are those of the trainer's issue: no step but those since the last checkpoint, no process left."""
    none = Goal(high=0)
    return [
        Measure(
            name="resume_kills",
            value=sum(trial.status != 0 for trial in trials),
            unit="runs",
            goal=Goal(low=20),
            note="those that had not ended before",
        ),
        Measure(name="resume_failed", value=sum(trial.resumed_status != 0 for trial in trials), unit="runs", goal=none),
        Measure(
            name="resume_unequal_losses",
            value=sum(t.num_unequal for t in trials),
            unit="losses",
            goal=none,
            note="bit for bit",
        ),
        Measure(name="resume_missing_losses", value=sum(t.num_missing for t in trials), unit="losses", goal=none),
        Measure(name="resume_left_processes", value=sum(t.num_left for t in trials), unit="", goal=none),
        Measure(
            name="resume_lost_steps_max",
            value=max(trial.num_lost for trial in trials),
            unit="steps",
            goal=Goal(high=SAVE_EVERY),
            note=f"saved every {SAVE_EVERY} steps",
        ),
        Measure(
            name="resume_end_max",
            value=max(trial.end_s for trial in trials),
            unit="s",
            goal=Goal(high=END_LIMIT_S),
            note="from the kill until the last process of the run is gone",
        ),
    ]


def line(trial: Trial) -> str:
    """For the terminal."""
    plan = trial.plan
    return (
        f"{plan.topology} {plan.victim:12} {plan.moment:8} trained {trial.num_trained:2} saved {trial.num_saved:2} "
        f"gone after {trial.end_s:4.1f} s  unequal {trial.num_unequal} missing {trial.num_missing} "
        f"left {trial.num_left} status {trial.status}, resumed {trial.resumed_status}"
    )


if __name__ == "__main__":
    main()
