"""py-spy attaches, finishes in time, and never loses a target silently."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from processes import own_children

from flashprof.contracts.errors import ToolError
from flashprof.contracts.ports import SampleTarget
from flashprof.sample.folded import Stack, parse_folded
from flashprof.sample.pyspy import GIL_RATE_HZ, GIL_S, PySpySampler, can_trace, explain_refusal
from flashprof.sample.stack_files import read_looks

REFUSAL = can_trace()
needs_trace = pytest.mark.skipif(REFUSAL is not None, reason=f"py-spy may not trace here: {REFUSAL}")

SPIN_AND_WAIT = """
import queue, threading
threading.Thread(target=queue.Queue().get, name="prefetch", daemon=True).start()
print("ready", flush=True)
while True:
    pass
"""
WAIT = "import queue; print('ready', flush=True); queue.Queue().get()"

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code that prints a line when it is ready."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@needs_trace
def test_a_spinning_and_a_waiting_process_both_leave_stacks(start: Start, tmp_path: Path) -> None:
    spinning, waiting = start(SPIN_AND_WAIT), start(WAIT)
    sampler = PySpySampler(100, blocking=False, num_gil_windows=0)
    sampler.start([_target("drafter", spinning.pid), _target("target", waiting.pid)], tmp_path)
    time.sleep(0.5)
    notes = sampler.stop()
    threads = {stack.thread for stack in _stacks(tmp_path, "drafter-0")}
    [stack] = _stacks(tmp_path, "target-0")

    assert notes == []
    assert threads == {"MainThread", "prefetch"}
    assert "wait" in stack.frames[-1].name
    assert stack.num_samples > 10
    assert sampler.stop() == []
    assert own_children() == [psutil.Process(spinning.pid), psutil.Process(waiting.pid)]


@needs_trace
def test_only_the_thread_that_holds_the_gil_is_in_its_view(start: Start, tmp_path: Path) -> None:
    process = start(SPIN_AND_WAIT)
    sampler = PySpySampler(100, blocking=False)
    sampler.start([_target("drafter", process.pid)], tmp_path)
    sampler.stop()
    threads = {stack.thread for stack in _stacks(tmp_path, "drafter-0.gil")}

    assert {"MainThread"} == threads
    assert GIL_RATE_HZ * GIL_S == read_looks(tmp_path)


def test_the_gil_is_looked_at_before_the_first_windows_of_each_launch_only(tmp_path: Path) -> None:
    program = _fake_pyspy(tmp_path, "echo $all >> $0.args", "touch $out; echo Samples: 9 Errors: 0")
    sampler = PySpySampler(20, blocking=False, num_gil_windows=1, program=program)
    for window in ("profile-1", "profile-2", "next launch/profile-1", "next launch/profile-2"):
        (tmp_path / window).mkdir(parents=True)
        sampler.start([_target("drafter", 4711)], tmp_path / window)
        sampler.stop()
    other = tmp_path / "next launch"
    first, *later = Path(f"{program}.args").read_text().splitlines()

    assert {"--gil", "--duration", "--nonblocking"} <= set(first.split())
    assert "--idle" not in first
    assert ["--idle" in line and "--gil" not in line for line in later] == [True, True, False, True, True]
    assert (GIL_RATE_HZ * GIL_S, 0) == (read_looks(other / "profile-1"), read_looks(other / "profile-2"))
    assert (GIL_RATE_HZ * GIL_S, 0) == (read_looks(tmp_path / "profile-1"), read_looks(tmp_path / "profile-2"))


def test_a_gil_view_that_cannot_be_had_costs_no_more_than_a_note(tmp_path: Path) -> None:
    refuse = 'case "$all" in *--gil*) echo Error: Cannot detect GIL holding; exit 1;; esac'
    program = _fake_pyspy(tmp_path, refuse, "touch $out; echo Samples: 9 Errors: 0")
    sampler = PySpySampler(20, blocking=False, program=program)
    sampler.start([_target("drafter", 4711), _target("target", 4712)], tmp_path)
    [note] = sampler.stop()
    sampler.start([_target("drafter", 4711)], tmp_path)

    assert "no GIL view" in note
    assert "Cannot detect GIL holding" in note
    assert [] == sampler.stop()
    assert [] == own_children()
    assert 0 == read_looks(tmp_path)


@needs_trace
def test_native_frames_are_read_of_a_target_that_is_stopped_for_it(start: Start, tmp_path: Path) -> None:
    process = start(WAIT)
    sampler = PySpySampler(20, blocking=True, native=True, num_gil_windows=0)
    sampler.start([_target("drafter", process.pid)], tmp_path)
    time.sleep(0.3)
    sampler.stop()
    files = {frame.file for stack in _stacks(tmp_path, "drafter-0") for frame in stack.frames}

    assert any(file.endswith(".py") for file in files)
    assert any(file.startswith("libc.so") for file in files)


def test_native_without_blocking_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="native without blocking"):
        PySpySampler(20, blocking=False, native=True)


@needs_trace
def test_a_target_that_ends_keeps_its_samples_and_is_noted(start: Start, tmp_path: Path) -> None:
    process = start(SPIN_AND_WAIT)
    sampler = PySpySampler(100, blocking=False, num_gil_windows=0)
    sampler.start([_target("drafter", process.pid)], tmp_path)
    time.sleep(0.3)
    process.kill()
    process.wait()
    log = tmp_path / "drafter-0.pyspy.log"
    while "Wrote" not in log.read_text():
        time.sleep(0.01)
    time.sleep(0.1)
    [note] = sampler.stop()

    assert note.startswith("drafter-0 ended during the window")
    assert _stacks(tmp_path, "drafter-0")


def test_one_target_that_cannot_be_attached_leaves_nothing_running(start: Start, tmp_path: Path) -> None:
    process = start(WAIT)
    gone = start("print()")
    gone.wait()
    sampler = PySpySampler(50, blocking=False, num_gil_windows=0)

    with pytest.raises(ToolError, match="cannot attach to target-0: Error: Failed") as caught:
        sampler.start([_target("drafter", process.pid), _target("target", gone.pid)], tmp_path)
    assert "sampling.stacks=off" in (caught.value.next_command or "")
    assert own_children() == [psutil.Process(process.pid)]
    assert sampler.stop() == []


@pytest.mark.parametrize(
    ("at_start", "at_end", "words"),
    [
        ("", "touch $out; echo Samples: 90 Errors: 1", []),
        ("echo 1.25s behind in sampling; echo 3.5s behind in sampling", "touch $out; echo Samples: 9 Errors: 0",
         ["up to 3.5 s behind"]),
        ("", "touch $out; echo Samples: 90 Errors: 10", ["failed to read 10 of 100"]),
        ("", "touch $out; echo Samples: 0 Errors: 0", ["no stack sample"]),
        ("", "echo Error: disk on fire", ["left no stacks", "disk on fire"]),
    ],
)  # fmt: skip
def test_what_pyspy_says_becomes_a_note(tmp_path: Path, at_start: str, at_end: str, words: list[str]) -> None:
    sampler = PySpySampler(50, blocking=False, num_gil_windows=0, program=_fake_pyspy(tmp_path, at_start, at_end))
    sampler.start([_target("drafter", 1)], tmp_path)
    notes = sampler.stop()

    assert len(notes) == min(1, len(words))
    assert all(word in notes[0] for word in words)


@pytest.mark.parametrize("blocking", [False, True])
def test_the_command_line(tmp_path: Path, blocking: bool) -> None:
    program = _fake_pyspy(tmp_path, "echo $all > $0.args", "touch $out; echo Samples: 9 Errors: 0")
    sampler = PySpySampler(20, blocking, num_gil_windows=0, program=program)
    sampler.start([_target("drafter", 4711)], tmp_path)
    sampler.stop()
    words = Path(f"{program}.args").read_text().split()

    assert words[:3] == ["record", "--pid", "4711"]
    assert {"--rate", "20", "raw", "--threads", "--idle", "--full-filenames"} <= set(words)
    assert "--gil" not in words
    assert blocking != ("--nonblocking" in words)


def test_no_pyspy_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot be started"):
        PySpySampler(50, blocking=False, program=str(tmp_path / "none")).start([_target("drafter", 1)], tmp_path)


def test_tracing_is_really_tried(tmp_path: Path) -> None:
    refusing = _script(tmp_path, "refusing", "echo 'Permission Denied: Try …' >&2; exit 1")
    children = own_children()

    assert "trac" in (can_trace(program=refusing) or "")
    assert can_trace(program=_script(tmp_path, "willing", "exit 0")) is None
    assert "py-spy failed" in (can_trace(program=str(tmp_path / "none")) or "")
    assert children == own_children()


@pytest.mark.parametrize(
    ("said", "scope", "in_container", "words"),
    [
        ("Permission Denied: x", "1", False, "ptrace_scope is 1"),
        ("Permission Denied: x", "2", False, "CAP_SYS_PTRACE"),
        ("Permission Denied: x", "3", False, "reboot"),
        ("Permission Denied: x", "0", False, "user who owns"),
        ("Operation not permitted (os error 1)", "", False, "user who owns"),
        ("Permission Denied: x", "1", True, "--cap-add=SYS_PTRACE"),
        ("Error: Failed to find python version", "1", True, "py-spy failed: Error: Failed to find python version"),
    ],
)
def test_a_refusal_names_its_remedy(said: str, scope: str, in_container: bool, words: str) -> None:
    assert words in explain_refusal(said, scope=scope, in_container=in_container)


def _target(role: str, pid: int) -> SampleTarget:
    return SampleTarget(role=role, rank=0, pid=pid)


def _stacks(folder: Path, name: str) -> list[Stack]:
    return parse_folded((folder / f"{name}.folded").read_text().splitlines())


def _fake_pyspy(folder: Path, at_start: str, at_end: str) -> str:
    body = f"""
    all="$*"
    while [ "$1" != --output ]; do shift; done
    out=$2
    trap '{at_end}; exit 0' INT
    {at_start}
    echo Sampling process
    case "$all" in *--duration*) touch "$out"; exit 0;; esac
    while :; do sleep 0.02; done
    """
    return _script(folder, "fake-py-spy", body)


def _script(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)
