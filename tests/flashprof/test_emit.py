"""The emitter: every span is recorded whole, once and in its lane, and its troubles never stop the training."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.control import CommandName, CommandWriter
from flashprof.contracts.events import EventLog, SpanKind, decode
from flashprof.emit import RANK_VARIABLES, RUN_DIR_VARIABLE, WAIT, Emitter, connect


def read_events(run_dir: Path, name: str = "drafter-0") -> EventLog:
    path = run_dir / "events" / f"{name}.jsonl"
    return decode(path.read_text(encoding="ascii").splitlines(), where=str(path))


@pytest.fixture
def emitter(tmp_path: Path) -> Iterator[Emitter]:
    emitter = connect("drafter", trains=True, run_dir=tmp_path, write_every_s=0)
    yield emitter
    emitter.close()


def test_the_header_says_who_records(emitter: Emitter, tmp_path: Path) -> None:
    header = read_events(tmp_path).header

    assert emitter.enabled
    assert ("drafter", 0, os.getpid(), True) == (header.role, header.rank, header.pid, header.trains)
    assert header.wall_ns > header.monotonic_ns


def test_a_span_is_recorded_with_its_phase_kind_lane_and_length(emitter: Emitter, tmp_path: Path) -> None:
    with emitter.span('wait "hidden"\n✓', WAIT):
        pass
    emitter.end_step(7, num_tokens=30, num_supervised_tokens=20, num_padding_tokens=10)
    log = read_events(tmp_path)
    (span,), (step,) = log.spans, log.steps

    assert ('wait "hidden"\n✓', SpanKind.WAIT, "main", 0, True) == (
        span.phase,
        span.kind,
        span.thread,
        span.depth,
        span.ok,
    )
    assert log.header.monotonic_ns <= span.start_ns <= span.end_ns <= step.end_ns
    assert (7, 30, 20, 10) == (step.step, step.num_tokens, step.num_supervised_tokens, step.num_padding_tokens)


def test_a_span_that_an_exception_leaves_is_closed_and_marked(emitter: Emitter, tmp_path: Path) -> None:
    with pytest.raises(KeyError), emitter.span("step"), emitter.span("forward"):
        raise KeyError
    with emitter.span("step"):
        pass
    emitter.end_step(0)

    assert [("forward", 1, False), ("step", 0, False), ("step", 0, True)] == [
        (span.phase, span.depth, span.ok) for span in read_events(tmp_path).spans
    ]


Tree = list["Tree"]
TREES: st.SearchStrategy[Tree] = st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=12)


@given(tree=TREES)
@settings(max_examples=30)
def test_spans_nest_at_any_depth_and_may_repeat_their_phase(tree: Tree) -> None:
    expected: list[int] = []

    def walk(node: Tree, depth: int) -> None:
        with emitter.span("same phase"):
            for child in node:
                walk(child, depth + 1)
        expected.append(depth)

    with TemporaryDirectory() as folder:
        emitter = connect("drafter", run_dir=folder)
        walk(tree, 0)
        emitter.end_step(0)
        emitter.close()
        spans = read_events(Path(folder)).spans

    assert expected == [span.depth for span in spans]
    for index, span in enumerate(spans):
        children = [inner for inner in spans[:index] if inner.start_ns >= span.start_ns]
        assert all(inner.end_ns <= span.end_ns and inner.depth > span.depth for inner in children)


def test_nothing_is_written_before_the_step_ends(emitter: Emitter, tmp_path: Path) -> None:
    before = read_events(tmp_path)
    with emitter.span("forward"):
        emitter.gauge("queue", 0, 3.0)
    buffered = read_events(tmp_path)
    emitter.end_step(0)
    after = read_events(tmp_path)

    assert before == buffered
    assert (1, 1, 1) == (len(after.spans), len(after.gauges), len(after.steps))


def test_marks_and_acknowledgements_are_written_at_once(emitter: Emitter, tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    sent = CommandWriter(tmp_path / "control").send(CommandName.WINDOW_START, label="m1", kind="measure")
    emitter.mark("ready", device="cpu")
    (command,) = emitter.poll_commands()
    emitter.acknowledge(command, 12)
    log = read_events(tmp_path)

    assert sent == command
    assert [("lane", "main"), ("ready", None)] == [(mark.name, mark.detail.get("thread")) for mark in log.marks]
    assert [(1, "window_start", 12, {"label": "m1", "kind": "measure"})] == [
        (ack.command_id, ack.name, ack.step, ack.detail) for ack in log.acks
    ]


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads take turns 5,000 times as often, so that what can interleave does."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("restless_threads")
def test_lanes_of_several_threads_lose_nothing_while_the_main_lane_writes(emitter: Emitter, tmp_path: Path) -> None:
    num_threads, num_spans = 3, 20_000

    def work(number: int) -> None:
        lane = emitter.lane(f"worker-{number}")
        for _ in range(num_spans):
            with lane.span("outer"), lane.span("inner"):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    step = 0
    while any(thread.is_alive() for thread in threads):
        emitter.end_step(step)
        step += 1
    emitter.close()
    log = read_events(tmp_path)

    assert log.num_torn_lines == 0
    assert {
        (f"worker-{number}", phase, depth): num_spans
        for number in range(num_threads)
        for phase, depth in (("outer", 0), ("inner", 1))
    } == Counter((span.thread, span.phase, span.depth) for span in log.spans)
    native_ids = {mark.detail["native_id"] for mark in log.marks if mark.name == "lane"}
    assert len(native_ids) > 1


def test_close_writes_what_is_left_and_may_be_called_twice(emitter: Emitter, tmp_path: Path) -> None:
    with emitter.span("save"):
        pass
    emitter.close()
    emitter.close()
    with emitter.span("late"):
        emitter.mark("late")
    emitter.end_step(1)

    assert ["save"] == [span.phase for span in read_events(tmp_path).spans]
    assert not emitter.enabled


def test_without_a_run_folder_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_DIR_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    emitter = connect("drafter")
    with emitter.span("forward", device=True), emitter.lane("loader").span("read"):
        emitter.gauge("loss", 0, 1.0)
    # Not even encoded: what JSON cannot hold does no harm here.
    emitter.mark("odd", value=object())
    emitter.end_step(0, num_tokens=5)
    emitter.close()

    assert not emitter.enabled
    assert emitter.poll_commands() == []
    assert list(tmp_path.iterdir()) == []


def test_the_run_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    connect("target", 2).close()

    assert read_events(tmp_path, "target-2").header.rank == 2


@pytest.mark.parametrize(
    ("told", "rank"),
    [
        ({"RANK": "5"}, 5),
        ({"SLURM_PROCID": "3"}, 3),
        ({"RANK": "", "OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"RANK": "x"}, 0),
    ],
)
def test_a_rank_that_is_not_given_is_the_launchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, str], rank: int
) -> None:
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, text in told.items():
        monkeypatch.setenv(name, text)
    connect("trainer", run_dir=tmp_path).close()

    assert read_events(tmp_path, f"trainer-{rank}").header.rank == rank


def test_two_processes_of_one_name_never_share_a_file(emitter: Emitter, tmp_path: Path) -> None:
    second = connect("drafter", run_dir=tmp_path)
    second.mark("second")
    second.close()

    assert "second" in [mark.name for mark in read_events(tmp_path, "drafter-0.2").marks]
    assert "second" not in [mark.name for mark in read_events(tmp_path).marks]


def test_a_folder_that_cannot_be_written_ends_the_recording_not_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "a file"
    blocked.touch()
    emitter = connect("drafter", run_dir=blocked)
    with emitter.span("forward"):
        pass
    emitter.end_step(0)

    assert not emitter.enabled
    assert "flashprof: events are not recorded: " in capsys.readouterr().err


def test_a_full_disk_ends_the_recording_not_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    emitter = Emitter(FileIO("/dev/full", "w"), None)
    lane = emitter.lane("loader")
    for step in range(3):
        with emitter.span("forward"), lane.span("read"):
            pass
        emitter.end_step(step)
    # What is no longer written must not be kept either, or the training runs out of memory.
    kept = emitter.main.take() + lane.take()
    emitter.close()

    assert not emitter.enabled
    assert kept == b""
    assert capsys.readouterr().err.count("events are no longer recorded: [Errno 28] No space left") == 1


class WrappedFile(FileIO):
    """A file whose `write` does something else first, or writes less."""

    before: Callable[[], None] | None = None
    max_bytes = sys.maxsize

    def write(self, data: Any, /) -> int:
        before, self.before = self.before, None
        if before is not None:
            before()
        return super().write(memoryview(data)[: self.max_bytes])


def test_short_writes_leave_whole_lines(tmp_path: Path) -> None:
    header = connect("drafter", run_dir=tmp_path)
    header.close()
    file = WrappedFile(tmp_path / "events" / "drafter-0.jsonl", "a")
    file.max_bytes = 7
    emitter = Emitter(file, None)
    with emitter.span("forward"):
        pass
    emitter.end_step(0)
    emitter.close()
    log = read_events(tmp_path)

    assert (1, 1, 0) == (len(log.spans), len(log.steps), log.num_torn_lines)


@pytest.mark.timeout(10)
def test_a_signal_handler_may_record_while_its_thread_is_writing(tmp_path: Path) -> None:
    connect("drafter", run_dir=tmp_path).close()
    file = WrappedFile(tmp_path / "events" / "drafter-0.jsonl", "a")
    emitter = Emitter(file, None)
    file.before = lambda: emitter.mark("interrupted")
    emitter.end_step(0)
    emitter.close()
    log = read_events(tmp_path)

    assert "interrupted" in [mark.name for mark in log.marks]
    assert (1, 0) == (len(log.steps), log.num_torn_lines)


FORKED = """
import os, sys
from flashprof.emit import connect
emitter = connect("drafter", run_dir=sys.argv[1])
with emitter.span("shared"):
    child = os.fork()
    if child == 0:
        with emitter.span("child's"):
            emitter.gauge("child's", 0, 1.0)
        emitter.end_step(0)
        emitter.mark("child's")
        emitter.close()
        own = connect("loader", run_dir=sys.argv[1])
        own.mark("own")
        own.close()
        os._exit(int(emitter.enabled))
    status = os.waitpid(child, 0)[1]
