"""
Stacks of a run folder under their phases, by window, process and thread: what localising and drawing start from.

A phase stands in a stack as a frame of its own, `FrameId("mask", PHASE_FILE)`, after the function that opened it. A
phase that a called function opens and leaves open (a generator, a `with` within a context manager) is not seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashprof.contracts.profiles import PHASE_FILE, FrameId, ProfiledWindow, StackCounts, StackView
from flashprof.sample.folded import (
    MAIN_THREAD,
    FrameRef,
    Stack,
    is_waiting,
    parked_threads,
    parse_folded,
    without_startup,
)
from flashprof.sample.phase_lines import PhaseLines, read_phase_lines
from flashprof.sample.stack_files import StackFile, find_stack_files, read_lines, read_looks


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStacks:
    """The samples of one rank's threads of one name in one window."""

    window: str
    role: str
    rank: int
    thread: str
    """`main`, or the thread's name."""
    view: StackView
    share: float
    """Of wall time that the samples stand for: 1 in view ALL, in another the share of looks at which there was one."""
    stacks: StackCounts
    lines: Mapping[FrameId, Mapping[int, int]]
    """Frame → line → samples."""


def read_stacks(samples: Path) -> dict[StackFile, list[Stack]]:
    """All stacks of all profile windows, as they were sampled."""
    return {file: parse_folded(read_lines(file)) for file in find_stack_files(samples)}


def lane_stacks(stacks: Mapping[StackFile, Sequence[Stack]], phases: PhaseLines) -> list[LaneStacks]:
    """
    Stacks by lane and view, under their phases.

    Start-up frames are left out, and helper threads that only ever stood waiting in all windows. The view IDLE is taken
    from ALL, by the innermost frame.

    Args:
        stacks: Of `read_stacks`.
        phases: Of the same run folder.

    Raises:
        FormatError: A window's GIL view is of another version.
    """
    of_rank: dict[tuple[str, int], list[Stack]] = defaultdict(list)
    for file, of_file in stacks.items():
        if file.view is StackView.ALL:
            of_rank[file.role, file.rank] += of_file
    parked = {rank: parked_threads(of_file) for rank, of_file in of_rank.items()}
    lanes: list[LaneStacks] = []
    for file, of_file in stacks.items():
        num_looks = read_looks(file.path.parent) if file.view is StackView.GIL else 0
        if file.view is StackView.GIL and not num_looks:
            continue
        drawn = of_file
        if file.view is StackView.ALL:
            asleep = parked[file.role, file.rank]
            drawn = [stack for stack in of_file if (stack.process, stack.thread) not in asleep]
        lanes += _lanes(file, drawn, phases, num_looks)
    return lanes


def read_profiles(samples: Path, *, launch: str, windows: Mapping[str, tuple[int, int]]) -> tuple[ProfiledWindow, ...]:
    """
    The profile windows of a run folder.

    Args:
        samples: Its folder `samples/`.
        launch: Run id.
        windows: Label → wall time in ns, and tokens of all ranks. A window that is not in it is left out.

    Returns:
        By window, role, thread and view. `ns_per_token` is 0 where a window has no tokens; in another view than ALL it
        is the part of the wall time in which a rank's thread of this name was seen so.

    Raises:
        FormatError: A file of the folder is of another version, or broken.
    """
    chosen = {file: stacks for file, stacks in read_stacks(samples).items() if file.window in windows}
    pooled: dict[tuple[str, str, str, StackView], list[LaneStacks]] = defaultdict(list)
    for lane in lane_stacks(chosen, read_phase_lines(samples)):
        pooled[lane.window, lane.role, lane.thread, lane.view].append(lane)
    profiled = []
    for (label, role, thread, _), lanes in pooled.items():
        # A rank whose thread was never seen so has no stacks in this view, and counts.
        num_ranks = max(len(lanes), len(pooled.get((label, role, thread, StackView.ALL), ())))
        profiled.append(_pool(lanes, launch, *windows[label], num_ranks=num_ranks))
    return tuple(profiled)


def with_phases(frames: Sequence[FrameRef], phases: PhaseLines) -> Iterator[FrameId]:
    """The frames as functions, each phase after the frame that is within its block."""
    current = ""
    for frame in frames:
        yield FrameId(frame.name, frame.file)
        phase = phases.phase_of(frame.file, frame.line)
        # A comprehension is a frame of its own within the same block up to Python 3.11.
        if phase and phase != current:
            yield FrameId(phase, PHASE_FILE)
            current = phase


@dataclass(slots=True)
class _Tally:
    counts: Counter[tuple[FrameId, ...]] = field(default_factory=Counter)
    lines: dict[FrameId, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, stack: Stack, phases: PhaseLines) -> None:
        frames = without_startup(stack.frames)
        self.counts[tuple(with_phases(frames, phases))] += stack.num_samples
        for frame in frames:
            if frame.line:
                self.lines[FrameId(frame.name, frame.file)][frame.line] += stack.num_samples


def _lanes(file: StackFile, stacks: Iterable[Stack], phases: PhaseLines, num_looks: int) -> Iterator[LaneStacks]:
    tallies: dict[tuple[str, StackView], _Tally] = defaultdict(_Tally)
    for stack in stacks:
        thread = "main" if stack.thread in ("", MAIN_THREAD) else stack.thread
        tallies[thread, file.view].add(stack, phases)
        if file.view is StackView.ALL and is_waiting(stack.frames):
            tallies[thread, StackView.IDLE].add(stack, phases)
    for (thread, view), tally in tallies.items():
        num_all = num_looks or tallies[thread, file.view].counts.total()
        yield LaneStacks(
            window=file.window,
            role=file.role,
            rank=file.rank,
            thread=thread,
            view=view,
            share=tally.counts.total() / num_all if num_all else 0.0,
            stacks=dict(tally.counts),
            lines=dict(tally.lines),
        )


def _pool(lanes: Sequence[LaneStacks], launch: str, wall_ns: int, num_tokens: int, *, num_ranks: int) -> ProfiledWindow:
    counts: Counter[tuple[FrameId, ...]] = Counter()
    lines: dict[FrameId, Counter[int]] = defaultdict(Counter)
    for lane in lanes:
        counts.update(lane.stacks)
        for frame, seen in lane.lines.items():
            lines[frame].update(seen)
    share = sum(lane.share for lane in lanes) / num_ranks
    first = lanes[0]
    return ProfiledWindow(
        launch=launch,
        label=first.window,
        role=first.role,
        thread=first.thread,
        view=first.view,
        num_ranks=num_ranks,
        ns_per_token=share * wall_ns / num_tokens if num_tokens else 0.0,
        stacks=dict(counts),
        lines={frame: max(seen, key=lambda line: (seen[line], -line)) for frame, seen in lines.items()},
    )
