"""Stacks of a run folder stand under their phases, by window, thread and view, and each sample for its time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.profiles import PHASE_FILE, FrameId, ProfiledWindow, StackView
from flashprof.sample.folded import FrameRef
from flashprof.sample.phase_lines import Block, PhaseLines, keep_phase_lines
from flashprof.sample.profiles import read_profiles, with_phases
from flashprof.sample.stack_files import write_looks

SOURCE = "def run():\n    with span('wait'):\n        get()\n    with span('mask'):\n        build()\n"
WINDOWS = {"profile-1": (2_000_000_000, 1_000), "profile-2": (1_000_000_000, 1_000)}
MASK, WAIT = FrameId("mask", PHASE_FILE), FrameId("wait", PHASE_FILE)
BUILD, GET = FrameId("build", "mask.py"), FrameId("Queue.get", "queue.py")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """One drafter in two windows; in the first the GIL was looked for, 100 times."""
    source = tmp_path / "loop.py"
    source.write_text(SOURCE)
    samples = tmp_path / "samples"
    stacks = [_main(source, 5, "build (mask.py:7)", 30), _main(source, 3, "Queue.get (queue.py:9)", 10)]
    feeder = "thread (2): Feeder;Thread.run (threading.py:1);Condition.wait (threading.py:3) 40"
    logger = "thread (3): log;write (log.py:1) 4"
    _write(samples, "profile-1/drafter-0.folded", *stacks, feeder, logger)
    _write(samples, "profile-2/drafter-0.folded", *stacks, _main(source, 5, "build (mask.py:8)", 60), feeder)
    _write(samples, "profile-1/drafter-0.gil.folded", _main(source, 5, "build (mask.py:7)", 20))
    write_looks(samples / "profile-1", 100)
    keep_phase_lines(samples, phases=["wait", "mask"])
    return samples


def test_stacks_stand_under_their_phases_without_start_up_and_parked_threads(samples: Path) -> None:
    first, *_ = _of(_read(samples), thread="main", view=StackView.ALL)
    run = FrameId("run", "loop.py")

    assert {(run, MASK, BUILD): 30, (run, WAIT, GET): 10} == first.stacks
    assert {"main", "log"} == {window.thread for window in _read(samples)}
    assert "launch-7" == first.launch


def test_a_sample_is_its_share_of_the_wall_time(samples: Path) -> None:
    first, second = _of(_read(samples), thread="main", view=StackView.ALL)

    assert [("profile-1", 2e6), ("profile-2", 1e6)] == [(w.label, w.ns_per_token) for w in (first, second)]
    assert [40, 100] == [first.num_samples, second.num_samples]


def test_other_views_have_the_part_of_the_time_that_was_seen_so(samples: Path) -> None:
    profiles = _read(samples)
    [gil] = _of(profiles, thread="main", view=StackView.GIL)
    idle, later = _of(profiles, thread="main", view=StackView.IDLE)

    assert (20, pytest.approx(0.2 * 2e6)) == (gil.num_samples, gil.ns_per_token)
    assert {GET} == {stack[-1] for stack in idle.stacks}
    assert [pytest.approx(0.25 * 2e6), pytest.approx(0.1 * 1e6)] == [idle.ns_per_token, later.ns_per_token]


def test_ranks_are_pooled_and_one_that_never_held_the_gil_counts(samples: Path) -> None:
    _write(samples, "profile-1/drafter-1.folded", "thread (9): MainThread;run (loop.py:5);build (mask.py:9) 60")
    _write(samples, "profile-1/drafter-1.gil.folded")
    profiles = _read(samples)
    both = _of(profiles, thread="main", view=StackView.ALL)[0]
    [gil] = _of(profiles, thread="main", view=StackView.GIL)

    assert (2, 100, 2e6) == (both.num_ranks, both.num_samples, both.ns_per_token)
    assert (2, pytest.approx(0.1 * 2e6)) == (gil.num_ranks, gil.ns_per_token)


def test_the_line_seen_most_is_kept(samples: Path) -> None:
    _, second = _of(_read(samples), thread="main", view=StackView.ALL)

    assert (8, 5) == (second.lines[BUILD], second.lines[FrameId("run", "loop.py")])
    assert MASK not in second.lines


def test_only_windows_that_were_asked_for_are_read(samples: Path) -> None:
    profiles = read_profiles(samples, launch="launch-7", windows={"profile-2": (5, 0), "gone": (1, 1)})

    assert {("profile-2", 0.0)} == {(window.label, window.ns_per_token) for window in profiles}


def test_a_folder_of_an_earlier_version_has_stacks_without_phases(tmp_path: Path) -> None:
    _write(tmp_path, "profile-1/drafter-0.folded", "thread (1): MainThread;run (pipeline/loop.py:5) 3")
    [window] = _read(tmp_path)

    assert {(FrameId("run", "pipeline/loop.py"),): 3} == window.stacks


def test_a_gil_view_that_was_broken_off_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "profile-1/drafter-0.gil.folded", "thread (1): MainThread;run (loop.py:5) 3")

    assert () == _read(tmp_path)


def test_no_samples_are_no_windows(tmp_path: Path) -> None:
    assert () == _read(tmp_path / "gone")


_FRAMES = st.lists(
    st.builds(FrameRef, st.sampled_from("fgh"), st.sampled_from(["a.py", "b.py"]), st.integers(0, 9)), max_size=8
)
_BLOCKS = st.lists(st.builds(Block, st.integers(0, 9), st.integers(0, 9), st.sampled_from(["", "p", "q"])))


@given(_FRAMES, _BLOCKS)
def test_markers_stand_where_the_phase_changes_and_change_no_frame(frames: list[FrameRef], blocks: list[Block]) -> None:
    phases = PhaseLines({"a.py": blocks})
    marked = list(with_phases(frames, phases))
    names = [frame.name for frame in marked if frame.is_phase]
    entered = [phase for frame in frames if (phase := phases.phase_of(frame.file, frame.line))]

    assert [FrameId(frame.name, frame.file) for frame in frames] == [frame for frame in marked if not frame.is_phase]
    assert [name for index, name in enumerate(entered) if index == 0 or entered[index - 1] != name] == names


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 50)), min_size=1, max_size=6))
def test_every_sample_of_a_main_thread_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    samples = tmp_path_factory.mktemp("samples")
    _write(samples, "profile-1/r-0.folded", *(f"f (a.py:{line}) {num}" for line, num in rows))
    [window] = _read(samples)

    assert Counter({(FrameId("f", "a.py"),): sum(num for _, num in rows)}) == window.stacks


def _read(samples: Path) -> tuple[ProfiledWindow, ...]:
    return read_profiles(samples, launch="launch-7", windows=WINDOWS)


def _of(profiles: tuple[ProfiledWindow, ...], *, thread: str, view: StackView) -> list[ProfiledWindow]:
    return [window for window in profiles if (window.thread, window.view) == (thread, view)]


def _main(source: Path, line: int, leaf: str, num_samples: int) -> str:
    start_up = "<module> (<string>:1);BaseProcess.run (/usr/lib/python3.11/multiprocessing/process.py:108)"
    return f"thread (1): MainThread;{start_up};run ({source}:{line});{leaf} {num_samples}"


def _write(samples: Path, name: str, *lines: str) -> None:
    path = samples / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
