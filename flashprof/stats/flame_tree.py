"""
Stacks of profile windows merged into one tree a lane, with what each box costs a token in either arm. Pure.

A box is a path of frames. Its cost in a window is its share of the lane's samples times the window's time per token;
an arm's is the mean over its windows. stack_noise.py says which differences are more than noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from flashprof.contracts.profiles import FrameId, ProfiledWindow, StackCounts, StackView
from flashprof.contracts.results import Interval
from flashprof.stats.function_changes import RoleChanges, role_changes
from flashprof.stats.stack_noise import ArmWindows, Changes, changes, clear_of_chance, noise_of, questions
from flashprof.windows.lanes import MAIN_THREAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]

MAX_NS_PER_TOKEN = 1e15
"""Eleven days a token: a number beyond it is a broken one, and its lane is drawn in shares."""

Key = tuple[str, str, StackView]
"""Role, thread, view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlameNode:
    """One box. Costs are inclusive and in the lane's unit."""

    frame: FrameId
    parent: int
    """Index into the lane's nodes, always a smaller one; −1 for the root."""
    base: float
    """The only arm where there is one."""
    candidate: float = 0.0
    base_own: float
    """Without its callees."""
    candidate_own: float = 0.0
    num_samples: tuple[int, int]
    """Of base and candidate."""
    line: int = 0
    """Where it was seen most; 0 where unknown."""
    was: FrameId | None = None
    """What it is called in the base, where that is another name."""
    difference: Interval | None = None
    """Candidate − base; None where an arm has no window."""
    is_clear: bool = False
    """Whether it is more than noise, with all boxes of the lane in mind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlameLane:
    """One thread of one role, ranks pooled."""

    role: str
    thread: str
    view: StackView = StackView.ALL
    is_time: bool
    """Costs are ns a token; else shares of the samples, 0 to 1."""
    is_differential: bool
    num_windows: tuple[int, int]
    nodes: tuple[FlameNode, ...]
    """Depth first, callers before callees, the costliest first; the root stands for all of the lane."""

    @property
    def name(self) -> str:
        """`drafter`, `drafter/QueueFeeder`."""
        return self.role if self.thread in ("", MAIN_THREAD) else f"{self.role}/{self.thread}"


@dataclass(slots=True)
class _Window:
    """A window as one lane sees it: empty where its thread was not there."""

    launch: str
    ns_per_token: float = 0.0
    stacks: list[StackCounts] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arm:
    """One arm of a lane; rows are boxes, columns windows."""

    windows: ArmWindows
    counts: Floats
    own_counts: Floats

    @property
    def num_windows(self) -> int:
        """None for an arm whose role was never sampled."""
        return len(self.windows.launches)

    def mean(self, counts: Floats) -> Floats:
        """Cost of each box, mean over windows."""
        return (counts * self.windows.ns_per_sample).mean(axis=1) if self.num_windows else np.zeros(len(counts))


@dataclass(slots=True)
class _Trie:
    """Boxes in the order in which they were met, so that a caller comes before its callees."""

    frames: list[FrameId] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    index: dict[tuple[int, FrameId], int] = field(default_factory=dict)

    def find(self, parent: int, frame: FrameId) -> int:
        found = self.index.get((parent, frame))
        if found is None:
            found = self.index[parent, frame] = len(self.frames)
            self.frames.append(frame)
            self.parents.append(parent)
        return found

    def inclusive(self, own: Floats) -> Floats:
        """Sums over each box and all below it; *own* is (num_nodes, num_windows)."""
        total = own.copy()
        for node in range(len(self.parents) - 1, 0, -1):
            total[self.parents[node]] += total[node]
        return total


def flame_tree(
    base: Sequence[ProfiledWindow],
    candidate: Sequence[ProfiledWindow] | None = None,
    *,
    renamed: Mapping[FrameId, FrameId] | None = None,
) -> tuple[FlameLane, ...]:
    """
    Merge the stacks of one or two arms.

    Args:
        base: Profile windows, of one arm or of the only one.
        candidate: Of the other; None for a plain graph.
        renamed: Frame of the base → what it is called in the candidate; both are laid on each other.

    Returns:
        One lane for each role, thread and view; drafters first, main threads first.
    """
    both = (base, candidate or ())
    keys = {(window.role, window.thread, window.view) for arm in both for window in arm if window.num_samples}
    functions = None if candidate is None else {role.table.role: role for role in role_changes(base, candidate)}
    return tuple(
        _lane(key, [_windows_of(arm, key) for arm in both], renamed or {}, _lines(both), functions)
        for key in sorted(keys, key=_place)
    )


def _place(key: Key) -> tuple[int, int, int, str, str]:
    role, thread, view = key
    return list(StackView).index(view), thread not in ("", MAIN_THREAD), not role.startswith("drafter"), role, thread


def _windows_of(arm: Sequence[ProfiledWindow], key: Key) -> list[_Window]:
    """Windows in which the view was taken: a thread that is not in it took no such time there."""
    role, _, view = key
    found: dict[tuple[str, str], _Window] = {}
    for window in sorted(arm, key=lambda window: (window.launch, window.label)):
        if not (window.num_samples and _shows(window, role, view)):
            continue
        held = found.setdefault((window.launch, window.label), _Window(window.launch))
        if (window.role, window.thread, window.view) == key:
            held.ns_per_token = window.ns_per_token
            held.stacks.append(window.stacks)
    return list(found.values())


def _shows(window: ProfiledWindow, role: str, view: StackView) -> bool:
    """Whether the samples of *window* show that the view of the role was taken."""
    if view is StackView.GIL:
        # A recording of its own, not before every window; a role that never held the GIL has no samples in it.
        return window.view is view
    return window.role == role and window.view in (view, StackView.ALL)


def _lines(both: Iterable[Sequence[ProfiledWindow]]) -> dict[FrameId, int]:
    """The candidate's where it has the frame: that is the source that a reader has open."""
    lines: dict[FrameId, int] = {}
    for arm in both:
        for window in sorted(arm, key=lambda window: (window.launch, window.label)):
            lines.update(window.lines)
    return lines


