"""Where the culprit of a search costs its time: from the launches of the search, and those that explain it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flashprof.app.explain import Explainer, explain_id
from flashprof.app.judging import MachineJudge
from flashprof.app.localise import ArmWindows, Localised, Pick, calm_windows, localise, measure_window
from flashprof.app.search_subjects import Subjects
from flashprof.app.session import Ports
from flashprof.app.visits import VisitReading, visit_results
from flashprof.app.window_visits import window_results
from flashprof.contracts.comparison import Arm
from flashprof.contracts.events import EventLog
from flashprof.contracts.results import Window
from flashprof.contracts.search import Cause, SearchKind
from flashprof.decide.spaces import Space
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.journal import EXPLAINED, LAUNCHES

Side = Callable[[str], tuple[bool, bool]]
"""Whether a cell is base, or candidate."""


def explained_cells(space: Space, culprits: Sequence[Cause]) -> tuple[str, str]:
    """Base and candidate: a single culprit alone, else both ends."""
    if len(culprits) == 1:
        return space.alone(culprits[0]) or space.back(culprits[0]) or (space.good, space.bad)
    return space.good, space.bad


def explain_cells(explainer: Explainer, subjects: Subjects, cells: tuple[str, str], ports: Ports) -> tuple[str, ...]:
    """Launch both cells with samplers; returns why one could not be, which ends it."""
    for arm, cell in zip(Arm, cells, strict=True):
        built = subjects.build(cell)
        if not built.outcome.is_measurement:
            return (f"{subjects.label(cell)} could not be explained: {built.outcome}. {built.reason}",)
        why = explainer.explain(cell, arm, subjects.label(cell), lambda cell=cell: subjects.start(cell, ports))  # type: ignore[misc]
        if why:
            return (why,)
    return ()


def arms_of(space: Space, culprits: Sequence[Cause], kind: SearchKind) -> Side:
    """
    Which cells are base and candidate: the two that are explained, and of a single commit all that have it or not.

    Commits between good and bad differ by what is neutral, so each launch of the search tells. Other toggles do not.
    """
    base, candidate = explained_cells(space, culprits)
    if kind is not SearchKind.COMMITS or len(culprits) != 1:
        return lambda cell: (cell == base, cell == candidate)
    causes = [space.cause(term) for term in range(len(space.terms.names))]
    place = causes.index(culprits[0])

    def side(cell: str) -> tuple[bool, bool]:
        has_it = bool(space.rows([cell])[0, place])
        return not has_it, has_it

    return side


def localise_search(
    folder: Path, cells: tuple[str, str], side: Side, *, names: tuple[str, str], seed: int
) -> Localised | None:
    """
    Take the change between two cells apart.

    Args:
        folder: Of the search.
        cells: Ids of base and candidate, as they were explained.
        side: Which of both a measured cell tells of.
        names: For a person.
        seed: Of the redraws.

    Returns:
        None where a cell has fewer than two windows with events.
    """
    found = [*_folders(folder / LAUNCHES), *_folders(folder / EXPLAINED)]
    return localise(found, _pick(cells, side), names=names, seed=seed)


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*") if path.is_dir() and not path.name.startswith("."))


def _pick(cells: tuple[str, str], side: Side) -> Pick:
    explained = [explain_id(cell, arm) for arm, cell in zip(Arm, cells, strict=True)]

    def pick(folder: Path, logs: Sequence[EventLog]) -> ArmWindows:
        if folder.parent.name == EXPLAINED:
            windows = calm_windows(folder, logs) if folder.name in explained else []
            return (windows if folder.name == explained[0] else (), windows if folder.name == explained[1] else ())
        arms: tuple[list[Window], list[Window]] = ([], [])
        judge = MachineJudge(folder / COUNTERS_FILE)
        for reading in visit_results(logs, judge=judge) or window_results(logs, judge=judge):
            for arm, is_in in zip(arms, side(reading.cell), strict=True):
                if is_in and not reading.disturbances:
                    arm.append(_window(reading))
        return arms

    return pick


def _window(reading: VisitReading) -> Window:
    return measure_window(
        start_ns=reading.start_ns, end_ns=reading.end_ns, num_steps=reading.num_steps, num_tokens=reading.num_tokens
    )
