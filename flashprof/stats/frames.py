"""
Which functions a change of tok/s lies in: own time first, in the direction of the change, wrappers left out. Pure.

Where tok/s falls, all roles take longer a token, most of them by waiting. So what the localised phase ran comes first.
What another thread of that role did while it held the GIL comes with it: no phase of the main thread shows who it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashprof.contracts.localisation import BETWEEN, FrameChange, FrameStatus
from flashprof.contracts.profiles import FrameId, ProfiledWindow
from flashprof.stats.frame_match import NO_FRAME, Surroundings
from flashprof.stats.frame_table import Counts, FramePhase, RoleTable
from flashprof.stats.function_changes import RoleChanges, helper_changes, role_changes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]

WRAPPER_SHARE = 0.95
"""Of its change, handed on to one callee."""
EVERYWHERE_SHARE = 0.98
"""Of a role's samples."""
MIN_OWN_SHARE = 0.05
"""Of its inclusive change: a wrapper with as much of its own, or with a clear one, is shown all the same."""
MAIN_SHARE = 0.25
"""Of the drop: in the localised phase, time that grew by this is shown before changes elsewhere, its own time first."""
SOME_SHARE = 0.1
"""Of the drop: own time that grew by this is shown before clear changes the other way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One frame on its way to its place."""

    of: RoleChanges
    row: int
    frame: FrameId
    phase: str
    is_wrapper: bool

    @property
    def is_own_clear(self) -> bool:
        return bool(self.of.is_own_clear[self.row])

    @property
    def is_clear(self) -> bool:
        return self.is_own_clear or bool(self.of.is_inclusive_clear[self.row])


def frame_changes(
    base: Sequence[ProfiledWindow],
    candidate: Sequence[ProfiledWindow],
    *,
    drop_ns_per_token: float,
    focus: tuple[str, str] = ("", ""),
    top: int = 12,
) -> tuple[FrameChange, ...]:
    """
    Say which functions take more or less time a token in the candidate.

    Args:
        base: Profile windows of one arm: all samples of main threads, and those in which others held the GIL.
        candidate: Of the other.
        drop_ns_per_token: What a token costs more in the candidate, of wall time; negative for a gain.
        focus: Role and phase that the change was localised to; empty where none was.
        top: How many, at most.

    Returns:
        Own code of roles that both arms have: own time of the focus' role that clearly changed in the direction of the
        drop first, then what calls it within the focus, then other roles, which may but wait for it; each by own time.
        Library code is in the own time of what calls it.
    """
    sign = -1.0 if drop_ns_per_token < 0 else 1.0
    changed = (*role_changes(base, candidate), *helper_changes(base, candidate))
    rows = [row for role in changed for row in _rows(role) if not _explains_nothing(row)]
    rows.sort(key=lambda row: _place(row, sign, abs(drop_ns_per_token), focus))
    return tuple(map(_frame_change, rows[:top]))


def _rows(role: RoleChanges) -> Iterator[_Row]:
    table = role.table
    is_wrapper = _hands_all_on(table, role.inclusive.estimate) | _is_everywhere(table)
    for row, (frame, phase) in enumerate(zip(table.inclusive.keys, _phases(table), strict=True)):
        # Samples without a function: native threads, and looks at which a helper did not hold the GIL.
        if frame == NO_FRAME:
            continue
        yield _Row(of=role, row=row, frame=frame, phase=phase, is_wrapper=bool(is_wrapper[row]))


def _phases(table: RoleTable) -> tuple[str, ...]:
    """In which each frame's own time changed most, or where that did not change, its inclusive time."""
    best: list[tuple[bool, float, str]] = [(False, -1.0, "")] * len(table.inclusive.keys)
    for is_own, counts in ((False, table.phases), (True, table.own_phases)):
        for row, size, phase in _phase_changes(table, counts):
            best[row] = max(best[row], (is_own and size > 0, size, phase))
    return tuple(phase for _, _, phase in best)


def _phase_changes(table: RoleTable, counts: Counts[FramePhase]) -> Iterator[tuple[int, float, str]]:
    for ((frame, phase), _), size in zip(counts.keys.items(), np.abs(counts.change(table.arms)), strict=True):
        yield table.inclusive.keys[frame], float(size), phase


