"""One `flashprof compare` in a session of its own, all that runs of it, and a `kill -9` at a planned moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from flashprof.launch.guard import MARK_VARIABLE

ROOT = Path(__file__).parents[1]
TOOL = "flashprof"
PIPELINE = "pipeline"
MAIN = "dispatcher-0"
"""Killed while it still imports too; workers, by their name in the process list, once they have one."""
NUM_MEASURE = 2
METHOD_OPTIONS = {
    "hot": ("--screen",),
    "cold": ("--method", "cold", "--set", f"windows.num_measure={NUM_MEASURE}", "--set", "windows.measure_s=3"),
}
END_LIMIT_S = 10.0
"""In which the pipeline must have ended once FlashProf is dead: the guard gives it 2 s before it kills."""
STUDY_LIMIT_S = 1200.0
TRACEBACK = "Traceback (most recent call last)"
STUDY_VARIABLE = "FLASHPROF_KILL_STUDY"
"""In the environment of every process of a trial: a random word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """When, and whom."""

    victim: str
    moment: float
    """From the start of the command, in lengths of a study that nobody kills."""
    delay_s: float
    """After that, and after the victim has appeared."""


@dataclass(frozen=True)
class Call:
    """One `flashprof compare` in a session of its own."""

    process: subprocess.Popen[bytes]
    mark: str

    def family(self) -> list[psutil.Process]:
        """All that runs of it, the guard and the pipeline included, wherever they moved."""
        return [process for process in psutil.process_iter() if _environment(process).get(STUDY_VARIABLE) == self.mark]

    def pipeline(self) -> list[psutil.Process]:
        """Of those, the pipeline's."""
        return [process for process in self.family() if MARK_VARIABLE in _environment(process)]

    def find(self, victim: str) -> list[int]:
        """Process ids of a victim; none before it has started, or when it has ended."""
        if victim == TOOL:
            return [self.process.pid] if self.process.poll() is None else []
        family = self.pipeline()
        if victim == MAIN:
            # It has its name only once it has imported.
            family = [process for process in family if _parent(process) == self.process.pid]
        elif victim != PIPELINE:
            family = [process for process in family if _name(process) == victim]
        return [process.pid for process in family]

    def strike(self, kill: Kill, at_s: float) -> bool:
        """Wait for the moment and the victim, and kill; whether it was there before the command ended."""
        while time.monotonic() < at_s and self.process.poll() is None:
            time.sleep(0.005)
        while self.process.poll() is None and not self.find(kill.victim):
            time.sleep(0.1)
        time.sleep(kill.delay_s)
        pids = self.find(kill.victim) if self.process.poll() is None else []
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def wait(self) -> int:
        """Its status; a study that does not come to an end is ended."""
        try:
            return self.process.wait(STUDY_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def end_family(self, limit_s: float = END_LIMIT_S) -> int:
        """Wait until nothing runs any more; how many processes had to be killed for that."""
        deadline_s = time.monotonic() + limit_s
        while (left := self.family()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        return len(left)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all trials have in common."""

    base: str
    candidate: str
    train_options: str
    folder: Path
    """A trial's own; holds its reports folder and what its calls print."""

    @property
    def reports(self) -> Path:
        """Of `flashprof compare`."""
        return self.folder / "reports"

    def start(self, method: str) -> Call:
        """Give the command, for the first time or again: it is the same."""
        mark = uuid.uuid4().hex
        output = self.folder / f"call-{mark}.txt"
        command = [sys.executable, "-m", "flashprof.cli", "compare", self.base, self.candidate]
        options = ["--train", self.train_options, *METHOD_OPTIONS[method], "--reports", str(self.reports)]
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*command, *options],
                cwd=ROOT,
                env={**os.environ, STUDY_VARIABLE: mark},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Call(process, mark)

    def has_traceback(self) -> bool:
        """Whether any call has printed one."""
        return any(TRACEBACK in path.read_text(encoding="utf-8") for path in self.folder.glob("call-*.txt"))


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """Empty where it is gone, or somebody else's."""
    try:
        environment: Mapping[str, str] = process.environ()
    except (psutil.Error, OSError):
        return {}
    return environment


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except (psutil.Error, OSError):
        return ""


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except (psutil.Error, OSError):
        return None
