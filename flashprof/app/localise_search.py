"""Where the culprit of a search costs its time: from the launches of the search, and those that explain it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashprof.app.explain import FOLDER, Explainer, explain_id
from flashprof.app.judging import MachineJudge
from flashprof.app.localise import ArmWindows, Localised, Pick, calm_windows, localise, measure_window
from flashprof.app.search_subjects import Subjects
from flashprof.app.session import Ports
from flashprof.app.visits import visit_results
from flashprof.app.window_visits import window_results
from flashprof.contracts.events import EventLog
from flashprof.contracts.results import Window
from flashprof.contracts.search import Cause
from flashprof.decide.spaces import Space
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.journal import LAUNCHES


def explained_cells(space: Space, culprits: Sequence[Cause]) -> tuple[str, str]:
    """Base and candidate: a single culprit alone, else both ends."""
    if len(culprits) == 1:
        return space.alone(culprits[0]) or space.back(culprits[0]) or (space.good, space.bad)
    return space.good, space.bad


def explain_cells(explainer: Explainer, subjects: Subjects, cells: tuple[str, str], ports: Ports) -> tuple[str, ...]:
    """Launch both cells with samplers; returns why one could not be, which ends it."""
    for cell in cells:
        built = subjects.build(cell)
        if not built.outcome.is_measurement:
            return (f"{subjects.label(cell)} could not be explained: {built.outcome}. {built.reason}",)
        why = explainer.explain(cell, subjects.label(cell), lambda cell=cell: subjects.start(cell, ports))  # type: ignore[misc]
        if why:
            return (why,)
    return ()


def localise_search(folder: Path, cells: tuple[str, str], *, names: tuple[str, str], seed: int) -> Localised | None:
    """
    Take the change between two cells apart.

    Args:
        folder: Of the search.
        cells: Ids of base and candidate.
        names: For a person.
        seed: Of the redraws.

    Returns:
        None where a cell has fewer than two windows with events.
    """
    found = [*_folders(folder / LAUNCHES), *_folders(folder / FOLDER)]
    return localise(found, _pick(cells), names=names, seed=seed)


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*") if path.is_dir() and not path.name.startswith("."))


def _pick(cells: tuple[str, str]) -> Pick:
    explained = [explain_id(cell) for cell in cells]

    def pick(folder: Path, logs: Sequence[EventLog]) -> ArmWindows:
        if folder.parent.name == FOLDER:
            windows = calm_windows(folder, logs) if folder.name in explained else []
            return (windows if folder.name == explained[0] else (), windows if folder.name == explained[1] else ())
        base, candidate = (_of_cell(folder, logs, cell) for cell in cells)
        return base, candidate

    return pick


def _of_cell(folder: Path, logs: Sequence[EventLog], cell: str) -> list[Window]:
    judge = MachineJudge(folder / COUNTERS_FILE)
    readings = visit_results(logs, judge=judge) or window_results(logs, judge=judge)
    return [
        measure_window(
            start_ns=reading.start_ns, end_ns=reading.end_ns, num_steps=reading.num_steps, num_tokens=reading.num_tokens
        )
        for reading in readings
        if reading.cell == cell and not reading.disturbances
    ]
