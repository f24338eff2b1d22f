"""A search's answer with where its culprits cost their time, and the launches that show in which frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flashprof.app.explain import Explainer
from flashprof.app.localise_search import arms_of, explain_cells, explained_cells, localise_search
from flashprof.app.search_launches import SearchLaunches
from flashprof.app.search_plan import Known
from flashprof.contracts.search import SearchResult
from flashprof.store.journal import EXPLAINED


def explained(result: SearchResult, launches: SearchLaunches, known: Known) -> SearchResult:
    """Launch the culprit's two cells, or both ends, with samplers, unless the user wants none, and localise."""
    request = launches.request
    if not _has_a_place(result) or result.is_interrupted:
        return result
    folder = launches.folder.parent
    notes: tuple[str, ...] = ()
    if request.explain:
        explainer = Explainer(folder=folder / EXPLAINED, windows=request.windows, progress=launches.progress)
        cells = explained_cells(known.plan.space, result.culprits)
        notes = explain_cells(explainer, known.subjects, cells, launches.ports)
    return localised(replace(result, notes=(*result.notes, *notes)), folder, known)


def localised(result: SearchResult, folder: Path, known: Known) -> SearchResult:
    """From what was measured; the answer as it is where nothing fell, or the launches have no events."""
    if not _has_a_place(result):
        return result
    cells = explained_cells(known.plan.space, result.culprits)
    names = (known.subjects.label(cells[0]), known.subjects.label(cells[1]))
    side = arms_of(known.plan.space, result.culprits, known.question.kind)
    found = localise_search(folder, cells, side, names=names, seed=known.plan.seed)
    return replace(result, localisation=found.localisation if found else None)


def _has_a_place(result: SearchResult) -> bool:
    """Whether there is something to localise: a named culprit, or a drop that is shown though nobody is named yet."""
    return bool(result.culprits) or (result.drop is not None and result.drop.high < 0)
