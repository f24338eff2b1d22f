"""A stored baseline, as a gate needs it: launches that the history has under a name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.app.gate_metrics import LaunchFigures
from flashprof.contracts.cell import Cell
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.gate import GateRequest
from flashprof.contracts.history import Baseline, HistoryLaunch
from flashprof.launch.worktrees import SHORT
from flashprof.store.history import history_path, read_history

CHANGES = "+changes"
"""Behind the commit of a launch whose tree had some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLaunch:
    """One launch of it."""

    run_id: str
    started: str
    """As `HistoryLaunch.started`: another run may lie there by now."""
    places: tuple[Path, ...]
    """Where its folder may be, the likeliest first."""
    log_tok_per_s: float
    figures: LaunchFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBaseline:
    """Launches that head is held against."""

    label: str
    """For a person: the name, when it was measured, and its commit."""
    commit: str
    """Full id of the newest; empty where it was not known, or had changes."""
    cell: Cell
    """As `history_cell`."""
    launches: tuple[StoredLaunch, ...]


def read_baseline(request: GateRequest, known: Cell, env: Mapping[str, str]) -> StoredBaseline:
    """
    Read what the gate is held against; of several cells with one name, the most alike.

    Args:
        request: Of the gate.
        known: What is known of head's cell before a launch.
        env: FlashProf's own environment: it may say where the history is.

    Raises:
        UsageError: There is no history.
        UnknownNameError: It has no baseline of that name.
    """
    path = history_path(request.reports, env)
    if path is None or not path.exists():
        raise UsageError(
            "there is no history to read a baseline from",
            where=str(path or "FLASHPROF_HISTORY=off"),
            offered=f"--baseline {request.baseline}",
            allowed="a history with a baseline of that name, or --base-ref REVISION, measured in this job",
            next_command="flashprof gate --base-ref main",
        )
    held = read_history(path)
    named = {item.cell: item for item in held.baselines if item.name == request.baseline}
    if not named:
        names = dict.fromkeys(item.name for item in held.baselines)
        raise UnknownNameError(
            "baseline", request.baseline, names, next_command=f"flashprof history baseline {request.baseline}"
        )
    found = {name: _launches(item, held.launches) for name, item in named.items()}
    nearest = min(found, key=lambda name: _num_unlike(found[name], known))
    return _baseline(named[nearest], found[nearest], path.absolute().parent)


def common(cell: Cell, known: Cell) -> Cell:
    """What of a launch's cell was known beforehand, so that the two can be held against each other."""
    return Cell({name: text for name, text in cell.facts.items() if name in known.facts})


def _launches(baseline: Baseline, launches: Sequence[HistoryLaunch]) -> list[HistoryLaunch]:
    return [
        launch
        for launch in launches
        if (launch.cell, launch.kind) == (baseline.cell, baseline.kind)
        and launch.is_point
        and launch.run_id in baseline.run_ids
        # Gates call their launches all alike: those that came after the name was given are no part of the level.
        and baseline.since <= launch.started <= baseline.at
    ]


def _num_unlike(launches: Sequence[HistoryLaunch], known: Cell) -> float:
    if not launches:
        return math.inf
    return len(common(Cell(launches[-1].facts), known).differences(known))


def _baseline(named: Baseline, launches: Sequence[HistoryLaunch], reports: Path) -> StoredBaseline:
    newest = launches[-1] if launches else None
    commit = newest.commit if newest is not None else ""
    told = ", ".join(part for part in (named.since[:10], commit[:SHORT]) if part)
    return StoredBaseline(
        label=f"{named.name} ({told})",
        commit="" if commit.endswith(CHANGES) else commit,
        cell=Cell(newest.facts if newest is not None else {}),
        launches=tuple(_stored(launch, reports) for launch in launches),
    )


def _stored(launch: HistoryLaunch, reports: Path) -> StoredLaunch:
    rate, startup_s = launch.log_tok_per_s, launch.startup_s
    assert rate is not None, "a point of a series has a rate"
    figures = LaunchFigures(
        startup_s=math.nan if startup_s is None else startup_s, phases=dict(launch.phases_ns_per_token)
    )
    folder = Path(launch.folder)
    # CI brings its reports back in another workspace each time: there, a launch of a gate is GATE/launches/RUN.
    moved = reports.joinpath(*folder.parts[-3 if launch.gate else -1 :])
    return StoredLaunch(
        run_id=launch.run_id,
        started=launch.started,
        places=(folder, moved) if launch.folder else (),
        log_tok_per_s=rate,
        figures=figures,
    )
