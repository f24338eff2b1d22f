"""`flashprof history` without its command line: series of launches, what they show, and what a user says of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.history import (
    Acknowledgement,
    Baseline,
    Change,
    ChangeStatus,
    History,
    HistoryLaunch,
    LaunchKind,
    Level,
    Series,
)
from flashprof.stats.change_points import change_points
from flashprof.stats.trend_rules import Course, Shift, change_between, follow, level_rate
from flashprof.store.history import Held, read_history, record_acknowledgement, record_baseline

MAX_GATES = 20
MAX_OFFERED = 8
SEED = 6
"""The same store gives the same changes."""
START = "flashprof history add reports"


def show(
    history: Path, *, cell: str = "", since: str = "", branch: str = "", tell: Callable[[str], None] | None = None
) -> History:
    """
    Everything that the store shows.

    Args:
        history: The file.
        cell: First digits of a cell's hash, or a part of its title; empty for all.
        since: ISO 8601: earlier launches are not shown, but count.
        branch: Launches of other branches do not count; empty for all.
        tell: Told what is done while it takes time.

    Raises:
        UsageError: There is no history yet, or nothing of that cell or branch in it.
        FormatError, ToolError: The file cannot be used.
    """
    held = _read(history)
    found = _series(held, cell=cell, branch=branch, tell=tell)
    gates = [gate for gate in reversed(held.gates) if gate.at >= since]
    if cell:
        gates = [gate for gate in gates if gate.cell in {series.cell for series in found}]
    cut = [_since(series, since) for series in found]
    return History(
        path=str(history),
        series=tuple(sorted(cut, key=lambda series: (not series.is_lost, -len(series.launches), series.title))),
        gates=tuple(gates[:MAX_GATES]),
        num_launches=len(held.launches),
        notes=(held.said,) if held.said else (),
    )


def accept(history: Path, run: str, *, why: str, who: str, at: str) -> tuple[Change, Series]:
    """
    Take the level that *run* belongs to for what it should be: the change before it is reported no more.

    Args:
        history: The file.
        run: A run at or after the change.
        why: For those who come later.
        who: Whose word it is.
        at: Now, ISO 8601.

    Returns:
        The change as it is from now on, and its series.

    Raises:
        UsageError: No such run, or there is no change at or before it.
        FormatError, ToolError: The file cannot be used.
    """
    held = _read(history)
    launch = _find_launch(held, run)
    series = _one_series(held, launch)
    index = next(place for place, item in enumerate(series.launches) if _key(item) == _key(launch))
    changes = [change for change in series.changes if change.acknowledgement is None]
    change = next((change for change in reversed(changes) if change.index <= index), None)
    if change is None:
        offered = (
            ", ".join(change.run_id for change in changes) or "none: the series has no change that is not accepted"
        )
        raise UsageError(
            f"there is no change at or before {run}", offered=run, allowed=offered, next_command="flashprof history"
        )
    record_acknowledgement(
        history,
        Acknowledgement(
            cell=series.cell,
            kind=series.kind,
            run_id=change.run_id,
            started=change.started,
            why=why,
            who=who,
            at=at,
        ),
    )
    after = _one_series(_read(history), launch)
    return next(item for item in after.changes if item.index == change.index), after


def name_baseline(history: Path, name: str, *, cell: str = "", who: str, at: str) -> tuple[Baseline, ...]:
    """
    Give today's level a name, in each cell that *cell* fits: what `flashprof gate --baseline NAME` compares with.

    Raises:
        UsageError: There is no history yet, or nothing of that cell in it.
        FormatError, ToolError: The file cannot be used.
    """
    chosen: dict[str, Series] = {}
    for series in _series(_read(history), cell=cell):
        # Where runs and bases of gates have levels, that of the runs.
        if series.cell not in chosen or series.kind is LaunchKind.RUN:
            chosen[series.cell] = series
    baselines = tuple(
        Baseline(
            name=name,
            cell=series.cell,
            kind=series.kind,
            run_ids=series.level.run_ids,
            since=series.level.since,
            who=who,
            at=at,
        )
        for series in chosen.values()
    )
    for baseline in baselines:
        record_baseline(history, baseline)
    return baselines


def _read(history: Path) -> Held:
    if not history.exists():
        raise UsageError("there is no history yet", where=str(history), next_command=f"flashprof run, or {START}")
    return read_history(history)


def _series(
    held: Held, *, cell: str = "", branch: str = "", tell: Callable[[str], None] | None = None
) -> tuple[Series, ...]:
    groups: dict[tuple[str, LaunchKind], list[HistoryLaunch]] = defaultdict(list)
    for launch in held.launches:
        is_wanted = not branch or launch.branch == branch
        # Heads of gates are of changes that may never land.
        if launch.is_point and is_wanted and launch.kind is not LaunchKind.GATE_HEAD:
            groups[launch.cell, launch.kind].append(launch)
    if branch and not groups:
        raise UnknownNameError("branch", branch, sorted({launch.branch for launch in held.launches} - {""}))
    chosen = {key: group for key, group in groups.items() if _fits(group[-1], cell)}
    if cell and not chosen:
        known = [f"{group[-1].cell} {group[-1].title}" for group in groups.values()]
        raise UnknownNameError("cell", cell, dict.fromkeys(known[:MAX_OFFERED]), next_command="flashprof history")
    made = []
    for number, group in enumerate(chosen.values(), start=1):
        if tell:
            tell(f"series {number} of {len(chosen)}: {len(group)} launches")
        made.append(_judged(group, held))
    return tuple(made)


def _fits(launch: HistoryLaunch, cell: str) -> bool:
    return launch.cell.startswith(cell.lower()) or cell.lower() in launch.title.lower()


def _find_launch(held: Held, run: str) -> HistoryLaunch:
    points = [launch for launch in held.launches if launch.is_point and launch.kind is not LaunchKind.GATE_HEAD]
    found = [launch for launch in points if launch.run_id == run]
    if not found:
        newest = [launch.run_id for launch in reversed(points)]
        raise UnknownNameError("run", run, newest[:MAX_OFFERED], next_command="flashprof history")
    if len({launch.cell for launch in found}) > 1:
        raise UsageError(
            f"{len(found)} runs are called {run}",
            offered=run,
            allowed="; ".join(f"{launch.folder} of cell {launch.cell}" for launch in found),
            next_command="flashprof history, and accept another run of the same level",
        )
    return found[-1]


def _one_series(held: Held, launch: HistoryLaunch) -> Series:
    """That of a launch, on all branches."""
    group = [item for item in held.launches if item.is_point and item.cell == launch.cell and item.kind is launch.kind]
    return _judged(group, held)


@dataclass(frozen=True)
class _Points:
    """The numbers of a series."""

    launches: Sequence[HistoryLaunch]
    values: Sequence[float]
    sds: Sequence[float]

    def level(self, indices: Sequence[int]) -> Level:
        return Level(
            run_ids=tuple(self.launches[index].run_id for index in indices),
            since=self.launches[indices[0]].started,
            tok_per_s=level_rate(self.values, self.sds, indices),
        )


def _judged(launches: Sequence[HistoryLaunch], held: Held) -> Series:
    newest = launches[-1]
    points = _Points(
        launches,
        [launch.log_tok_per_s or 0.0 for launch in launches],
        # One that says nothing of its noise is as good as the scatter of the series.
        [launch.error or 0.0 for launch in launches],
    )
    accepted = _accepted(launches, held.acknowledgements)
    course = follow(points.values, points.sds, restarts=accepted)
    named = {item.name: item for item in held.baselines if (item.cell, item.kind) == (newest.cell, newest.kind)}
    return Series(
        cell=newest.cell,
        kind=newest.kind,
        title=newest.title,
        launches=tuple(launches),
        changes=_changes(points, course, accepted),
        baseline=points.level(course.baseline),
        level=points.level(course.level),
        is_lost=course.is_lost,
        standing=change_between(points.values, points.sds, course.baseline, course.level) if course.is_lost else None,
        names=tuple(named.values()),
    )


def _accepted(
    launches: Sequence[HistoryLaunch], acknowledgements: Sequence[Acknowledgement]
) -> dict[int, Acknowledgement]:
    """By the index of the first run of what was accepted."""
    words = {(item.cell, item.kind, item.run_id, item.started): item for item in acknowledgements}
    keys = ((index, (item.cell, item.kind, item.run_id, item.started)) for index, item in enumerate(launches))
    return {index: words[key] for index, key in keys if key in words}


def _changes(points: _Points, course: Course, accepted: Mapping[int, Acknowledgement]) -> tuple[Change, ...]:
    shifts = {shift.at: shift for shift in course.shifts}
    places = {*shifts, *accepted} - {0}
    for start, end in pairwise([0, *sorted(places), len(points.values)]):
        rng = np.random.default_rng(SEED)
        places |= {start + place for place in change_points(points.values[start:end], points.sds[start:end], rng)}
    bounds = [0, *sorted(places), len(points.values)]
    return tuple(
        _change(
            points, (before, at, after), _status(shifts.get(at), course, accepted.get(at)), shifts.get(at), accepted
        )
        for before, at, after in zip(bounds, bounds[1:-1], bounds[2:], strict=False)
    )


def _change(
    points: _Points,
    bounds: tuple[int, int, int],
    status: ChangeStatus,
    shift: Shift | None,
    accepted: Mapping[int, Acknowledgement],
) -> Change:
    before, at, after = bounds
    first = points.launches[at]
    return Change(
        index=at,
        run_id=first.run_id,
        started=first.started,
        effect=change_between(points.values, points.sds, range(before, at), range(at, after)),
        seen=points.launches[shift.seen].run_id if shift else "",
        commits=(points.launches[at - 1].commit, first.commit),
        status=status,
        acknowledgement=accepted.get(at),
    )


def _status(shift: Shift | None, course: Course, acknowledgement: Acknowledgement | None) -> ChangeStatus:
    if acknowledgement is not None:
        return ChangeStatus.ACCEPTED
    if shift is None:
        return ChangeStatus.HINDSIGHT
    if not shift.is_loss:
        return ChangeStatus.MENDS if shift.is_mend else ChangeStatus.FOLLOWED
    # What is lost today began after the newest run of the baseline.
    return ChangeStatus.OPEN if course.is_lost and shift.at > course.baseline[-1] else ChangeStatus.PAST


def _since(series: Series, since: str) -> Series:
    """Without what is older; numbers stay those of the whole series."""
    num_cut = sum(launch.started < since for launch in series.launches)
    kept = [replace(change, index=change.index - num_cut) for change in series.changes if change.index >= num_cut]
    return replace(series, launches=series.launches[num_cut:], changes=tuple(kept))


def _key(launch: HistoryLaunch) -> tuple[str, ...]:
    """What tells a launch from others of its series."""
    return (launch.host, launch.gate, launch.run_id, launch.started)
