"""
The samples of one role in both arms as tables of own-code frames by windows. Pure.

Stacks of the main thread, idle ones included: a sample is a piece of wall time. It counts once for each own-code
function in it, however often that recurs (inclusive), and belongs to the innermost one: library code below is what it
calls. A stack without any belongs to its outermost function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from flashprof.contracts.profiles import FrameId, ProfiledWindow, StackView
from flashprof.stats.frame_match import (
    NO_FRAME,
    Neighbours,
    common_names,
    is_own_code,
    is_resumed,
    match_renamed,
    runs_compiled,
)
from flashprof.stats.stack_noise import ArmWindows
from flashprof.windows.lanes import MAIN_THREAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Numbers = tuple[int, ...]
"""A stack by the numbers of its frames."""
Key = TypeVar("Key", bound=Hashable)
Edge = tuple[FrameId, FrameId]
FramePhase = tuple[FrameId, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Generic[Key]):
    """Samples of each key, by window."""

    keys: Mapping[Key, int]
    """Key → row."""
    base: Floats
    """(num_keys, num_windows)"""
    candidate: Floats

    def change(self, arms: tuple[ArmWindows, ArmWindows]) -> Floats:
        """Candidate − base of each row, ns a token."""
        old = self.base @ arms[0].ns_per_sample / len(arms[0].launches)
        new: Floats = self.candidate @ arms[1].ns_per_sample / len(arms[1].launches)
        return new - old


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTable:
    """All that is counted of one role. Frames go by their name in the candidate, where it has them."""

    role: str
    thread: str
    arms: tuple[ArmWindows, ArmWindows]
    inclusive: Counts[FrameId]
    own: Counts[FrameId]
    """The same rows: samples that belong to the frame."""
    handed_on: Counts[Edge]
    """Samples in which the first calls the second, own code both, be library code between them."""
    phases: Counts[FramePhase]
    """The frame's inclusive samples, by innermost phase."""
    own_phases: Counts[FramePhase]
    was: Mapping[FrameId, FrameId]
    """Candidate → base, of those matched under two names."""
    around: tuple[Mapping[FrameId, Neighbours], Mapping[FrameId, Neighbours]]
    lines: Mapping[FrameId, int]
    """Where each was seen most; absent where no line is known."""


