"""Plain launches of pipeline trees that take turns: tok/s and time a phase, from events. No FlashProf in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from flashprof.contracts.events import EventLog, Step, decode
from flashprof.emit import RUN_DIR_VARIABLE


@dataclass(frozen=True)
class Slice:
    """When one trainer ran while the others were stopped; monotonic time."""

    name: str
    start_ns: int
    end_ns: int
    cpu_s: dict[str, float]
    """Processor time of each of its processes: `drafter-0`."""


@dataclass(frozen=True)
class Rate:
    """What a trainer did in its slices."""

    tok_per_s: tuple[float, ...]
    """A slice."""
    cpu_ms: dict[str, float]
    """Processor time a step, by process: `drafter-0`. Neighbours move it far less than tok/s."""
    phase_ms: dict[str, float]
    """Own time a step of the drafter's, the target's and the dispatcher's phases: `drafter mask`."""
    ready_s: float
    """From the command to the end of the first step."""


@contextmanager
def started(tree: Path, options: Iterable[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """
    A trainer without an end from *tree*, in a session of its own; killed with all its processes when left.

    Args:
        tree: Holds `pipeline/` and `flashprof/`.
        options: Of `python -m pipeline train`.
        folder: Its run folder, whose `log` takes what it prints.
    """
    (folder / "control").mkdir(parents=True)
    command = [sys.executable, "-P", "-m", "pipeline", "train", "--device", "cpu", "--steps", "0", *options]
    env = {**os.environ, "PYTHONPATH": str(tree), RUN_DIR_VARIABLE: str(folder)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            # It may have ended; whoever of its group is left must not outlive the case.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def take_turns(trainers: Mapping[str, subprocess.Popen[bytes]], plan: Iterable[str], slice_s: float) -> list[Slice]:
    """
    Let one of *trainers* run at a time, the rest being stopped, in the order of *plan*.

    Slices of a few seconds see the same neighbours, which whole launches one after the other do not.
    """
    slices = []
    for name in plan:
        before_s = cpu_s(trainers[name].pid)
        os.killpg(trainers[name].pid, signal.SIGCONT)
        start_ns = time.monotonic_ns()
        time.sleep(slice_s)
        os.killpg(trainers[name].pid, signal.SIGSTOP)
        used_s = {
            process: after_s - before_s.get(process, 0.0) for process, after_s in cpu_s(trainers[name].pid).items()
        }
        slices.append(Slice(name, start_ns, time.monotonic_ns(), used_s))
    return slices


def cpu_s(session: int) -> dict[str, float]:
    """Processor time so far of a trainer's processes, by the name in the process list."""
    used = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session:
                times = process.cpu_times()
                used[process.name()] = times.user + times.system
    return used


def read_rate(folder: Path, slices: Sequence[Slice]) -> Rate:
    """
    What the events of a run folder say of *slices*.

    Raises:
        RuntimeError: They are too short for its steps.
    """
    logs = {
        path.stem.partition("-")[0]: decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))
        for path in sorted(folder.glob("events/*.jsonl"))
    }
    steps, start_ns = logs["drafter"].steps, logs["dispatcher"].header.monotonic_ns
    phases = {f"{role} {phase}": ms for role, log in logs.items() for phase, ms in _phase_ms(log, slices).items()}
    num_steps = sum(_is_in(step.end_ns, slices) for step in steps)
    used_s = Counter[str]()
    for part in slices:
        used_s.update(part.cpu_s)
    return Rate(
        cpu_ms={process: 1000 * used / num_steps for process, used in used_s.items()},
        tok_per_s=tuple(_tok_per_s(steps, part) for part in slices),
        phase_ms=phases,
        ready_s=(steps[0].end_ns - start_ns) / 1e9,
    )


def _tok_per_s(steps: Sequence[Step], part: Slice) -> float:
    """From the first step's end in the slice to the last one's: the step that a stop cut in two is left out."""
    inside = [step for step in steps if part.start_ns < step.end_ns < part.end_ns]
    if len(inside) < 2:
        raise RuntimeError("fewer than two steps end in a slice: --slice must be longer")
    return sum(step.num_tokens for step in inside[1:]) / (inside[-1].end_ns - inside[0].end_ns) * 1e9


def _phase_ms(log: EventLog, slices: Sequence[Slice]) -> dict[str, float]:
    """Spans come in the order of their ends, children first; those that a stop cut in two are left out."""
    own_ns: dict[str, int] = defaultdict(int)
    inner_ns: dict[tuple[str, int], int] = defaultdict(int)
    for span in log.spans:
        length_ns = span.end_ns - span.start_ns
        own = length_ns - inner_ns.pop((span.thread, span.depth + 1), 0)
        inner_ns[span.thread, span.depth] += length_ns
        if not span.depth:
            inner_ns.clear()
        if any(part.start_ns < span.start_ns and span.end_ns < part.end_ns for part in slices):
            own_ns[span.phase] += own
    num_steps = sum(_is_in(step.end_ns, slices) for step in log.steps)
    return {phase: ns / max(1, num_steps) / 1e6 for phase, ns in own_ns.items()}


def _is_in(at_ns: int, slices: Sequence[Slice]) -> bool:
    return any(part.start_ns < at_ns < part.end_ns for part in slices)
