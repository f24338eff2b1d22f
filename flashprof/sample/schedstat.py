"""Per-thread CPU use from two snapshots of `/proc`: needs no tool, no thread, and about 0.1 ms a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.ports import Clock, SampleTarget
from flashprof.sample.threads import ThreadUse, check_alive, write_threads

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SHORTEST_S = 1 / _TICKS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the kernel has counted for one thread since its start."""

    thread: str
    usr_s: float
    system_s: float
    wait_s: float | None
    """Runnable but not running; None where the kernel does not count it."""
    num_voluntary: int
    num_involuntary: int
    started_s: float
    """Seconds after boot."""


_Snapshot = dict[int, Counters]


class SchedstatSampler:
    """The means of a window from the counters at its two ends; exact for threads that live through it."""

    name = "schedstat"

    def __init__(self, clock: Clock, *, proc: Path = Path("/proc")) -> None:
        self._clock = clock
        self._proc = proc
        self._targets: tuple[SampleTarget, ...] = ()
        self._folder: Path | None = None
        self._first: dict[int, _Snapshot] = {}
        self._started_ns = 0

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        """
        Take the first snapshot.

        Raises:
            ToolError: A target has ended.
        """
        check_alive(targets, self._proc)
        self._targets = tuple(targets)
        self._folder = folder
        self._started_ns = self._clock.monotonic_ns()
        self._first = {target.pid: read_counters(self._proc, target.pid) for target in targets}

    def stop(self) -> list[str]:
        """Take the second snapshot, write `threads.csv`, and say which threads are missing from it."""
        if self._folder is None:
            return []
        folder, self._folder = self._folder, None
        seconds = (self._clock.monotonic_ns() - self._started_ns) / 1e9
        uptime_s = float((self._proc / "uptime").read_text(encoding="ascii").split()[0])
        uses: list[ThreadUse] = []
        notes: list[str] = []
        for target in self._targets:
            last = read_counters(self._proc, target.pid)
            first = self._first[target.pid]
            uses += [_use(target, tid, first.get(tid), last[tid], (seconds, uptime_s)) for tid in last]
            notes += _notes(target, first, last)
        write_threads(folder, uses)
        return notes


def read_counters(proc: Path, pid: int) -> _Snapshot:
    """The counters of each thread of *pid* by thread id; a thread that ends while it is read is left out."""
    snapshot: _Snapshot = {}
    try:
        folders = list((proc / str(pid) / "task").iterdir())
    except OSError:
        return snapshot
    for folder in folders:
        try:
            snapshot[int(folder.name)] = _read_thread(folder)
        except OSError:
            continue
    return snapshot


def _read_thread(folder: Path) -> Counters:
    stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    # The name stands in brackets and may hold brackets and spaces itself.
    head, _, tail = stat.rpartition(")")
    values = tail.split()
    status = (folder / "status").read_text(encoding="utf-8", errors="replace")
    switches = dict(line.split(":", 1) for line in status.splitlines() if "ctxt_switches" in line)
    return Counters(
        thread=head.partition("(")[2],
        usr_s=int(values[11]) / _TICKS_PER_S,
        system_s=int(values[12]) / _TICKS_PER_S,
        wait_s=_read_wait_s(folder),
        num_voluntary=int(switches["voluntary_ctxt_switches"]),
        num_involuntary=int(switches["nonvoluntary_ctxt_switches"]),
        started_s=int(values[19]) / _TICKS_PER_S,
    )


def _read_wait_s(folder: Path) -> float | None:
    path = folder / "schedstat"
    return int(path.read_text(encoding="ascii").split()[1]) / 1e9 if path.exists() else None


def _use(
    target: SampleTarget, tid: int, first: Counters | None, last: Counters, times: tuple[float, float]
) -> ThreadUse:
    window_s, uptime_s = times
    # A thread that began inside the window counted from zero then.
    seen_s = window_s if first is not None else min(window_s, uptime_s - last.started_s)
    seconds = max(seen_s, _SHORTEST_S)

    def rate(name: str) -> float:
        before = getattr(first, name) or 0 if first else 0
        return float(((getattr(last, name) or 0) - before) / seconds)

    return ThreadUse(
        role=target.role,
        rank=target.rank,
        pid=target.pid,
        tid=tid,
        thread=last.thread,
        usr_pct=100 * rate("usr_s"),
        system_pct=100 * rate("system_s"),
        wait_pct=100 * rate("wait_s"),
        voluntary_switches_per_s=rate("num_voluntary"),
        involuntary_switches_per_s=rate("num_involuntary"),
        seconds=seconds,
    )


def _notes(target: SampleTarget, first: _Snapshot, last: _Snapshot) -> list[str]:
    if not last:
        return [f"{target.name} ended during the window: no CPU use of its threads"]
    notes = []
    gone = sorted(first[tid].thread for tid in first.keys() - last.keys())
    if gone:
        notes.append(f"{target.name}: threads that ended during the window are not counted: {', '.join(gone)}")
    if any(counters.wait_s is None for counters in last.values()):
        notes.append(f"{target.name}: this kernel keeps no schedstat, so wait_pct is 0 and says nothing")
    return notes
