"""py-spy's raw output is read whole, and the frames shown are those that explain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.results import Frame
from flashprof.sample.folded import (
    FrameRef,
    Stack,
    file_names,
    hottest_frames,
    is_waiting,
    parse_folded,
    with_short_names,
    without_startup,
)

RAW = """\
thread (6326): MainThread;<module> (t.py:19);main (t.py:16);spin (t.py:5) 98
thread (6328): prefetch thread;Thread._bootstrap (threading.py:1002);Condition.wait (threading.py:327) 99
"""

_LETTERS = st.characters(codec="ascii", exclude_characters=";\n\r()", categories=("L", "N", "P", "Z"))
_NAMES = (
    st.text(_LETTERS, min_size=1)
    .map(str.strip)
    .filter(lambda text: text and not text.startswith(("thread", "process")))
)
_FILES = st.from_regex(r"[a-z_<>]{1,9}(/[a-z_ ]{1,9}){0,2}\.py", fullmatch=True)
_BARE = st.builds(FrameRef, _NAMES, st.just(""), st.just(0))
_FRAMES = st.builds(FrameRef, _NAMES, _FILES, st.integers(0, 9999)) | _BARE
_STACKS = st.builds(
    Stack,
    st.lists(_FRAMES, min_size=1, max_size=5).map(tuple),
    st.integers(1, 10**6),
    thread=st.just("") | _NAMES,
    process=st.just("") | _NAMES.map(lambda name: f"process 12:{name}"),
)


@given(st.lists(_STACKS))
def test_what_is_written_in_the_format_is_read_back(stacks: list[Stack]) -> None:
    lines = [_line(stack) for stack in stacks]

    assert stacks == parse_folded(lines)


@given(st.lists(st.text()))
def test_any_text_is_read_without_an_error(lines: list[str]) -> None:
    stacks = parse_folded(lines)

    assert len(stacks) <= len(lines)


def test_thread_roots_are_no_frames() -> None:
    main, prefetch = parse_folded(RAW.splitlines(keepends=True))

    assert Stack(_frames("<module> t.py 19", "main t.py 16", "spin t.py 5"), 98, "MainThread") == main
    assert (prefetch.thread, prefetch.num_samples) == ("prefetch thread", 99)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f (/home/a b/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:7)",
         FrameRef("f", "torch/nn/modules/linear.py", 7)),
        ("get (/usr/lib/python3.11/queue.py:171)", FrameRef("get", "queue.py", 171)),
        ("step (/srv/work/pipeline/train/loop.py:3)", FrameRef("step", "train/loop.py", 3)),
        ("run (/x.py:1)", FrameRef("run", "x.py", 1)),
        ("main.<locals>.getter (t.py:15)", FrameRef("main.<locals>.getter", "t.py", 15)),
        ("at::add(at::Tensor) (libtorch_cpu.so)", FrameRef("at::add(at::Tensor)", "libtorch_cpu.so", 0)),
        ("read (/usr/lib/x86_64-linux-gnu/libc.so.6)", FrameRef("read", "libc.so.6", 0)),
        (f"f (t.py:{'9' * 5_000})", FrameRef("f", f"t.py:{'9' * 5_000}", 0)),
        ("<frozen importlib>", FrameRef("<frozen importlib>", "", 0)),
    ],
)  # fmt: skip
def test_frames_are_tolerated_and_paths_shortened(text: str, expected: FrameRef) -> None:
    [stack] = parse_folded([f"{text} 3"])

    assert (expected,) == stack.frames


def test_torn_lines_are_dropped() -> None:
    assert parse_folded(["main (t.py:1);f (t.py:2", "main (t.py:1) -3", "", "7", "f (t.py:1) " + "9" * 5_000]) == []


def test_an_unnamed_thread_is_called_by_its_id() -> None:
    [stack] = parse_folded(["thread (0x7F12);f (t.py:1) 1"])

    assert stack.thread == "0x7F12"


def test_shares_are_of_the_roles_own_samples() -> None:
    stacks = {
        "drafter": [_stack(30, "main", "step", "mask"), _stack(70, "main", "step", "attend")],
        "target": [_stack(5, "main", "forward")],
    }
    frames = {(frame.role, frame.name): frame for frame in hottest_frames(stacks, top=10)}

    assert _shares(frames["drafter", "attend"]) == (0.7, 0.7)
    assert _shares(frames["drafter", "mask"]) == (0.3, 0.3)
    assert _shares(frames["target", "forward"]) == (1.0, 1.0)


def test_recursion_counts_once() -> None:
    [frame] = hottest_frames({"r": [_stack(4, "f", "f", "f")]}, top=3)

    assert _shares(frame) == (1.0, 1.0)


def test_start_up_plumbing_is_never_shown() -> None:
    plumbing = _frames("<module> main.py 1", "spawn_main multiprocessing/spawn.py 122", "BaseProcess.run process.py 3")
    shown = hottest_frames({"r": [Stack((*plumbing, *_frames("work w.py 9")), 10)]}, top=10)

    assert [frame.name for frame in shown] == ["work"]


def test_wrappers_give_way_to_what_they_call() -> None:
    stacks = [
        _stack(50, "main", "loop", "step", "build_mask", "leaf_a"),
        _stack(10, "main", "loop", "step", "build_mask", "leaf_b"),
        _stack(40, "main", "loop", "step", "loss"),
    ]
    shown = [frame.name for frame in hottest_frames({"r": stacks}, top=4)]

    # `main` and `loop` are in every sample; `build_mask` is no wrapper: it calls two.
    assert shown == ["leaf_a", "loss", "leaf_b", "build_mask"]


def test_a_chain_below_the_top_is_shown_by_its_innermost_function() -> None:
    stacks = [_stack(30, "a", "b", "x"), _stack(30, "a", "b", "y"), _stack(40, "other")]
    by_total = [frame.name for frame in hottest_frames({"r": stacks}, top=2)]

    assert by_total == ["other", "b"]


def test_a_parked_helper_thread_does_not_halve_the_shares() -> None:
    work = Stack(_frames("work w.py 1"), 100, "MainThread")
    feeder = Stack(_frames("feed q.py 1", "Condition.wait threading.py 327"), 100, "QueueFeederThread")
    [frame] = hottest_frames({"r": [work, feeder]}, top=5)

    assert (frame.name, frame.self_share) == ("work", 1.0)


def test_a_waiting_main_thread_is_shown() -> None:
    waiting = Stack(_frames("loop l.py 1", "Queue.get queues.py 103"), 100, "MainThread")
    names = [frame.name for frame in hottest_frames({"r": [waiting]}, top=5)]

    assert names[0] == "Queue.get"


def test_the_line_seen_most_is_named() -> None:
    stacks = [Stack(_frames("f a.py 3"), 1), Stack(_frames("f a.py 8"), 9)]
    [frame] = hottest_frames({"r": stacks}, top=5)

    assert frame.where == "a.py:8"


def test_no_samples_show_nothing() -> None:
    assert hottest_frames({"r": [], "s": [Stack((), 3)]}, top=5) == ()


def _line(stack: Stack) -> str:
    thread = [f"thread (77): {stack.thread}"] if stack.thread else []
    process = [stack.process] if stack.process else []
    frames = [frame.name + _place(frame) for frame in stack.frames]
    return f"{';'.join([*process, *thread, *frames])} {stack.num_samples}\n"


def _place(frame: FrameRef) -> str:
    line = f":{frame.line}" if frame.line else ""
    return f" ({frame.file}{line})" if frame.file else ""


def _frames(*texts: str) -> tuple[FrameRef, ...]:
    parts = [text.split() for text in texts]
    return tuple(FrameRef(name, file, int(line)) for name, file, line in parts)


def _stack(num_samples: int, *names: str) -> Stack:
    return Stack(_frames(*(f"{name} file.py 1" for name in names)), num_samples)


def _shares(frame: Frame) -> tuple[float, float]:
    return frame.self_share, frame.total_share


def test_startup_frames_are_dropped_from_the_outside_only() -> None:
    frames = [
        FrameRef("<module>", "<string>", 1),
        FrameRef("BaseProcess.run", "multiprocessing/process.py", 108),
        FrameRef("train", "pipeline/roles/drafter.py", 60),
        FrameRef("wait", "multiprocessing/connection.py", 930),
    ]

    assert tuple(frames[2:]) == without_startup(frames)
    assert tuple(frames[:2]) == without_startup(frames[:2])


@given(st.lists(_STACKS), st.dictionaries(_FILES, _FILES))
def test_other_file_names_change_nothing_else(stacks: list[Stack], short: dict[str, str]) -> None:
    lines = [_line(stack) for stack in stacks]
    expected = [replace(stack, frames=tuple(_moved(frame, short) for frame in stack.frames)) for stack in stacks]

    assert expected == parse_folded(with_short_names(lines, short))
    assert {frame.file for stack in stacks for frame in stack.frames} - {""} == file_names(lines)


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        ("Condition.wait threading.py 3", True),
        ("_PollLikeSelector.select selectors.py 415", True),
        ("Stream.synchronize torch/cuda/streams.py 9", True),
        ("Config.get app/config.py 3", False),
        ("Condition.notify threading.py 3", False),
    ],
)
def test_a_library_call_that_waits_is_told_by_name_and_file(leaf: str, expected: bool) -> None:
    assert expected == is_waiting(_frames("work w.py 1", leaf))


def test_no_frames_wait_for_nothing() -> None:
    assert not is_waiting(())


def _moved(frame: FrameRef, short: dict[str, str]) -> FrameRef:
    return replace(frame, file=short.get(frame.file, frame.file))