def _lane(
    key: Key,
    windows: Sequence[Sequence[_Window]],
    renamed: Mapping[FrameId, FrameId],
    lines: Mapping[FrameId, int],
    functions: Mapping[str, RoleChanges] | None,
) -> FlameLane:
    role, thread, view = key
    sampled = [window for arm in windows for window in arm if window.stacks]
    is_time = all(0 < window.ns_per_token < MAX_NS_PER_TOKEN for window in sampled)
    trie = _Trie()
    trie.find(-1, FrameId(role, ""))
    was: dict[int, FrameId] = {}
    met = [[_met(trie, window, renamed if not side else {}, was) for window in windows[side]] for side in (0, 1)]
    arms = [_arm(trie, arm, counts, is_time=is_time) for arm, counts in zip(windows, met, strict=True)]
    order = _depth_first(trie, np.maximum(*(arm.mean(arm.counts) for arm in arms)))
    # From here on boxes are in their order, or rounding would depend on which stack was met first.
    arms = [replace(arm, counts=arm.counts[order], own_counts=arm.own_counts[order]) for arm in arms]
    judged = None
    if functions is not None and all(arm.num_windows for arm in arms):
        of_role = functions.get(role) if is_time and thread == MAIN_THREAD and view is StackView.ALL else None
        judged = _judged(arms[0], arms[1], of_role, is_time=is_time)
    return FlameLane(
        role=role,
        thread=thread,
        view=view,
        is_time=is_time,
        is_differential=functions is not None,
        num_windows=(arms[0].num_windows, arms[1].num_windows),
        nodes=_nodes(trie, order, arms, judged, [(was.get(node), lines.get(trie.frames[node], 0)) for node in order]),
    )


def _met(trie: _Trie, window: _Window, renamed: Mapping[FrameId, FrameId], was: dict[int, FrameId]) -> dict[int, int]:
    """Box → its own samples in *window*; the tree grows by what is new."""
    own: dict[int, int] = {}
    for stacks in window.stacks:
        for stack, num_samples in stacks.items():
            node = 0
            for frame in stack:
                name = renamed.get(frame, frame)
                node = trie.find(node, name)
                if name != frame:
                    was[node] = frame
            own[node] = own.get(node, 0) + num_samples
    return own


def _arm(trie: _Trie, windows: Sequence[_Window], met: Sequence[Mapping[int, int]], *, is_time: bool) -> _Arm:
    own = np.zeros((len(trie.frames), len(windows)))
    for column, found in enumerate(met):
        own[list(found), column] = list(found.values())
    counts = trie.inclusive(own)
    worth = [window.ns_per_token if is_time else float(bool(window.stacks)) for window in windows]
    return _Arm(
        windows=ArmWindows(
            launches=tuple(window.launch for window in windows),
            ns_per_token=np.array(worth),
            num_samples=counts[0],
        ),
        counts=counts,
        own_counts=own,
    )


def _judged(base: _Arm, candidate: _Arm, functions: RoleChanges | None, *, is_time: bool) -> tuple[Changes, Bools]:
    """
    Differences of all boxes of a lane, and which of them are clear.

    A box that has the samples of one of the role's *functions* has its noise and its verdict, which is with all
    functions in mind; others are judged with all boxes in mind.
    """
    arms = (base.windows, candidate.windows)
    noise = functions.noise if functions else noise_of(arms, base.own_counts, candidate.own_counts, is_time=is_time)
    changed = changes(arms, base.counts, candidate.counts, noise)
    names = questions(base.counts, candidate.counts)
    (clear,) = clear_of_chance([changed], [names])
    verdicts = functions.verdicts() if functions else {}
    return changed, np.array([verdicts.get(name, of_box) for name, of_box in zip(names, clear, strict=True)])


def _nodes(
    trie: _Trie,
    order: Sequence[int],
    arms: Sequence[_Arm],
    judged: tuple[Changes, Bools] | None,
    names: Sequence[tuple[FrameId | None, int]],
) -> tuple[FlameNode, ...]:
    """Boxes in their *order*; *names* are what each is called in the base, if otherwise, and its line."""
    base, candidate = (arm.mean(arm.counts) for arm in arms)
    base_own, candidate_own = (arm.mean(arm.own_counts) for arm in arms)
    num_base, num_candidate = (arm.counts.sum(axis=1) for arm in arms)
    place = {node: index for index, node in enumerate(order)} | {-1: -1}
    return tuple(
        FlameNode(
            frame=trie.frames[node],
            parent=place[trie.parents[node]],
            base=float(base[index]),
            candidate=float(candidate[index]),
            base_own=float(base_own[index]),
            candidate_own=float(candidate_own[index]),
            num_samples=(int(num_base[index]), int(num_candidate[index])),
            line=names[index][1],
            was=names[index][0],
            difference=judged[0].interval(index) if judged else None,
            is_clear=bool(judged[1][index]) if judged else False,
        )
        for index, node in enumerate(order)
    )


def _depth_first(trie: _Trie, costs: Floats) -> list[int]:
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(trie.parents):
        below.setdefault(parent, []).append(node)
    order, todo = [], [0]
    while todo:
        node = todo.pop()
        order.append(node)
        todo += sorted(below.get(node, ()), key=lambda child: (-costs[child], trie.frames[child]), reverse=True)
    return order
