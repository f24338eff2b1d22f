"""
The machine's counters at a moment, from `/proc`, `/sys` and NVML: who used the cores beside the subject.

A reading takes 0.5 ms for the tiny preset (5 processes, 8 threads, no GPU) and 0.02 ms more a thread: 2.9 ms for 150
threads, 0.3 % of a core at one reading a second. What NVML adds is not part of these numbers.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from flashprof.contracts.machine import GpuReading, MachineReading
from flashprof.contracts.ports import Clock

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SUBJECT, _OWN = "subject", "own"


class Gpus(Protocol):
    """Where readings of GPUs come from; `flashprof.sample.nvml.NvmlGpus`."""

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """The GPUs that these processes use."""
        ...


class SystemMeter:
    """
    Implements `contracts.ports.Meter` for this host. Makes no error: what cannot be read keeps its last value.

    What an ended process had used stays in the sums, so one meter may read several launches: differences count.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        gpus: Gpus | None = None,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        own_pid: int | None = None,
    ) -> None:
        self._clock = clock
        self._gpus = gpus
        self._proc = os.fspath(proc)
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._governors = _Governors(sys)
        self._cpu = _Ledger()
        self._delay = _Ledger()
        self._busy_and_stolen_s = (0.0, 0.0)
        self._num_swapped_pages = 0

    def read(self, pids: Sequence[int]) -> MachineReading:
        """
        The counters now.

        Args:
            pids: The subject's processes; their descendants are found.
        """
        at_ns = self._clock.monotonic_ns()
        self._busy_and_stolen_s = _read_host_cpu_s(self._proc) or self._busy_and_stolen_s
        subject = _find_family(self._proc, pids, ())
        own = _find_family(self._proc, (self._own_pid,), subject)
        groups = dict.fromkeys(subject, _SUBJECT) | dict.fromkeys(own, _OWN)
        cpu_s = self._cpu.add_up({pid: (group, _read_cpu_s(self._proc, pid)) for pid, group in groups.items()})
        delay_s = self._delay.add_up({tid: (_SUBJECT, value) for tid, value in _read_delays_s(self._proc, subject)})
        pages = _read_swapped_pages(self._proc)
        self._num_swapped_pages = self._num_swapped_pages if pages is None else pages
        busy_cpu_s, stolen_cpu_s = self._busy_and_stolen_s
        return MachineReading(
            at_ns=at_ns,
            busy_cpu_s=busy_cpu_s,
            stolen_cpu_s=stolen_cpu_s,
            subject_cpu_s=cpu_s[_SUBJECT],
            own_cpu_s=cpu_s[_OWN],
            subject_delay_s=delay_s[_SUBJECT],
            num_swapped_pages=self._num_swapped_pages,
            governor=self._governors.read(),
            gpus=() if self._gpus is None else self._gpus.read(subject),
        )


class _Ledger:
    """Sums of counters, by group, over members that come and go: what an ended one had counted stays."""

    def __init__(self) -> None:
        self._last: Mapping[int, tuple[str, float]] = {}
        self._missing: dict[int, tuple[str, float]] = {}
        self._ended: defaultdict[str, float] = defaultdict(float)

    def add_up(self, now: Mapping[int, tuple[str, float | None]]) -> Mapping[str, float]:
        """
        The sums now.

        Args:
            now: Group and value by id. A value of None could not be read: the member has just ended.
        """
        live = {member: (group, value) for member, (group, value) in now.items() if value is not None}
        before = self._missing | dict(self._last)
        # The kernel may overlook a child while others end, so one that is missing may come back. A smaller value under
        # the same id is another process: the system gave the id of an ended one away.
        for member in before.keys() & live.keys():
            group, value = before.pop(member)
            if live[member][1] < value:
                self._ended[group] += value
        self._missing = before
        self._last = live
        sums = self._ended.copy()
        for group, value in (*live.values(), *self._missing.values()):
            sums[group] += value
        return sums


class _Governors:
    """CPU frequency governors; one file a core, so all are read only when the first of them changes."""

    def __init__(self, sys: Path) -> None:
        self._paths = sorted(sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
        self._first: str | None = None
        self._joined = ""

    def read(self) -> str:
        """All that are in force, in alphabetical order."""
        first = _read_name(self._paths[0]) if self._paths else None
        if first is not None and first != self._first:
            self._first = first
            names = {name for path in self._paths if (name := _read_name(path)) is not None}
            self._joined = "+".join(sorted(names))
        return self._joined


def _find_family(proc: str, roots: Iterable[int], without: Collection[int]) -> dict[int, list[str]]:
    """The processes *roots* and all their descendants, with their threads; neither *without* nor what is below it."""
    family: dict[int, list[str]] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in family or pid in without:
            continue
        folder = f"{proc}/{pid}/task"
        try:
            family[pid] = os.listdir(folder)  # noqa: PTH208 (iterdir makes a Path of each thread)
        except OSError:
            continue
        for tid in family[pid]:
            # Kernels without CONFIG_PROC_CHILDREN have no such file: then only the roots are known.
            waiting += map(int, (_read(f"{folder}/{tid}/children") or b"").split())
    return family


def _read_cpu_s(proc: str, pid: int) -> float | None:
    # The name stands in brackets and may hold brackets and spaces itself. All threads, ended ones too.
    fields = (_read(f"{proc}/{pid}/stat") or b"").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if len(fields) > 12 else None


def _read_delays_s(proc: str, family: Mapping[int, Sequence[str]]) -> Iterable[tuple[int, float]]:
    for pid, tids in family.items():
        for tid in tids:
            fields = (_read(f"{proc}/{pid}/task/{tid}/schedstat") or b"").split()
            if len(fields) > 1:
                yield int(tid), int(fields[1]) / 1e9


def _read_host_cpu_s(proc: str) -> tuple[float, float] | None:
    """Busy and stolen, in seconds since boot; guests are in `user` already."""
    fields = (_read(f"{proc}/stat") or b"").partition(b"\n")[0].split()
    if len(fields) < 9:
        return None
    user, nice, system, _, _, irq, softirq, steal = (int(field) / _TICKS_PER_S for field in fields[1:9])
    return user + nice + system + irq + softirq, steal


def _read_swapped_pages(proc: str) -> int | None:
    lines = (_read(f"{proc}/vmstat") or b"").splitlines()
    counts = [int(line.split()[1]) for line in lines if line.startswith((b"pswpin ", b"pswpout "))]
    return sum(counts) if counts else None


def _read_name(path: Path) -> str | None:
    content = _read(os.fspath(path))
    return None if content is None else content.decode(errors="replace").strip()


def _read(path: str) -> bytes | None:
    """A small file whole; None where it cannot be read."""
    # 7 µs a file; `Path.read_bytes` takes 16 µs, and there are two files a thread.
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, 1 << 16)
        finally:
            os.close(file)
    except OSError:
        return None