@dataclass(slots=True)
class _Numbering:
    """
    Frames by number.

    Python hashes a frozen dataclass anew each time: 0.2 µs a frame, 25 of them a stack. Windows keep their frames
    alive, so most are found by identity.
    """

    frames: list[FrameId] = field(default_factory=list)
    by_value: dict[FrameId, int] = field(default_factory=dict)
    by_identity: dict[int, int] = field(default_factory=dict)

    def stack(self, frames: tuple[FrameId, ...]) -> Numbers:
        try:
            # In C, which takes half as long as a list.
            return tuple(map(self.by_identity.__getitem__, map(id, frames)))
        except KeyError:
            return tuple([self._number(frame) for frame in frames])

    def _number(self, frame: FrameId) -> int:
        number = self.by_value.setdefault(frame, len(self.frames))
        if number == len(self.frames):
            self.frames.append(frame)
        self.by_identity[id(frame)] = number
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    """What is to be known of a frame as the sampler wrote it."""

    name: FrameId
    """That it has in every launch."""
    is_own: bool
    is_compiled: bool
    """Whether it is compiled code of what calls it."""
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class _Outline:
    """What counts of one distinct stack."""

    own: tuple[FrameId, ...]
    """Own code, outermost first, recursion included; where there is none, the outermost function."""
    phase: str
    callee: FrameId | None
    """What the innermost own code calls."""
    compiled: frozenset[FrameId]
    """Own code for which compiled code runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArmStacks:
    windows: ArmWindows
    outlines: Sequence[_Outline]
    counts: Floats
    """(num_stacks, num_windows)"""


@dataclass(slots=True)
class _Tally(Generic[Key]):
    """Which stacks each key is in."""

    rows: dict[Key, int] = field(default_factory=dict)
    places: tuple[list[tuple[int, int]], list[tuple[int, int]]] = field(default_factory=lambda: ([], []))
    """By arm: (row, stack)."""

    def add(self, arm: int, stack: int, key: Key) -> None:
        self.places[arm].append((self.rows.setdefault(key, len(self.rows)), stack))

    def counts(self, arms: Sequence[_ArmStacks]) -> Counts[Key]:
        base, candidate = (self._table(places, arm.counts) for places, arm in zip(self.places, arms, strict=True))
        return Counts(keys=self.rows, base=base, candidate=candidate)

    def _table(self, places: Sequence[tuple[int, int]], counts: Floats) -> Floats:
        rows, stacks = np.array(places, dtype=np.intp).reshape(-1, 2).T
        columns = [np.bincount(rows, weights=column[stacks], minlength=len(self.rows)) for column in counts.T]
        return np.stack(columns, axis=1)


def main_windows(windows: Sequence[ProfiledWindow]) -> dict[str, list[ProfiledWindow]]:
    """Role → windows of its main thread that have samples and a finite cost, in the order of their names."""
    found: dict[str, list[ProfiledWindow]] = {}
    for window in sorted(windows, key=lambda window: (window.role, window.launch, window.label)):
        is_sound = 0 < window.ns_per_token < float("inf") and window.num_samples > 0
        if window.thread == MAIN_THREAD and window.view is StackView.ALL and is_sound:
            found.setdefault(window.role, []).append(window)
    return found


def helper_windows(
    windows: Sequence[ProfiledWindow], threads: Collection[tuple[str, str]]
) -> dict[tuple[str, str], list[ProfiledWindow]]:
    """
    Say when other threads held the GIL, which the main thread then could not.

    Args:
        windows: Of one arm.
        threads: Role and name of those that are asked for.

    Returns:
        For each a window where the GIL was looked at: all looks, those at which it did not hold the GIL as samples of
        `NO_FRAME`, so that what was never seen is as uncertain as the number of looks makes it.
    """
    held = {
        (window.role, window.launch, window.label, window.thread): window
        for window in windows
        if window.view is StackView.GIL and window.num_samples and 0 < window.ns_per_token < float("inf")
    }
    mains = main_windows(windows)
    found: dict[tuple[str, str], list[ProfiledWindow]] = {place: [] for place in sorted(threads)}
    for (role, thread), taken in found.items():
        for main in mains.get(role, ()):
            of_main = held.get((role, main.launch, main.label, MAIN_THREAD))
            if of_main is not None:
                num_looks = round(of_main.num_samples * main.ns_per_token / of_main.ns_per_token)
                taken.append(_with_all_looks(held.get((role, main.launch, main.label, thread)), main, num_looks))
    return found


def _with_all_looks(taken: ProfiledWindow | None, main: ProfiledWindow, num_looks: int) -> ProfiledWindow:
    stacks, num_held = (taken.stacks, taken.num_samples) if taken is not None else ({}, 0)
    lines = taken.lines if taken is not None else {}
    return replace(
        main,
        view=StackView.GIL,
        stacks={**stacks, (): max(0, num_looks - num_held)},
        lines=lines,
    )


def helper_threads(windows: Sequence[ProfiledWindow]) -> set[tuple[str, str]]:
    """Role and name of all threads but the main ones that were seen to hold the GIL."""
    is_helper = (window for window in windows if window.view is StackView.GIL and window.thread != MAIN_THREAD)
    return {(window.role, window.thread) for window in is_helper}


def role_table(
    role: str, base: Sequence[ProfiledWindow], candidate: Sequence[ProfiledWindow], *, thread: str = MAIN_THREAD
) -> RoleTable:
    """
    Count the samples of one thread of a role.

    Args:
        role: Of all windows.
        base: Windows of `main_windows`, or of `helper_windows`, at least one.
        candidate: Of the other arm.
        thread: Its name.
    """
    numbering = _Numbering()
    numbered = [[(window, _numbered(window, numbering)) for window in arm] for arm in (base, candidate)]
    names = common_names(numbering.frames)
    traits = [_traits(frame, names[frame]) for frame in numbering.frames]
    arms = (_arm_stacks(numbered[0], traits), _arm_stacks(numbered[1], traits))
    around = (_neighbours(arms[0]), _neighbours(arms[1]))
    pairs = match_renamed(*around)
    inclusive, own = _Tally[FrameId](), _Tally[FrameId]()
    handed_on, phases, own_phases = _Tally[Edge](), _Tally[FramePhase](), _Tally[FramePhase]()
    own.rows = inclusive.rows
    for arm, renamed in enumerate((pairs, {})):
        for place, outline in enumerate(arms[arm].outlines):
            stack = [renamed.get(frame, frame) for frame in outline.own]
            for frame in dict.fromkeys(stack):
                inclusive.add(arm, place, frame)
                phases.add(arm, place, (frame, outline.phase))
            for edge in dict.fromkeys(pairwise(stack)):
                handed_on.add(arm, place, edge)
            own.add(arm, place, stack[-1])
            own_phases.add(arm, place, (stack[-1], outline.phase))
    return RoleTable(
        role=role,
        thread=thread,
        arms=(arms[0].windows, arms[1].windows),
        inclusive=inclusive.counts(arms),
        own=own.counts(arms),
        handed_on=handed_on.counts(arms),
        phases=phases.counts(arms),
        own_phases=own_phases.counts(arms),
        was={new: old for old, new in pairs.items()},
        around=around,
        lines=_lines((*base, *candidate), names),
    )


def _numbered(window: ProfiledWindow, numbering: _Numbering) -> list[tuple[Numbers, int]]:
    return [(numbering.stack(stack), num) for stack, num in window.stacks.items()]


def _traits(frame: FrameId, name: FrameId) -> _Traits:
    return _Traits(
        name=name,
        is_own=is_own_code(name),
        is_compiled=runs_compiled(name),
        is_resumed=is_resumed(frame),
    )


def _arm_stacks(
    windows: Sequence[tuple[ProfiledWindow, Sequence[tuple[Numbers, int]]]], traits: Sequence[_Traits]
) -> _ArmStacks:
    places: dict[Numbers, int] = {}
    for _, stacks in windows:
        for stack, _ in stacks:
            places.setdefault(stack, len(places))
    counts = np.zeros((len(places), len(windows)))
    for column, (_, stacks) in enumerate(windows):
        counts[[places[stack] for stack, _ in stacks], column] = [num for _, num in stacks]
    return _ArmStacks(
        windows=ArmWindows(
            launches=tuple(window.launch for window, _ in windows),
            ns_per_token=np.array([window.ns_per_token for window, _ in windows]),
            num_samples=counts.sum(axis=0),
        ),
        outlines=[_outline([traits[number] for number in stack]) for stack in places],
        counts=counts,
    )


def _outline(stack: Sequence[_Traits]) -> _Outline:
    own: list[FrameId] = []
    phase, callee = "", None
    compiled: set[FrameId] = set()
    for frame in stack:
        if frame.is_own:
            own.append(frame.name)
            callee = None
            if frame.is_resumed:
                compiled.add(frame.name)
        elif frame.name.is_phase:
            phase = frame.name.name
        else:
            callee = callee or frame.name
            if own and frame.is_compiled:
                compiled.add(own[-1])
    if not own:
        functions = [frame.name for frame in stack if not frame.name.is_phase]
        own = functions[:1] or [NO_FRAME]
        callee = functions[1] if len(functions) > 1 else None
    return _Outline(tuple(own), phase, callee, frozenset(compiled))


def _neighbours(arm: _ArmStacks) -> dict[FrameId, Neighbours]:
    around: dict[FrameId, Neighbours] = {}
    for outline, total in zip(arm.outlines, arm.counts.sum(axis=1), strict=True):
        num = int(total)
        for frame in dict.fromkeys(outline.own):
            here = around.get(frame) or around.setdefault(frame, Neighbours())
            here.num_samples += num
            here.num_compiled += num * (frame in outline.compiled)
        for caller, frame in dict.fromkeys(pairwise((NO_FRAME, *outline.own))):
            around[frame].callers[caller] += num
            if caller != NO_FRAME:
                around[caller].callees[frame] += num
        if outline.callee is not None:
            around[outline.own[-1]].callees[outline.callee] += num
    return around


def _lines(windows: Sequence[ProfiledWindow], names: Mapping[FrameId, FrameId]) -> dict[FrameId, int]:
    """The line that most windows saw most, the candidate's where they are equal."""
    seen: dict[FrameId, Counter[int]] = {}
    for window in reversed(windows):
        for frame, line in window.lines.items():
            seen.setdefault(names.get(frame, frame), Counter())[line] += 1
    return {frame: lines.most_common(1)[0][0] for frame, lines in seen.items()}
