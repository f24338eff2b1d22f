"""From a search's last thought to what is printed and kept: SearchResult, result.json, report.md."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from flashprof.app.search_plan import Known
from flashprof.contracts.cell import Cell
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import CellInfo, Reading, SearchResult
from flashprof.decide.search_actions import Finish
from flashprof.decide.search_focus import find_search_focus
from flashprof.decide.search_observations import Built, SearchObservation
from flashprof.decide.search_state import SearchState
from flashprof.report.bisect_console import render_search
from flashprof.report.bisect_markdown import render_search_markdown
from flashprof.store.search_folder import SearchFolder
from flashprof.store.search_result import FILE, search_to_json

PLAIN_WIDTH = 100


def make_result(finish: Finish, state: SearchState, known: Known, folder: SearchFolder) -> SearchResult:
    """All that is known of a search."""
    space, readings = state.plan.space, state.readings
    failures = state.failures[state.num_earlier_failures :]
    focus = find_search_focus(state)
    return SearchResult(
        search=folder.name,
        kind=known.question.kind,
        good=known.subjects.label(space.good),
        bad=known.subjects.label(space.bad),
        cell=common_facts(known.cell),
        verdict=finish.verdict,
        standing=finish.standing,
        reason=finish.reason,
        drop=finish.drop,
        culprits=finish.culprits,
        gains=finish.gains,
        beliefs=finish.beliefs,
        proofs=finish.proofs,
        cells=_cells(state, known),
        num_readings=len(readings),
        num_left_out=sum(bool(reading.disturbances) for reading in readings),
        num_launches=len(state.group_of),
        num_builds=state.num_builds,
        spent_s=finish.spent_s,
        num_reused=finish.num_reused,
        to_resolve_s=finish.to_resolve_s,
        is_interrupted=any(failure.outcome is Outcome.INTERRUPTED for failure in failures),
        failures=finish.failures,
        notes=(*finish.notes, *known.notes, *_build_notes(folder.observations()), *_disturbance_notes(readings)),
        labels=known.subjects.members(),
        focus=focus.phases if focus else (),
        paths=(("search", str(folder.path)), ("report", str(folder.path / "report.md"))),
    )


def publish(folder: SearchFolder, result: SearchResult) -> SearchResult:
    """Write it down; each file whole or not at all."""
    folder.write_text(FILE, search_to_json(result))
    folder.write_text("report.md", render_search_markdown(result))
    folder.write_text("report.txt", render_search(result, color=False, width=PLAIN_WIDTH))
    return result


def common_facts(cell: Cell) -> dict[str, str]:
    """The cell's line."""
    facts = cell.facts
    named = {
        "preset": facts.get("workload.preset", ""),
        "topology": facts.get("topology", ""),
        "seed": facts.get("workload.seed", ""),
        "command": facts.get("workload.command", ""),
        "machine": f"{facts.get('machine.host', 'unknown host')}, {facts.get('machine.num_cores', '?')} cores",
    }
    return {name: text for name, text in named.items() if text}


def _cells(state: SearchState, known: Known) -> tuple[CellInfo, ...]:
    by_cell: defaultdict[str, list[Reading]] = defaultdict(list)
    for reading in state.readings:
        by_cell[reading.cell].append(reading)
    space = state.plan.space
    failed = [*state.user_skips, *(place.removeprefix("cell ") for place in state.skipped)]
    ends = [cell for cell in (space.good, space.bad) if cell in by_cell or cell in failed]
    others = [cell for cell in (*by_cell, *failed) if cell not in ends]
    return tuple(_info(cell, by_cell[cell], state, known) for cell in dict.fromkeys([*ends, *others]))


def _info(cell: str, readings: Sequence[Reading], state: SearchState, known: Known) -> CellInfo:
    clean = [reading.log_tok_per_s for reading in readings if not reading.disturbances]
    is_cell = bool(readings) or cell in state.plan.space.candidates(())
    return CellInfo(
        cell=cell,
        label=known.subjects.label(cell) if is_cell else cell,
        num_launches=len({reading.launch for reading in readings}),
        num_readings=len(readings),
        tok_per_s=math.exp(fmean(clean)) if clean else None,
        outcome=state.why_skipped(cell) if is_cell else "left out",
    )


def _build_notes(observations: Sequence[SearchObservation]) -> tuple[str, ...]:
    """Of the environments of all calls."""
    return tuple(dict.fromkeys(fact.note for fact in observations if isinstance(fact, Built) and fact.note))


def _disturbance_notes(readings: Sequence[Reading]) -> tuple[str, ...]:
    reasons = dict.fromkeys(reason for reading in readings for reason in reading.disturbances)
    num = sum(bool(reading.disturbances) for reading in readings)
    return (f"{num} of {len(readings)} windows were disturbed and are left out: {'; '.join(reasons)}",) if num else ()