emitter.end_step(1)
emitter.close()
sys.exit(status)
"""


def test_a_forked_child_records_nothing_until_it_connects_itself(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-X", "dev", "-c", FORKED, str(tmp_path)], check=False, timeout=30)
    log = read_events(tmp_path)

    assert done.returncode == 0
    assert ["shared"] == [span.phase for span in log.spans]
    assert [1] == [step.step for step in log.steps]
    assert ["lane"] == [mark.name for mark in log.marks]
    assert ["lane", "own"] == [mark.name for mark in read_events(tmp_path, "loader-0").marks]


def test_spans_are_ranges_of_an_attached_torch_profiler(emitter: Emitter, tmp_path: Path) -> None:
    import torch

    with emitter.span("before"):
        pass
    emitter.end_step(0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with emitter.span("around"):
            emitter.end_step(1)
            with emitter.span("forward"), emitter.span("inner"):
                torch.ones(2).sum()
        emitter.end_step(2)
    emitter.end_step(3)
    with emitter.span("after"):
        pass
    emitter.end_step(4)
    shown = {event.name for event in profiler.events()}

    assert {"forward", "inner"} == shown & {"before", "around", "forward", "inner", "after"}
    assert ["before", "inner", "forward", "around", "after"] == [span.phase for span in read_events(tmp_path).spans]


def test_steps_that_end_soon_after_a_write_are_written_with_a_later_one(tmp_path: Path) -> None:
    emitter = connect("drafter", trains=True, run_dir=tmp_path, write_every_s=3600)
    path = tmp_path / "events" / "drafter-0.jsonl"
    emitter.end_step(0)
    after_first = path.read_text()
    emitter.end_step(1)
    after_second = path.read_text()
    emitter.close()

    assert '["step",0,' in after_first
    assert after_first == after_second
    assert '["step",1,' in path.read_text()


def test_a_process_that_never_closes_leaves_its_last_steps(tmp_path: Path) -> None:
    script = """
import sys
from flashprof.emit import connect
emitter = connect("trainer", trains=True, run_dir=sys.argv[1], write_every_s=3600)
for step in range(3):
    emitter.end_step(step, num_tokens=7)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)

    log = decode((tmp_path / "events" / "trainer-0.jsonl").read_text().splitlines(), where="events")
    assert [0, 1, 2] == [step.step for step in log.steps]
