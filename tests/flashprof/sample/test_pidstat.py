"""pidstat's table is read by its header, and agrees with the kernel's own counters."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from processes import own_children

from flashprof.contracts.errors import ToolError
from flashprof.contracts.ports import SampleTarget
from flashprof.sample.pidstat import RAW_FILE_NAME, PidstatSampler, parse_pidstat
from flashprof.sample.schedstat import SchedstatSampler
from flashprof.sample.threads import FILE_NAME, read_threads

needs_pidstat = pytest.mark.skipif(
    shutil.which("pidstat") is None, reason="pidstat is missing: apt-get install sysstat"
)

# A real run of sysstat 12.6.1: one process with a thread that lives 1.5 s, one process that shares a core.
RECORDED = (Path(__file__).parent / "data" / "pidstat-12.6.1.txt").read_text().splitlines()
TARGETS = [SampleTarget(role="drafter", rank=0, pid=6476), SampleTarget(role="target", rank=2, pid=6477)]

# Two threads of one process on one core: each runs half of the time and waits for the other half.
CONTENDED = """
import ctypes, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
if os.fork() == 0:
    ctypes.CDLL(None).prctl(1, 9)
print("ready", flush=True)
while True:
    pass
"""


class RealClock:
    """The clock of this machine."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def contended() -> Iterator[SampleTarget]:
    """A process that shares its core with its child."""
    with subprocess.Popen([sys.executable, "-S", "-c", CONTENDED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        yield SampleTarget(role="drafter", rank=0, pid=process.pid)
        process.kill()


def test_a_recorded_run_is_averaged_thread_by_thread() -> None:
    uses = {(use.role, use.rank, use.thread, use.tid): use for use in parse_pidstat(RECORDED, TARGETS)}
    main, spaced = uses["drafter", 0, "python", 6476], uses["drafter", 0, "prefetch a b", 6480]

    assert main.usr_pct == pytest.approx((49 + 20 + 36 + 43) / 4)
    assert main.wait_pct == pytest.approx((50 + 49 + 45 + 58) / 4)
    assert main.seconds == 4.0
    assert spaced.voluntary_switches_per_s == pytest.approx((193 + 179 + 197 + 201) / 4)
    assert (uses["drafter", 0, "short lived", 6484].seconds, uses["drafter", 0, "short lived", 6484].usr_pct) == (
        1.0,
        20.0,
    )
    assert uses["target", 2, "python", 6477].involuntary_switches_per_s == pytest.approx((78 + 103 + 106 + 90) / 4)


def test_processes_that_are_no_target_are_left_out() -> None:
    assert {6477} == {use.pid for use in parse_pidstat(RECORDED, TARGETS[1:])}


@pytest.mark.parametrize("header", ["# Time UID TGID TID %usr %system Command", "# Time a b c"])
def test_another_layout_is_a_tool_error(header: str) -> None:
    with pytest.raises(ToolError, match="columns that FlashProf does not know") as caught:
        parse_pidstat([header, "1 0 1 - 0.0 0.0 python"], TARGETS)
    assert "sysstat" in (caught.value.next_command or "")


def test_torn_and_foreign_lines_are_passed_over() -> None:
    torn = [line[: len(line) // 2] for line in RECORDED if line[:1].isdigit()]

    assert parse_pidstat(RECORDED, TARGETS) == parse_pidstat([*RECORDED, "Average: x", *torn[-1:]], TARGETS)


@needs_pidstat
def test_pidstat_and_schedstat_agree_on_a_contended_thread(contended: SampleTarget, tmp_path: Path) -> None:
    samplers = PidstatSampler(), SchedstatSampler(RealClock())
    folders = [tmp_path / sampler.name for sampler in samplers]
    for sampler, folder in zip(samplers, folders, strict=True):
        folder.mkdir()
        sampler.start([contended], folder)
    time.sleep(3.1)
    notes = [sampler.stop() for sampler in samplers]
    [by_pidstat], [by_schedstat] = (read_threads(folder / FILE_NAME) for folder in folders)

    assert notes == [[], []]
    assert by_pidstat.usr_pct + by_pidstat.system_pct == pytest.approx(
        by_schedstat.usr_pct + by_schedstat.system_pct, abs=5.0
    )
    assert by_pidstat.wait_pct == pytest.approx(by_schedstat.wait_pct, abs=5.0)
    assert by_pidstat.wait_pct > 25.0
    assert "%wait" in (folders[0] / RAW_FILE_NAME).read_text()


@needs_pidstat
def test_a_window_shorter_than_a_second_is_noted_and_nothing_stays(contended: SampleTarget, tmp_path: Path) -> None:
    sampler = PidstatSampler()
    sampler.start([contended], tmp_path)
    [note] = sampler.stop()

    assert note == "pidstat saw no full second of drafter-0"
    assert read_threads(tmp_path / FILE_NAME) == []
    assert sampler.stop() == []
    assert own_children() == [psutil.Process(contended.pid)]


@needs_pidstat
def test_a_target_that_is_gone_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="drafter-0"):
        PidstatSampler().start([SampleTarget(role="drafter", rank=0, pid=2**22 + 1)], tmp_path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo '# Time a b c'", "columns that FlashProf does not know"),
        ("echo 'Requested activities not available' >&2; exit 1", "no table: Requested"),
        ("", "no table: nothing"),
    ],
)
def test_a_pidstat_that_prints_something_else_is_refused_at_the_start(
    contended: SampleTarget, tmp_path: Path, body: str, words: str
) -> None:
    program = tmp_path / "pidstat"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)

    with pytest.raises(ToolError, match=words):
        PidstatSampler(program=str(program)).start([contended], tmp_path)
