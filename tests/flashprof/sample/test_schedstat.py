"""Two snapshots of /proc make the means of a window, whatever threads come and go."""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashprof.contracts.errors import ToolError
from flashprof.contracts.ports import SampleTarget
from flashprof.sample.schedstat import SchedstatSampler, read_counters
from flashprof.sample.threads import FILE_NAME, read_threads

TARGET = SampleTarget(role="drafter", rank=1, pid=10)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class FakeClock:
    """A clock that goes when it is told to."""

    now_ns: int = 10**12

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


class FakeProc:
    """A /proc with one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uptime(100.0)

    def uptime(self, seconds: float) -> None:
        (self.folder / "uptime").write_text(f"{seconds} 1.0\n")

    def thread(
        self, tid: int, name: str, *, usr_s: float, wait_s: float | None, voluntary: int, started_s: float = 1.0
    ) -> None:
        folder = self.folder / "10" / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        usr, system = int(usr_s * TICKS_PER_S), int(usr_s * TICKS_PER_S / 10)
        values = ["R", *["0"] * 10, str(usr), str(system), *["0"] * 6, str(int(started_s * TICKS_PER_S)), "0"]
        (folder / "stat").write_text(f"{tid} ({name}) {' '.join(values)}\n")
        (folder / "status").write_text(
            f"Name:\t{name}\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{voluntary // 2}\n"
        )
        if wait_s is not None:
            (folder / "schedstat").write_text(f"1 {int(wait_s * 1e9)} 3\n")

    def end(self, tid: int) -> None:
        shutil.rmtree(self.folder / "10" / "task" / str(tid))


def test_the_means_of_a_window(tmp_path: Path) -> None:
    clock, proc = FakeClock(), FakeProc(tmp_path)
    proc.thread(10, "main (a) b", usr_s=50.0, wait_s=5.0, voluntary=1000)
    sampler = SchedstatSampler(clock, proc=tmp_path)
    sampler.start([TARGET], tmp_path)
    clock.sleep(4.0)
    proc.thread(10, "main (a) b", usr_s=52.0, wait_s=5.4, voluntary=1400)
    notes = sampler.stop()
    [use] = read_threads(tmp_path / FILE_NAME)

    assert notes == []
    assert (
        use.role, use.rank, use.pid, use.tid, use.thread, use.seconds,
    ) == ("drafter", 1, 10, 10, "main (a) b", 4.0)  # fmt: skip
    assert use.usr_pct == pytest.approx(50.0)
    assert use.system_pct == pytest.approx(5.0)
    assert use.wait_pct == pytest.approx(10.0)
    assert use.voluntary_switches_per_s == pytest.approx(100.0)
    assert use.involuntary_switches_per_s == pytest.approx(50.0)
    assert sampler.stop() == []


def test_a_thread_that_appears_is_measured_from_its_start_and_one_that_ends_is_noted(tmp_path: Path) -> None:
    clock, proc = FakeClock(), FakeProc(tmp_path)
    proc.thread(10, "main", usr_s=1.0, wait_s=0.0, voluntary=0)
    proc.thread(11, "loader 0", usr_s=1.0, wait_s=0.0, voluntary=0)
    sampler = SchedstatSampler(clock, proc=tmp_path)
    sampler.start([TARGET], tmp_path)
    clock.sleep(4.0)
    proc.uptime(104.0)
    proc.end(11)
    proc.thread(12, "late", usr_s=1.0, wait_s=0.0, voluntary=0, started_s=102.0)
    [note] = sampler.stop()
    uses = {use.thread: use for use in read_threads(tmp_path / FILE_NAME)}

    assert "loader 0" in note
    assert {"main", "late"} == set(uses)
    assert (uses["late"].seconds, uses["late"].usr_pct) == (2.0, 50.0)


def test_a_process_that_ends_is_noted(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.thread(10, "main", usr_s=1.0, wait_s=0.0, voluntary=0)
    sampler = SchedstatSampler(FakeClock(), proc=tmp_path)
    sampler.start([TARGET], tmp_path)
    shutil.rmtree(tmp_path / "10")

    assert sampler.stop() == ["drafter-1 ended during the window: no CPU use of its threads"]
    assert read_threads(tmp_path / FILE_NAME) == []


def test_a_kernel_without_schedstat_is_noted(tmp_path: Path) -> None:
    clock, proc = FakeClock(), FakeProc(tmp_path)
    proc.thread(10, "main", usr_s=1.0, wait_s=None, voluntary=0)
    sampler = SchedstatSampler(clock, proc=tmp_path)
    sampler.start([TARGET], tmp_path)
    clock.sleep(1.0)

    assert "no schedstat" in sampler.stop()[0]


def test_a_target_that_is_gone_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="drafter-1"):
        SchedstatSampler(FakeClock(), proc=tmp_path).start([TARGET], tmp_path)


def test_this_kernels_files_are_read() -> None:
    before = read_counters(Path("/proc"), os.getpid())[threading.get_native_id()]
    deadline_s = time.thread_time() + 0.1
    while time.thread_time() < deadline_s:
        pass
    after = read_counters(Path("/proc"), os.getpid())[threading.get_native_id()]

    assert 0.05 < after.usr_s + after.system_s - before.usr_s - before.system_s < 0.2
    assert before.started_s == after.started_s
