"""
`flashprof bisect` without its command line: one question, one search folder, one answer with its proof.

    question → search folder (resumed or new) → measure what the course wants, until it has an answer → result
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from flashprof.app.declared_commits import refuse_changed_declaration
from flashprof.app.here import here
from flashprof.app.search_course import SearchCourse
from flashprof.app.search_dry_run import plan_lines
from flashprof.app.search_explained import explained, localised
from flashprof.app.search_launches import SearchLaunches
from flashprof.app.search_names import find_cell
from flashprof.app.search_plan import WORKTREES, Known, prepare
from flashprof.app.search_progress import SearchProgress
from flashprof.app.search_result import make_result, publish
from flashprof.app.session import Ports
from flashprof.app.wiring import wire_quiet
from flashprof.contracts.errors import ToolError, UsageError
from flashprof.contracts.search import Reading, SearchResult
from flashprof.contracts.search_request import BisectRequest, request_from_json, request_to_json
from flashprof.decide.search import think
from flashprof.decide.search_actions import Build, Finish, Visit
from flashprof.decide.search_observations import Measured, SearchObservation, Undone, UserSkipped
from flashprof.decide.search_state import replay
from flashprof.store.search_folder import SearchFolder, append_outside, open_search, read_search, search_id

__all__ = ["bisect", "here", "plan", "skip", "status", "undo"]


def plan(request: BisectRequest, ports: Ports) -> Sequence[str]:
    """What would be measured first and what it costs, as lines; counts what earlier calls measured, starts nothing."""
    known = prepare(request, ports)
    folder = SearchFolder(request.reports / search_id(known.question))
    observations = () if request.fresh or not folder.path.exists() else folder.observations()
    return plan_lines(known, replay(known.plan, observations), folder.path, explains=request.explain)


def bisect(request: BisectRequest, ports: Ports, progress: SearchProgress) -> SearchResult:
    """
    Search until the culprits are proved or the budget is spent; a second call goes on where one stopped.

    Raises:
        UsageError: The subject refuses what is asked of it, its declaration has changed, or another FlashProf works on
            the same question.
        ToolError: The disk is full; what was measured is kept.
    """
    refuse_changed_declaration(request.subject, ports)
    known = prepare(request, ports)
    told = {"rule": asdict(request.rule), "costs": asdict(known.plan.costs), "noise": asdict(known.plan.noise)}
    kept = request_to_json(request)
    with open_search(request.reports, known.question, plan=told, request=kept, fresh=request.fresh) as folder:
        course = SearchCourse(folder, known.plan, known.subjects)
        course.begin_call()
        launches = SearchLaunches(
            request=request, subjects=known.subjects, ports=ports, progress=progress, folder=folder.launches
        )
        while not isinstance(action := course.thought.action, Finish):
            _perform(action, course, launches, progress)
        progress.look(course.look())
        result = publish(folder, explained(make_result(action, course.state, known, folder), launches, known))
        if not result.is_interrupted:
            _clear_away(known, folder, progress)
        return result


def status(reports: Path, name: str) -> SearchResult:
    """What a search knows by now; measures nothing, and does not disturb one that is under way."""
    known, observations = _stored(reports, name)
    folder = SearchFolder(reports / name)
    state = replay(known.plan, observations)
    action = think(state).action
    if isinstance(action, Finish):
        return localised(make_result(action, state, known, folder), folder.path, known)
    # What would be answered if it ended here.
    finish = think(replace(state, is_stopped=True)).action
    assert isinstance(finish, Finish), "a search that is stopped has an answer"
    reason = f"not at its end yet; next: {known.subjects.label(action.cell)} ({action.why})"
    return localised(make_result(replace(finish, reason=reason), state, known, folder), folder.path, known)


def undo(reports: Path, name: str, num: int) -> SearchResult:
    """
    Take back the last readings or cells left out.

    Raises:
        UsageError: A FlashProf works on the search, or it does not have so many: what is taken back is gone.
    """
    known, observations = _stored(reports, name)
    most = len(replay(known.plan, observations).entries)
    if num > most:
        raise UsageError(
            "the search has fewer readings and cells left out than are to be taken back",
            where=str(reports / name),
            offered=str(num),
            allowed=f"1 to {most}" if most else "nothing: there are none",
            next_command=f"flashprof bisect log --search {name}",
        )
    return _say(reports, name, Undone(num=num))


def skip(reports: Path, name: str, cell: str) -> SearchResult:
    """
    Leave a cell out.

    Args:
        reports: Where the search lies.
        name: Of its folder.
        cell: Its id, a toggle expression, or a commit as git names it.

    Raises:
        UnknownNameError: The search has no such cell.
        UsageError: A FlashProf works on the search, or the cell is one of its ends.
    """
    known, _ = _stored(reports, name)
    return _say(reports, name, UserSkipped(cell=find_cell(known, cell)))


def _say(reports: Path, name: str, observation: SearchObservation) -> SearchResult:
    append_outside(reports / name, observation)
    return status(reports, name)


def _stored(reports: Path, name: str) -> tuple[Known, tuple[SearchObservation, ...]]:
    stored = read_search(reports / name)
    request = replace(request_from_json(stored.request), reports=reports)
    ports = wire_quiet(request.subject, request.windows, env=os.environ, cwd=Path.cwd(), declared=request.subject_file)
    return prepare(request, ports), stored.observations


def _clear_away(known: Known, folder: SearchFolder, progress: SearchProgress) -> None:
    """Worktrees, also those that `--fresh` has put aside: their turn comes with the first search that ends."""
    try:
        known.subjects.clear_away()
    except ToolError as error:
        # The answer stands.
        progress.note(f"{error.what}: {error.where}")
    for aside in folder.path.parent.glob(f"{folder.name}.old-*/{WORKTREES}"):
        shutil.rmtree(aside, ignore_errors=True)


def _perform(action: Visit | Build, course: SearchCourse, launches: SearchLaunches, progress: SearchProgress) -> None:
    progress.look(course.look())
    if isinstance(action, Build):
        progress.stage(f"building {launches.subjects.label(action.cell)}")
        course.learn(launches.subjects.build(action.cell))
        return

    def on_reading(reading: Reading) -> Visit | None:
        course.learn(Measured(reading=reading))
        progress.look(course.look())
        following = course.thought.action
        return following if isinstance(following, Visit) and following.run_id == action.run_id else None

    course.learn(launches.serve(action, on_reading))
