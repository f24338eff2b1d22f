"""
`flashprof gate` without its command line: whether a change may land.

    base and head → gate folder (resumed or new) → pairs of launches until the answer is clear → where it lies → result

A gate is a study whose arms are trees: journal, course and launches are those of `flashprof compare`, the judge is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from flashprof.app.course import Course
from flashprof.app.earlier import Earlier, find_earlier
from flashprof.app.explain import Explainer
from flashprof.app.findings import add_phases, machine_notes, read_launches
from flashprof.app.gate_bisect import bisect_gate
from flashprof.app.gate_history import remember_gate
from flashprof.app.gate_launches import NAMES, Trees, TreeStarts, clear_aside, find_trees, make_starts
from flashprof.app.gate_metrics import GateJudge
from flashprof.app.gate_stored import gate_stored, plan_stored
from flashprof.app.gate_study import (
    about,
    beside_source,
    cell_here,
    failed_result,
    is_shown_slower,
    judged_result,
    localised_result,
    settings_of,
    study_request,
    study_result,
)
from flashprof.app.launches import StudyLaunches, sites_of
from flashprof.app.localise_study import explain_arms, localise_study
from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.app.study_costs import study_costs, study_noise
from flashprof.contracts.calibration import Calibration
from flashprof.contracts.cell import Cell
from flashprof.contracts.comparison import Arm, Method, Standing
from flashprof.contracts.errors import FormatError, SubjectError, ToolError
from flashprof.contracts.gate import EQUAL_PACE, GateMode, GateRequest, GateResult, Threshold
from flashprof.contracts.study import CompareRequest, MethodChoice
from flashprof.decide.actions import Finish, LaunchCold
from flashprof.decide.plan import StudyPlan, estimate
from flashprof.decide.study import replay
from flashprof.report.compare_sentences import change, span
from flashprof.stats.margin import MarginRule
from flashprof.store.calibration_file import find_calibration
from flashprof.store.journal import EXPLAINED
from flashprof.store.run_folder import read_manifest
from flashprof.store.study_folder import GATE, Question, StudyFolder, open_study, study_id

__all__ = ["gate", "plan"]

MAX_NAMED = 5
"""Facts that a note spells out."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    """All that is known before anything starts."""

    trees: Trees
    study: CompareRequest
    question: Question
    plan: StudyPlan
    cell: Cell
    """What both arms have in common."""
    earlier: Earlier | None
    calibration: Calibration | None


@dataclass(frozen=True, kw_only=True)
class _Making:
    """A gate under way."""

    request: GateRequest
    known: _Known
    course: Course
    judge: GateJudge
    launches: StudyLaunches
    starts: TreeStarts
    progress: SearchProgress


def plan(request: GateRequest, ports: Ports) -> Sequence[str]:
    """What would be launched and what it costs, as lines; starts nothing, and counts what earlier calls measured."""
    if request.baseline:
        return plan_stored(request, ports)
    known = _survey(request, ports)
    folder = StudyFolder(request.reports / study_id(known.question, GATE), GATE)
    state = replay(known.plan, () if request.fresh else folder.observations())
    costs, noise = study_costs(request.windows, known.earlier), study_noise(known.calibration)
    reused = {Method.COLD: len(state.cold_blocks)}
    told = estimate(known.plan, costs, noise, reused=reused, spent_s=state.spent_s)
    allowed = ", ".join(f"{item.metric} {100 * item.max_regression:g} %" for item in request.thresholds)
    notes = (f"note      {note}" for note in known.trees.notes)
    return (*told.lines, f"allowed   {allowed}", *notes, f"folder    {folder.path}")


def gate(request: GateRequest, ports: Ports, progress: SearchProgress) -> GateResult:
    """
    Measure base and head until it is clear whether head may land, or the budget spent; a second call goes on.

    Returns:
        What was found; a tree that does not run, or a disk that is full, is a result that says so, and no verdict.

    Raises:
        UsageError: There is no such revision, a metric is not recorded, the subject refuses what is asked of it, or
            another FlashProf works on the same gate.
    """
    if request.baseline:
        return gate_stored(request, ports, progress)
    known = _survey(request, ports)
    kept = asdict(known.plan)
    with open_study(request.reports, known.question, plan=kept, fresh=request.fresh, kind=GATE) as folder:
        making = _begin(request, known, folder, ports, progress)
        try:
            result = _measured(making)
        except (SubjectError, ToolError) as error:
            result = failed_result(_about(making), making.course.state, error)
        if not result.is_interrupted:
            _clear_away(making, progress)
        result = remember_gate(folder, result, env=ports.env, cwd=ports.cwd)
    return bisect_gate(request, known.trees, result, ports, progress)


def _survey(request: GateRequest, ports: Ports) -> _Known:
    trees = find_trees(request)
    here, study = cell_here(request, ports), study_request(request)
    cell = here.without("source")
    base = {**cell.facts, "source.commit": trees.base.commit}
    head = {**cell.facts, "source.commit": trees.head.commit, "source.dirty": trees.head.changes}
    return _Known(
        trees=trees,
        study=study,
        question=Question(
            base=base, candidate=head, method="gate", seed=request.subject.seed, settings=settings_of(request)
        ),
        plan=StudyPlan(
            base=trees.base.label,
            candidate=trees.head.label,
            method=MethodChoice.COLD,
            confirmed=(),
            rule=study.rule,
            seed=request.subject.seed,
            sites=sites_of(study, cell.facts.get("machine.host", "this machine")),
        ),
        cell=cell,
        earlier=find_earlier(request.reports, here),
        calibration=find_calibration(request.reports, here),
    )


def _begin(request: GateRequest, known: _Known, folder: StudyFolder, ports: Ports, progress: SearchProgress) -> _Making:
    pace = Threshold(metric=EQUAL_PACE, max_regression=request.thresholds[0].max_regression)
    thresholds = (request.thresholds[0], pace, *request.thresholds[1:])
    rule = MarginRule(alpha=request.alpha, budget_s=request.budget_s)
    judge = GateJudge(folder.launches, thresholds, rule)
    starts = make_starts(request, known.trees, ports, folder.path)
    launches = StudyLaunches(request=known.study, ports=ports, progress=progress, folder=folder.launches, starts=starts)
    course = Course(folder, known.plan, judge)
    return _Making(
        request=request,
        known=known,
        course=course,
        judge=judge,
        launches=launches,
        starts=starts,
        progress=progress,
    )


def _measured(making: _Making) -> GateResult:
    course, progress = making.course, making.progress
    course.begin_call(making.known.study)
    built: list[str] = []
    while not isinstance(action := course.next(), Finish):
        assert isinstance(action, LaunchCold), "trees cannot be switched in one launch"
        if not built:
            built = [_build(making, arm) for arm in Arm]
        progress.note(f"launching {NAMES[action.arm]}, pair {action.block}{_so_far(course)}")
        course.learn(making.launches.cold(action))
    progress.stage("judging")
    return _explained(making, _result(making, action, tuple(filter(None, built))))


def _build(making: _Making, arm: Arm) -> str:
    making.progress.stage(f"preparing {NAMES[arm]}: {making.known.trees.of(arm).label}")
    return making.starts.build(arm)


def _so_far(course: Course) -> str:
    if len(course.state.cold_blocks) < 2:
        return ""
    effect = course.judged(Method.COLD).effect
    return f"; so far {change(effect.estimate)} % tok/s ({span(effect, course.state.plan.rule.tolerance)})"


def _result(making: _Making, finish: Finish, notes: Sequence[str]) -> GateResult:
    course, told = making.course, _about(making)
    state, folder = course.state, course.folder
    metrics = making.judge.metrics(course.blocks, state.spent_s)
    measured = read_launches(course.blocks, folder.launches)
    tok_per_s = metrics[0].comparison
    study = study_result(
        told,
        state,
        metrics,
        standing=Standing.CONFIRMED,
        comparisons=add_phases([tok_per_s] if tok_per_s and course.blocks else [], course.blocks, measured),
        blocks=course.blocks,
        failures=finish.failures,
        notes=(*finish.notes, *machine_notes(measured)),
    )
    return judged_result(told, state, metrics, study, (*making.known.trees.notes, *notes, *_cell_notes(course)))


def _about(making: _Making) -> dict[str, Any]:
    known = making.known
    return about(GateMode.INTERLEAVED, making.course.folder, known.trees, known.cell)


def _explained(making: _Making, result: GateResult) -> GateResult:
    """With where the time goes, once it is shown that head is too slow."""
    study = result.study
    if study is None or not is_shown_slower(result):
        return result
    folder, names = making.course.folder, (study.base, study.candidate)
    notes: tuple[str, ...] = ()
    if making.request.explain:
        explainer = Explainer(folder=folder.path / EXPLAINED, windows=making.request.windows, progress=making.progress)
        notes = explain_arms(explainer, making.launches, names)
    found = localise_study(folder, study.blocks, names=names, seed=making.request.subject.seed)
    return localised_result(result, found.localisation if found else None, notes)


def _cell_notes(course: Course) -> tuple[str, ...]:
    """Facts in which launches of base and head differ besides their source: part of the change, and to be known."""
    cells: dict[Arm, Cell] = {}
    for launch in course.state.cold_launches:
        if launch.arm not in cells:
            with suppress(FormatError, KeyError):
                facts = read_manifest(course.folder.launches / launch.run_id)["cell_facts"]
                cells[launch.arm] = Cell(facts).without("source")
    if len(cells) < len(Arm):
        return ()
    unlike = beside_source(cells[Arm.BASE].differences(cells[Arm.CANDIDATE]))
    named = "; ".join(map(str, unlike[:MAX_NAMED]))
    more = f"; and {len(unlike) - MAX_NAMED} more" if len(unlike) > MAX_NAMED else ""
    return (f"base and head differ in more than their source: {named}{more}",) if unlike else ()


def _clear_away(making: _Making, progress: SearchProgress) -> None:
    try:
        making.starts.clear_away()
    except ToolError as error:
        # The answer stands.
        progress.note(f"{error.what}: {error.where}")
    clear_aside(making.course.folder.path)
