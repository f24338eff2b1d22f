"""What `flashprof bisect --dry-run` says: what would be measured first, and what it will cost."""

from __future__ import annotations

from pathlib import Path

from flashprof.app.search_plan import Known
from flashprof.contracts.search import SearchKind
from flashprof.decide.search import think
from flashprof.decide.search_actions import Finish
from flashprof.decide.search_estimate import cell_s, estimate
from flashprof.decide.search_state import SearchState


def plan_lines(known: Known, state: SearchState, folder: Path, *, explains: bool) -> tuple[str, ...]:
    """
    The plan as lines: a name of up to eight letters, two spaces, a sentence.

    Args:
        known: Of the search.
        state: What earlier calls have measured.
        folder: Of the search.
        explains: Whether launches with samplers show in which frames a culprit costs its time.
    """
    space, label = known.plan.space, known.subjects.label
    return (
        f"good      {label(space.good)}",
        f"bad       {label(space.bad)}",
        f"causes    {_causes(known)}",
        f"cells     {_cells(known)}",
        f"first     {_first(known, state)}",
        f"cost      {_cost(known)}",
        *([f"explain   {_explain(known)}"] if explains else []),
        f"costs     from {known.costs_source or 'guesses: no run of this cell is known (flashprof run)'}",
        f"noise     from {known.noise_source or 'a guess (flashprof calibrate measures it)'}",
        *(f"note      {note}" for note in known.notes),
        f"have      {len(state.readings)} windows of earlier calls",
        f"folder    {folder}",
    )


def _causes(known: Known) -> str:
    members = known.subjects.members()
    if known.question.kind is SearchKind.COMMITS:
        return f"{len(members) - 1} commits"
    num_pairs = len(members) * (len(members) - 1) // 2
    pairs = f"; and {num_pairs} pair{'s' * (num_pairs > 1)} of them" if num_pairs else ""
    return ", ".join(members.values()) + pairs


def _cells(known: Known) -> str:
    costs = known.plan.costs
    if known.plan.is_hot:
        return f"switched in one launch, {costs.window_s:.1f} s a window and {costs.switch_s:.1f} s a switch"
    return f"a launch each, {cell_s(known.plan) / 60:.1f} min"


def _first(known: Known, state: SearchState) -> str:
    action = think(state).action
    if isinstance(action, Finish):
        return f"nothing: {action.reason}"
    return f"{known.subjects.label(action.cell)} ({action.why})"


def _explain(known: Known) -> str:
    minutes = 2 * cell_s(known.plan) / 60
    return f"2 launches with samplers name the frames of a culprit: {minutes:.1f} min on top (--no-explain)"


def _cost(known: Known) -> str:
    told = estimate(known.plan)
    total_min = (told.search_s + told.proof_s + told.confirm_s) / 60
    parts = f"{told.search_s / 60:.1f} min of search, {told.proof_s / 60:.1f} min of proof"
    confirm = f", {told.confirm_s / 60:.1f} min of launches that confirm" if told.confirm_s else ""
    budget_min = known.plan.rule.budget_s / 60
    return f"about {total_min:.0f} min for one culprit: {parts}{confirm}; at most {budget_min:.0f} min (--budget)"
