"""The machine's counters from a `/proc` of our own making, and once from the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashprof.contracts.machine import GpuReading
from flashprof.sample.counters import SystemMeter

OWN, GUARD, LAUNCHER, WORKER, STRANGER = 10, 11, 20, 21, 99
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class FakeClock:
    """Always the same moment."""

    def monotonic_ns(self) -> int:
        return 77

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


class FakeGpus:
    """Remembers whom it was asked about."""

    def __init__(self) -> None:
        self.asked: list[set[int]] = []

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        self.asked.append(set(pids))
        return ()


@dataclass(frozen=True)
class FakeSystem:
    """A `/proc` and a `/sys` in a folder."""

    root: Path

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    def meter(self, gpus: FakeGpus | None = None) -> SystemMeter:
        return SystemMeter(FakeClock(), gpus=gpus, proc=self.proc, sys=self.sys, own_pid=OWN)

    def host(self, *, user_s: float, nice_s: float = 0, steal_s: float = 0, swapped: tuple[int, int] = (0, 0)) -> None:
        self.proc.mkdir(exist_ok=True, parents=True)
        # system 1, idle 1000, iowait 2000, irq 3, softirq 4; guests 500 and 600 are part of user and nice.
        seconds = (user_s, nice_s, 1, 1000, 2000, 3, 4, steal_s, 500, 600)
        line = " ".join(str(round(value * TICKS_PER_S)) for value in seconds)
        (self.proc / "stat").write_text(f"cpu  {line}\ncpu0 {line}\nctxt 5\n")
        (self.proc / "vmstat").write_text(f"nr_free_pages 9\npswpin {swapped[0]}\npswpout {swapped[1]}\npgfault 3\n")

    def process(self, pid: int, cpu_s: float, *, children: tuple[int, ...] = (), name: str = "python") -> None:
        self.thread(pid, pid, children=children)
        user, system = round(cpu_s * TICKS_PER_S * 3 / 4), round(cpu_s * TICKS_PER_S / 4)
        values = ["R", *["0"] * 10, str(user), str(system), "700", "800"]
        (self.proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(values)}\n")

    def thread(self, pid: int, tid: int, *, delay_s: float = 0.0, children: tuple[int, ...] = ()) -> None:
        folder = self.proc / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"123 {round(delay_s * 1e9)} 4\n")
        (folder / "children").write_text(" ".join(map(str, children)) + " ")

    def end(self, pid: int, tid: int | None = None) -> None:
        shutil.rmtree(self.proc / str(pid) if tid is None else self.proc / str(pid) / "task" / str(tid))

    def governor(self, cpu: int, name: str) -> None:
        path = self.sys / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    """FlashProf with its guard, and a subject of two processes, one below the other; beside them a stranger."""
    fake = FakeSystem(tmp_path)
    fake.host(user_s=200.0)
    fake.process(OWN, 2.0, children=(GUARD, LAUNCHER))
    fake.process(GUARD, 0.5)
    fake.process(LAUNCHER, 4.0, children=(WORKER,))
    fake.process(WORKER, 60.0)
    fake.process(STRANGER, 100.0)
    return fake


def test_the_host_is_busy_with_all_but_idling_and_waiting_for_disks(system: FakeSystem) -> None:
    system.host(user_s=200.0, nice_s=10.0, steal_s=6.0, swapped=(3, 4))
    reading = system.meter().read([LAUNCHER])

    assert (77, 218.0, 6.0, 7) == (
        reading.at_ns,
        reading.busy_cpu_s,
        reading.stolen_cpu_s,
        reading.num_swapped_pages,
    )


@pytest.mark.parametrize("pids", [(LAUNCHER,), (LAUNCHER, WORKER), (WORKER, LAUNCHER, WORKER)])
def test_the_subject_is_its_processes_and_what_descends_from_them_and_the_rest_of_the_family_is_ours(
    system: FakeSystem, pids: tuple[int, ...]
) -> None:
    reading = system.meter().read(pids)

    assert (64.0, 2.5) == (reading.subject_cpu_s, reading.own_cpu_s)


def test_a_name_with_brackets_and_spaces_is_no_trap(system: FakeSystem) -> None:
    system.process(WORKER, 60.0, name="a) R (9 9 b")

    assert 64.0 == system.meter().read([LAUNCHER]).subject_cpu_s


def test_what_an_ended_process_had_used_stays(system: FakeSystem) -> None:
    meter = system.meter()
    meter.read([LAUNCHER])
    system.end(WORKER)
    system.end(GUARD)
    system.process(LAUNCHER, 5.0)
    readings = [meter.read([LAUNCHER, WORKER]) for _ in range(2)]

    assert [(65.0, 2.5)] * 2 == [(reading.subject_cpu_s, reading.own_cpu_s) for reading in readings]


def test_a_child_that_the_kernel_overlooks_once_is_not_counted_twice(system: FakeSystem) -> None:
    meter = system.meter()
    meter.read([LAUNCHER])
    system.process(LAUNCHER, 4.0)
    hidden = meter.read([LAUNCHER])
    system.process(LAUNCHER, 4.0, children=(WORKER,))
    system.process(WORKER, 61.0)

    assert (64.0, 65.0) == (hidden.subject_cpu_s, meter.read([LAUNCHER]).subject_cpu_s)


@pytest.mark.parametrize("is_seen_to_end", [True, False])
def test_a_process_that_gets_the_id_of_an_ended_one_counts_beside_it(
    system: FakeSystem,
    is_seen_to_end: bool,
) -> None:
    meter = system.meter()
    meter.read([LAUNCHER])
    if is_seen_to_end:
        system.end(WORKER)
        meter.read([LAUNCHER])
    system.process(WORKER, 1.0)

    assert 65.0 == meter.read([LAUNCHER]).subject_cpu_s


def test_a_process_that_turns_out_to_be_the_subjects_moves_with_all_it_used(system: FakeSystem) -> None:
    meter = system.meter()
    before, after = meter.read([]), meter.read([LAUNCHER])

    assert (0.0, 66.5) == (before.subject_cpu_s, before.own_cpu_s)
    assert (64.0, 2.5) == (after.subject_cpu_s, after.own_cpu_s)


def test_delays_are_the_subjects_threads_ended_ones_too(system: FakeSystem) -> None:
    meter = system.meter()
    system.thread(OWN, OWN, delay_s=50.0, children=(GUARD, LAUNCHER))
    system.thread(LAUNCHER, LAUNCHER, delay_s=0.5, children=(WORKER,))
    system.thread(WORKER, WORKER, delay_s=1.0)
    system.thread(WORKER, 22, delay_s=2.0)
    first = meter.read([LAUNCHER]).subject_delay_s
    system.end(WORKER, 22)
    system.thread(WORKER, WORKER, delay_s=1.25)

    assert (3.5, 3.75) == (first, meter.read([LAUNCHER]).subject_delay_s)


def test_children_of_any_thread_are_found(system: FakeSystem) -> None:
    system.thread(WORKER, 22, children=(30,))
    system.process(30, 8.0)

    assert 72.0 == system.meter().read([LAUNCHER]).subject_cpu_s


def test_gpus_are_asked_for_the_whole_subject(system: FakeSystem) -> None:
    gpus = FakeGpus()
    system.meter(gpus).read([LAUNCHER])

    assert [{LAUNCHER, WORKER}] == gpus.asked


def test_governors_are_joined_and_a_change_of_all_is_seen(system: FakeSystem) -> None:
    for cpu in (0, 1):
        system.governor(cpu, "performance")
    system.governor(10, "ondemand")
    meter = system.meter()
    before = meter.read([]).governor
    for cpu in (0, 1, 10):
        system.governor(cpu, "powersave")

    assert ("ondemand+performance", "powersave") == (before, meter.read([]).governor)


def test_a_system_without_these_files_reads_as_zeros(tmp_path: Path) -> None:
    reading = FakeSystem(tmp_path).meter().read([LAUNCHER])

    assert (0.0, 0.0, 0.0, 0.0, 0.0, 0, "", ()) == (
        reading.busy_cpu_s,
        reading.stolen_cpu_s,
        reading.subject_cpu_s,
        reading.own_cpu_s,
        reading.subject_delay_s,
        reading.num_swapped_pages,
        reading.governor,
        reading.gpus,
    )


def test_what_cannot_be_read_once_keeps_its_value(system: FakeSystem) -> None:
    system.governor(0, "performance")
    meter = system.meter()
    before = meter.read([LAUNCHER])
    shutil.rmtree(system.proc)
    shutil.rmtree(system.sys)

    assert before == meter.read([LAUNCHER])


@contextmanager
def busy_loop() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_this_kernels_files_tell_a_busy_child_from_ourselves() -> None:
    class RealClock(FakeClock):
        def monotonic_ns(self) -> int:
            return time.monotonic_ns()

    meter = SystemMeter(RealClock())
    with busy_loop() as pid:
        first = last = meter.read([pid])
        deadline_ns = first.at_ns + 20 * 10**9
        while last.subject_cpu_s < first.subject_cpu_s + 0.2 and last.at_ns < deadline_ns:
            last = meter.read([pid])

    assert last.subject_cpu_s >= first.subject_cpu_s + 0.2
    assert last.busy_cpu_s >= first.busy_cpu_s + 0.15
    assert last.own_cpu_s >= first.own_cpu_s > 0
    assert last.subject_delay_s >= first.subject_delay_s