def _hands_all_on(table: RoleTable, changed: Floats) -> Bools:
    """Whether one callee has all but all of the frame's change."""
    handed_on = np.zeros(len(changed))
    for (caller, callee), change in zip(table.handed_on.keys, table.handed_on.change(table.arms), strict=True):
        row = table.inclusive.keys[caller]
        if caller != callee:
            handed_on[row] = max(handed_on[row], change * np.sign(changed[row]))
    has_all: Bools = handed_on >= WRAPPER_SHARE * np.abs(changed)
    return has_all & (handed_on > 0)


def _is_everywhere(table: RoleTable) -> Bools:
    old, new = (arm.num_samples.sum() for arm in table.arms)
    is_old: Bools = table.inclusive.base.sum(axis=1) >= EVERYWHERE_SHARE * old
    is_new: Bools = table.inclusive.candidate.sum(axis=1) >= EVERYWHERE_SHARE * new
    return is_old & is_new


def _explains_nothing(row: _Row) -> bool:
    own, inclusive = row.of.own.estimate[row.row], row.of.inclusive.estimate[row.row]
    has_little = abs(own) <= MIN_OWN_SHARE * abs(inclusive)
    return bool(row.is_wrapper and has_little and not row.is_own_clear)


def _place(row: _Row, sign: float, drop_ns: float, focus: tuple[str, str]) -> tuple[int, int, float, str, FrameId]:
    own = float(row.of.own.estimate[row.row]) * sign
    inclusive = float(row.of.inclusive.estimate[row.row]) * sign
    role, phase = focus
    is_role = role in ("", row.of.table.role)
    is_focus = bool(role) and is_role and row.phase == ("" if phase == BETWEEN else phase)
    if own > 0 and ((is_role and row.is_own_clear) or (is_focus and own >= MAIN_SHARE * drop_ns)):
        tier = 0
    elif is_focus and row.is_clear and inclusive >= MAIN_SHARE * drop_ns:
        tier = 1
    elif own > 0 and (row.is_own_clear or own >= SOME_SHARE * drop_ns):
        tier = 2
    elif row.is_clear:
        tier = 3
    else:
        tier = 4 if own > 0 else 5
    return tier, -is_role - is_focus, -abs(own), row.of.table.role, row.frame


def _frame_change(row: _Row) -> FrameChange:
    table, place, frame = row.of.table, row.row, row.frame
    before = table.was.get(frame, frame)
    line = table.lines.get(frame, 0)
    was = ""
    if before != frame:
        was = before.name if before.file == frame.file else f"{before.name} ({before.file})"
    return FrameChange(
        role=table.role,
        thread=table.thread,
        name=frame.name,
        where=f"{frame.file}:{line}" if line else frame.file,
        phase=row.phase,
        status=_status(table, frame, before),
        was=was,
        base_ns_per_token=float(row.of.inclusive.base[place]),
        candidate_ns_per_token=float(row.of.inclusive.candidate[place]),
        inclusive=row.of.inclusive.interval(place),
        own=row.of.own.interval(place),
        is_clear=row.is_clear,
    )


def _status(table: RoleTable, frame: FrameId, before: FrameId) -> FrameStatus:
    old, new = table.around
    names = {was: now for now, was in table.was.items()}
    if before != frame:
        return FrameStatus.RENAMED
    if frame in old and frame in new:
        return FrameStatus.COMPILED if old[frame].is_compiled != new[frame].is_compiled else FrameStatus.CHANGED
    if frame in new:
        return FrameStatus.COMPILED if _is_inlined(frame, new, old, table.was) else FrameStatus.NEW
    return FrameStatus.COMPILED if _is_inlined(frame, old, new, names) else FrameStatus.VANISHED


def _is_inlined(frame: FrameId, here: Surroundings, there: Surroundings, names: Mapping[FrameId, FrameId]) -> bool:
    """Whether what calls it, directly or by others that one arm lacks, too, is compiled in the arm that lacks it."""
    seen = set()
    while frame in here and frame not in seen:
        seen.add(frame)
        around, other = here[frame], there.get(names.get(frame, frame))
        if other is not None:
            return other.is_compiled and not around.is_compiled
        frame = max(around.callers, key=lambda caller: (around.callers[caller], caller))
    return False
