"""
What does a `kill -9` cost a comparison? `python -m benchmarks.kill_study`, about an hour on two quiet
cores; `--lanes 10` takes as many pairs of cores.

`flashprof compare` measures a slow-down of the real tiny pipeline, most often switched in one launch, now and then
launch by launch. At a random moment FlashProf itself, a process of the pipeline, or all of them get SIGKILL. After a
kill of FlashProf the same command is given again; after one of the pipeline the same FlashProf must go on. Every
complete window that was on disk at the kill must be in the answer, the answer must be that of a study which nobody
killed, and no process and no traceback may be left.

The results file is of kind `kills`.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.kill_calls import (
    END_LIMIT_S,
    MAIN,
    METHOD_OPTIONS,
    NUM_MEASURE,
    PIPELINE,
    TOOL,
    Call,
    Kill,
    Setting,
)
from benchmarks.kill_evidence import Evidence, fate, is_journal_whole, outcome_of_hit, read_evidence, read_result
from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from flashprof.contracts.outcome import Outcome

VICTIMS = (TOOL, MAIN, TOOL, "target-0", TOOL, "drafter-0", TOOL, PIPELINE)
METHODS = ("hot", "hot", "hot", "hot", "cold")
BASE = "swa,analytic-mask,early-exit"
CANDIDATE = "early-exit"
"""Evaluates the mask of every step: a third slower with this workload, where the drafter limits."""
WORKLOAD = "--token-budget 1024 --anchors 32"
"""A third of the tiny preset's tokens a step; with 16 anchors the target limits and hides the mask."""
TWICE_EVERY = 4
CORES_A_LANE = 2
MAX_TRIES = 3
"""Studies a kill: one that is over before its kill comes is no trial."""
LAST_MOMENT = 0.95
"""Of the length of a study that nobody kills; later it may be over before."""
WORKER_SPREAD_S = 0.3
MapLanes = Callable[[Callable[["Plan"], "Trial"], list["Plan"]], Iterable["Trial"]]
"""`map`, in the lanes' threads."""
VERDICTS = {0: "no regression", 1: "regression", 3: "inconclusive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One study and its kills, the second one after the command was given again."""

    method: str
    kills: tuple[Kill, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """One kill, and what came of it."""

    kill: Kill
    at_s: float
    """After the start of the command."""
    end_s: float
    """Until the trial had no process any more; 0 where FlashProf was to go on."""
    num_left: int
    """Processes that had not ended after `END_LIMIT_S`."""
    num_windows: int
    """Complete ones on disk."""
    num_lost: int
    num_half: int
    is_journal_whole: bool
    outcome: str
    """That the journal has for the launch that was hit; empty where none was."""
    is_named: bool
    """A kill of the pipeline shows as such, or hit a launch of which nothing more was wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One study that was killed, and went on until it had an answer."""

    plan: Plan
    struck: tuple[Struck, ...]
    """Fewer than planned where the study was over before."""
    statuses: tuple[int, ...]
    """Of all calls; the last one gives the answer."""
    verdict: str
    num_blocks: int
    num_left: int
    """Processes that outlived the last call."""
    has_traceback: bool
    length_s: float
    """Of all calls."""

    @property
    def is_resumed(self) -> bool:
        """Whether the study ended with an answer: by the same process, or by one more call after each that died."""
        return self.statuses[-1] in VERDICTS and VERDICTS[self.statuses[-1]] == self.verdict


@click.command()
@click.option("--kills", default=30, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=0, show_default=True, help="Of the moments.")
@click.option("--base", default=BASE, show_default=True)
@click.option("--candidate", default=CANDIDATE, show_default=True)
@click.option("--train", "train_options", default=WORKLOAD, show_default=True, help="Options of the pipeline's train.")
@click.option("--method", type=click.Choice(sorted(METHOD_OPTIONS)), help="Only this one.")
@click.option("--lanes", default=1, show_default=True, type=click.IntRange(min=1), help="Studies side by side.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, kills: int, seed: int, method: str | None, lanes: int, results: Path, **arms: str) -> None:
    """Kill and resume until so many kills have hit; print, and write the results file."""
    plans = (plan for plan in make_plans(random.Random(seed)) if method in (None, plan.method))
    cores: SimpleQueue[tuple[int, ...]] = SimpleQueue()
    for lane in range(lanes):
        cores.put(tuple(sorted(os.sched_getaffinity(0))[CORES_A_LANE * lane :][:CORES_A_LANE]))
    with ThreadPoolExecutor(lanes, initializer=_take_cores, initargs=(cores,)) as pool:
        whole = _run_whole([method] if method else sorted(set(METHODS)), pool, arms)
        shortest_s = {name: trial.length_s for name, trial in whole.items()}
        waves = iter(lambda: list(itertools.islice(plans, lanes)), [])
        trials = _run_killed(waves, kills, shortest_s, pool.map, arms)
    measures = to_measures(trials, {name: trial.verdict for name, trial in whole.items()})
    for measure in measures:
        click.echo(str(measure))
    data = {
        "seed": seed,
        "lanes": lanes,
        **arms,
        "unkilled": {name: asdict(trial) for name, trial in whole.items()},
        "trials": [asdict(trial) for trial in trials],
    }
    click.echo(f"written to {write_results('kills', measures, data, folder=results)}")


def _take_cores(cores: SimpleQueue[tuple[int, ...]]) -> None:
    """A lane's thread, and all that it starts, runs on two cores of its own."""
    os.sched_setaffinity(0, cores.get())


def _run_whole(methods: Sequence[str], pool: ThreadPoolExecutor, arms: Mapping[str, str]) -> dict[str, Trial]:
    """A study of each method that nobody kills."""
    found = list(pool.map(lambda method: run_trial(Plan(method=method, kills=()), 0.0, arms), methods))
    for trial in found:
        click.echo(line(trial))
        if trial.verdict != "regression" or not trial.is_resumed:
            raise click.ClickException("a study that nobody kills finds no regression: is the machine busy?")
    return dict(zip(methods, found, strict=True))


def _run_killed(
    waves: Iterator[list[Plan]], kills: int, shortest_s: dict[str, float], map_lanes: MapLanes, arms: Mapping[str, str]
) -> list[Trial]:
    """
    Studies side by side, wave after wave, until so many kills have hit.

    Moments are drawn within the shortest study that nobody killed: one that is over before its kill is no trial.
    """
    trials: list[Trial] = []
    while sum(len(trial.struck) for trial in trials) < kills and len(trials) < MAX_TRIES * kills:
        for trial in map_lanes(lambda plan: run_trial(plan, shortest_s[plan.method], arms), next(waves)):
            click.echo(line(trial))
            trials.append(trial)
            if not trial.struck:
                shortest_s[trial.plan.method] = min(shortest_s[trial.plan.method], trial.length_s)
    return trials


def make_plans(rng: random.Random) -> Iterator[Plan]:
    """Plans without end: victims and methods in turn, all moments random; every fourth study is killed twice."""
    for number in itertools.count():
        victims = [VICTIMS[number % len(VICTIMS)]]
        if number % TWICE_EVERY == TWICE_EVERY - 2:
            # FlashProf first, or the same process would go on.
            victims = [TOOL, VICTIMS[rng.randrange(len(VICTIMS))]]
        last = LAST_MOMENT / len(victims)
        kills = (
            Kill(victim=victim, moment=rng.uniform(0, last), delay_s=rng.uniform(0, WORKER_SPREAD_S))
            for victim in victims
        )
        # Eight victims and a cold study in five: 40 plans have each victim under each.
        yield Plan(method=METHODS[number % len(METHODS)], kills=tuple(kills))


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A kill, and what was on disk right after it; what it cost is known when the study has ended."""

    kill: Kill
    at_s: float
    end_s: float = 0.0
    num_left: int = 0
    before: Evidence


def run_trial(plan: Plan, whole_s: float, arms: Mapping[str, str]) -> Trial:
    """
    One study from its first call to its answer.

    Args:
        plan: Whom to kill.
        whole_s: How long a study takes that nobody kills.
        arms: The fields of `Setting` but for its folder.
    """
    with TemporaryDirectory(prefix="kills-") as folder:
        setting = Setting(**arms, folder=Path(folder))
        started_s = time.monotonic()
        call = setting.start(plan.method)
        hits: list[Hit] = []
        statuses: list[int] = []
        for kill in plan.kills:
            hit = _strike(call, kill, whole_s, setting)
            if hit is None:
                break
            hits.append(hit)
            if kill.victim == TOOL:
                statuses.append(call.wait())
                call = setting.start(plan.method)
        statuses.append(call.wait())
        length_s = time.monotonic() - started_s
        num_left = call.end_family()
        after, result = _look(setting), read_result(setting.reports)
        return Trial(
            plan=plan,
            struck=tuple(judge_hit(hit, after, result) for hit in hits),
            statuses=tuple(statuses),
            verdict=str(result.get("verdict", "")),
            num_blocks=len(result.get("blocks", ())),
            num_left=num_left,
            has_traceback=setting.has_traceback(),
            length_s=length_s,
        )


def judge_hit(hit: Hit, after: Evidence, result: Mapping[str, Any]) -> Struck:
    """What a kill has cost, once the study has ended."""
    found = fate(hit.before, after, result)
    outcome = None if hit.kill.victim == TOOL else outcome_of_hit(hit.before, after)
    return Struck(
        kill=hit.kill,
        at_s=hit.at_s,
        end_s=hit.end_s,
        num_left=hit.num_left,
        num_windows=found.num_windows,
        num_lost=found.num_lost,
        num_half=found.num_half,
        is_journal_whole=is_journal_whole(hit.before, after),
        outcome=str(outcome or ""),
        # A launch that was about to stop has given all that it should, however it ended.
        is_named=hit.kill.victim == TOOL or outcome is Outcome.KILLED or bool(hit.before.stopping),
    )


def to_measures(trials: Sequence[Trial], verdicts: Mapping[str, str]) -> list[Measure]:
    """
    The goals are those of the slice's issue: no window lost, the same command resumes, the same verdict.

    Args:
        trials: Studies that were killed.
        verdicts: Of studies that nobody killed, by method.
    """
    none = Goal(high=0)
    hit = [trial for trial in trials if trial.struck]
    struck = [item for trial in hit for item in trial.struck]
    same = [trial.verdict == verdicts[trial.plan.method] for trial in hit]
    counts = {
        "kill_windows_lost": (sum(item.num_lost for item in struck), "in no block of the answer, or gone from disk"),
        "kill_processes_left": (
            sum(trial.num_left for trial in trials) + sum(item.num_left for item in struck),
            f"{END_LIMIT_S:g} s after FlashProf had ended",
        ),
        "kill_traceback": (sum(trial.has_traceback for trial in trials), "studies that printed one"),
        "kill_journal_damaged": (sum(not item.is_journal_whole for item in struck), "a line unreadable or gone"),
        "kill_outcome_unnamed": (sum(not item.is_named for item in struck), "the pipeline's: not killed by a signal"),
    }
    return [
        Measure(name="kill_kills", value=len(struck), unit="", goal=Goal(low=30), note=f"in {len(hit)} studies"),
        _all(name="kill_resumed", shown=[trial.is_resumed for trial in hit], note="ended with an answer"),
        _all(name="kill_same_verdict", shown=same, note="as a study that nobody killed"),
        *(Measure(name=name, value=count, unit="", goal=none, note=note) for name, (count, note) in counts.items()),
        Measure(name="kill_windows_on_disk", value=sum(item.num_windows for item in struck), unit="", note="complete"),
        Measure(
            name="kill_windows_of_half_blocks",
            value=sum(item.num_half for item in struck),
            unit="",
            note="kept in the events, in no block: the kill came before their block was complete",
        ),
        Measure(
            name="kill_end_max",
            value=max((item.end_s for item in struck), default=0.0),
            unit="s",
            goal=Goal(high=END_LIMIT_S),
            note="from the kill of FlashProf until the last process of the study was gone",
        ),
    ]


def line(trial: Trial) -> str:
    """For the terminal."""
    kills = "; ".join(
        f"{item.kill.victim} at {item.at_s:.1f} s, gone after {item.end_s:.1f} s, {item.num_windows} windows, "
        f"{item.num_lost} lost, {item.num_half} of half blocks{_outcome(item)}"
        for item in trial.struck
    )
    ends = " ".join(map(str, trial.statuses))
    trouble = f"{', TRACEBACK' if trial.has_traceback else ''}{f', {trial.num_left} LEFT' if trial.num_left else ''}"
    return (
        f"{trial.plan.method:4} {trial.length_s:5.1f} s  {kills or 'not killed'} → "
        f"{trial.verdict} from {trial.num_blocks} blocks, status {ends}{trouble}"
    )


def _strike(call: Call, kill: Kill, whole_s: float, setting: Setting) -> Hit | None:
    """Kill as planned and see what is on disk; None where the call was over before."""
    start_s = time.monotonic()
    if not call.strike(kill, start_s + kill.moment * whole_s):
        return None
    kill_s = time.monotonic()
    if kill.victim != TOOL:
        # FlashProf has seen nothing yet: it looks ten times a second.
        return Hit(kill=kill, at_s=kill_s - start_s, before=_look(setting))
    call.wait()
    num_left = call.end_family()
    end_s = time.monotonic() - kill_s
    return Hit(kill=kill, at_s=kill_s - start_s, end_s=end_s, num_left=num_left, before=_look(setting))


def _look(setting: Setting) -> Evidence:
    return read_evidence(setting.reports, NUM_MEASURE)


def _all(*, name: str, shown: Sequence[bool], note: str) -> Measure:
    share_pct = 100 * sum(shown) / max(1, len(shown))
    return Measure(name=name, value=share_pct, unit="%", goal=Goal(low=100), note=f"of {len(shown)} studies: {note}")


def _outcome(item: Struck) -> str:
    name = f", {item.outcome}" if item.outcome else ""
    return f"{name}{'' if item.is_named else ' (NOT NAMED)'}{'' if item.is_journal_whole else ', JOURNAL DAMAGED'}"


if __name__ == "__main__":
    main()
