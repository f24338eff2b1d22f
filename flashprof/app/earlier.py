"""What earlier runs of the same cell, toggles apart, teach: what a launch costs, and how long silence is normal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from flashprof.contracts.cell import Cell
from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import EventLog
from flashprof.contracts.experiment import Experiment, SubjectKind, WindowPlan
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import WindowKind
from flashprof.store.run_folder import read_manifest

MIN_HANG_LIMIT_S = 10.0
"""A stalled disk or a busy neighbour stops a healthy trainer for seconds."""
SILENCES = 5.0
"""Times the longest silence that a healthy run had, before a run counts as hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Finished runs of one cell, toggles apart. Medians; None where no run knows it."""

    num_runs: int
    num_broken: int
    """Folders that look like runs and cannot be read; they are left out."""
    toggles: tuple[str, ...]
    """The toggle expressions that were run."""
    startup_s: float | None
    """From launch to the end of the first training step."""
    warmup_s: float | None
    """From there to steady state."""
    tok_per_s: float | None
    step_s: float | None
    """Wall time of a training step in measure windows."""
    longest_silence_s: float | None
    """Between two events of training, the longest in any of the runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    toggles: str
    startup_s: float | None
    warmup_s: float | None
    tok_per_s: float | None
    step_s: float | None
    longest_silence_s: float | None


def find_earlier(reports: Path, known: Cell) -> Earlier | None:
    """
    What finished runs of this cell, toggles apart, have shown; None where there is none.

    Args:
        reports: The folder of run folders, and of studies with their launches.
        known: From `known_before_launch`.
    """
    wanted = known.without("toggles").hash
    runs, num_broken = [], 0
    for folder in _run_folders(reports):
        try:
            run = _read_run(folder, wanted)
        except (FormatError, OSError, ValueError, KeyError, TypeError, AttributeError):
            num_broken += 1
            continue
        if run is not None:
            runs.append(run)
    if not runs:
        return None
    silences = [run.longest_silence_s for run in runs if run.longest_silence_s is not None]
    return Earlier(
        num_runs=len(runs),
        num_broken=num_broken,
        toggles=tuple(sorted({run.toggles for run in runs})),
        startup_s=_median(run.startup_s for run in runs),
        warmup_s=_median(run.warmup_s for run in runs),
        tok_per_s=_median(run.tok_per_s for run in runs),
        step_s=_median(run.step_s for run in runs),
        longest_silence_s=max(silences, default=None),
    )


def learnt_hang_limit_s(earlier: Earlier | None, default_s: float, *, toggles: Sequence[str]) -> float:
    """
    How long a subject may be silent before it counts as hung.

    Args:
        earlier: What is known of the cell.
        default_s: Where nothing is known, and the most that is learnt.
        toggles: The expressions that are going to be run. One that has not been run before may compile for longer
            than any silence that was seen, so that nothing is learnt for it.
    """
    if earlier is None or earlier.longest_silence_s is None or not set(toggles) <= set(earlier.toggles):
        return default_s
    return min(default_s, max(MIN_HANG_LIMIT_S, SILENCES * earlier.longest_silence_s))


def with_learnt_hang_limit(experiment: Experiment, earlier: Earlier | None) -> Experiment:
    """
    The experiment with the limit that earlier runs teach, unless the user set another than the default.

    Nothing is learnt where a checkpoint may be written that no earlier run came to: some gigabytes of weights and
    moments take longer than ten seconds on a slow disk, and a foreign trainer may save or evaluate at any time.
    """
    plan, subject = experiment.windows, experiment.subject
    may_save = subject.kind is SubjectKind.FOREIGN or any(
        word.startswith("--checkpoints") for word in subject.train_options
    )
    if may_save or plan.hang_timeout_s != WindowPlan.hang_timeout_s:
        return experiment
    limit_s = learnt_hang_limit_s(earlier, plan.hang_timeout_s, toggles=(subject.toggles,))
    return replace(experiment, windows=replace(plan, hang_timeout_s=limit_s))


def longest_silence_s(logs: Sequence[EventLog]) -> float | None:
    """The longest time between two events of any process from the first training step to the last; None without."""
    trained = [step.end_ns for log in logs if log.header.trains for step in log.steps]
    if not trained:
        return None
    signs = [step.end_ns for log in logs for step in log.steps]
    signs += [ack.at_ns for log in logs for ack in log.acks] + [mark.at_ns for log in logs for mark in log.marks]
    times = sorted(at_ns for at_ns in signs if min(trained) <= at_ns <= max(trained))
    return max((later - sooner for sooner, later in pairwise(times)), default=0) / 1e9


def _run_folders(reports: Path) -> Iterator[Path]:
    """Published ones: a name that begins with a dot is of a run that is not, or was not, completed."""
    for pattern in ("*/manifest.json", "*/launches/*/manifest.json"):
        for path in sorted(reports.glob(pattern)):
            if not any(part.startswith(".") for part in path.relative_to(reports).parts):
                yield path.parent


def _read_run(folder: Path, wanted: str) -> _Run | None:
    manifest = read_manifest(folder)
    if manifest.get("cell_known_hash") != wanted or manifest["outcome"] != Outcome.COMPLETED:
        return None
    summary: dict[str, Any] = dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    return _Run(
        toggles=manifest["experiment"]["subject"]["toggles"],
        startup_s=summary.get("startup_s"),
        warmup_s=(summary.get("warmup") or {}).get("length_s"),
        tok_per_s=(summary.get("tok_per_s") or {}).get("estimate"),
        step_s=_step_s(summary.get("windows", ())),
        longest_silence_s=manifest["longest_silence_s"],
    )


def _step_s(windows: Sequence[Mapping[str, Any]]) -> float | None:
    measured = [window for window in windows if window["kind"] == WindowKind.MEASURE and window["num_steps"]]
    num_steps = sum(window["num_steps"] for window in measured)
    return sum(window["length_s"] for window in measured) / num_steps if num_steps else None


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
