"""The plug points: what floor 4 provides and floor 5 uses. Wired in `app.wiring`, replaced by fakes in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flashprof.contracts.machine import MachineReading


class Clock(Protocol):
    """Time, injected so that tests need not wait."""

    def monotonic_ns(self) -> int:
        """The host's monotonic clock, the one that events use."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """How to start a subject."""

    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment, not additions."""
    log_path: Path
    """Standard output and error, merged."""


class Subject(Protocol):
    """A started program and all its descendants."""

    @property
    def pid(self) -> int:
        """The program's own process id."""
        ...

    def returncode(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""
        ...

    def interrupt(self) -> None:
        """Ask the program, not its children, to stop (SIGINT)."""
        ...

    def kill_tree(self) -> int:
        """End it and every descendant; returns how many had to be killed. Safe to call twice."""
        ...


class Launcher(Protocol):
    """Starts subjects."""

    def launch(self, spec: LaunchSpec) -> Subject:
        """
        Start the program.

        Raises:
            UsageError: The command does not exist or may not be executed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTarget:
    """One process to sample."""

    role: str
    rank: int
    pid: int

    @property
    def name(self) -> str:
        """`<role>-<rank>`, the stem of its files."""
        return f"{self.role}-{self.rank}"


class Sampler(Protocol):
    """Something attached to running processes for the length of a profile window."""

    @property
    def name(self) -> str:
        """How it is called in reports and messages."""
        ...

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        """
        Attach, and return only when sampling has begun, so that attaching does not fall into the window.

        Raises:
            ToolError: It cannot attach; says why and the remedy. Nothing is left running.
        """
        ...

    def stop(self) -> list[str]:
        """Detach, leave complete files in the folder, and return notes on what was lost. Safe to call twice."""
        ...


class Meter(Protocol):
    """Reads the machine's counters; cheap enough for measure windows, at most 2 ms."""

    def read(self, pids: Sequence[int]) -> MachineReading:
        """
        The counters now.

        Args:
            pids: The subject's processes; ones that have ended keep the CPU time last seen of them.
        """
        ...
