"""
A gate against launches that were measured earlier: of the same cell, source apart.

Head alone is launched, which takes half the time; what the machine has become since then is part of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from flashprof.app.course import Course
from flashprof.app.gate_baseline import StoredBaseline, common, read_baseline
from flashprof.app.gate_bisect import bisect_gate
from flashprof.app.gate_history import remember_gate
from flashprof.app.gate_launches import Tree, Trees, TreeStarts, find_head, make_starts
from flashprof.app.gate_localise import localise_stored
from flashprof.app.gate_metrics import log_of_less, read_figures, refuse_unrecorded, unit_of, worst_reason
from flashprof.app.gate_study import (
    about,
    beside_source,
    cell_here,
    failed_result,
    failures_of_this_call,
    judged_result,
    settings_of,
    study_request,
    study_result,
)
from flashprof.app.launches import StudyLaunches
from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.contracts.cell import Cell, check_allowed, refuse_unlike
from flashprof.contracts.comparison import Arm, Standing, Verdict
from flashprof.contracts.errors import FormatError, SubjectError, ToolError, UsageError
from flashprof.contracts.gate import TOK_PER_S, GateMode, GateRequest, GateResult, MetricVerdict
from flashprof.contracts.history import history_cell
from flashprof.contracts.study import MethodChoice
from flashprof.decide.actions import LaunchCold
from flashprof.decide.outcomes import HANDLING, Step
from flashprof.decide.plan import StudyPlan
from flashprof.decide.study import StudyState, replay
from flashprof.stats.compare import MIN_LAUNCHES
from flashprof.stats.margin import MarginRule, judge_launches
from flashprof.store.run_folder import read_manifest
from flashprof.store.study_folder import GATE, Question, StudyFolder, open_study, study_id

SITE = "this machine"


@dataclass(frozen=True, kw_only=True)
class _Known:
    """All that is known before anything starts."""

    baseline: StoredBaseline
    trees: Trees
    """Base is where the baseline was measured; it is not launched."""
    question: Question
    plan: StudyPlan
    cell: Cell


def plan_stored(request: GateRequest, ports: Ports) -> Sequence[str]:
    """What would be launched, as lines; starts nothing."""
    known = _survey(request, ports)
    folder = StudyFolder(request.reports / study_id(known.question, GATE), GATE)
    num_known = 0 if request.fresh else len(_state(known, folder).cold_launches)
    return (
        f"baseline  {known.baseline.label}: {len(known.baseline.launches)} launches",
        f"measure   launches of {known.trees.head.label}, {MIN_LAUNCHES} at least, until the answer is clear",
        f"reused    {num_known} launches that earlier calls have measured",
        f"total     at most {request.budget_s / 60:.3g} min",
        f"folder    {folder.path}",
    )


def gate_stored(request: GateRequest, ports: Ports, progress: SearchProgress) -> GateResult:
    """
    Launch head until it is clear whether it may land, or the budget is spent.

    Raises:
        UsageError: There is no such baseline, it has too few launches, or its cell is another.
    """
    known = _survey(request, ports)
    with open_study(request.reports, known.question, plan=asdict(known.plan), fresh=request.fresh, kind=GATE) as folder:
        starts = make_starts(request, known.trees, ports, folder.path)
        course = Course(folder, known.plan)
        study = study_request(request)
        launches = StudyLaunches(request=study, ports=ports, progress=progress, folder=folder.launches, starts=starts)
        try:
            result = _measured(request, known, course, launches, starts)
        except (SubjectError, ToolError) as error:
            result = failed_result(_about(known, course), course.state, error)
        result = remember_gate(folder, result, env=ports.env, cwd=ports.cwd)
    return bisect_gate(request, known.trees, result, ports, progress)


def _measured(
    request: GateRequest, known: _Known, course: Course, launches: StudyLaunches, starts: TreeStarts
) -> GateResult:
    course.begin_call(launches.request)
    is_built = False
    while (action := _next(request, known, course)) is not None:
        if not is_built:
            launches.progress.stage(f"preparing head: {known.trees.head.label}")
            starts.build(Arm.CANDIDATE)
            is_built = True
        launches.progress.note(f"launching head, {action.block}")
        course.learn(launches.cold(action))
        _refuse_other_cell(request, known, course.folder, action.run_id)
    launches.progress.stage("judging")
    result = localise_stored(request, known.baseline, launches, course, _result(request, known, course))
    if not result.is_interrupted:
        starts.clear_away()
    return result


def _survey(request: GateRequest, ports: Ports) -> _Known:
    top, head = find_head(request)
    cell = history_cell(cell_here(request, ports).facts)
    baseline = read_baseline(request, cell, ports.env)
    if len(baseline.launches) < MIN_LAUNCHES:
        raise UsageError(
            f"the baseline has too few launches to show how much they differ: {len(baseline.launches)}",
            offered=f"--baseline {request.baseline}",
            allowed=f"{MIN_LAUNCHES} launches or more of this cell",
            next_command="flashprof run, a few times more; or flashprof gate --base-ref main",
        )
    stored = common(baseline.cell, cell)
    check_allowed(request.allow, baseline.cell, cell)
    refuse_unlike(stored.differences(cell), under_test=(), allowed=request.allow)
    base = Tree(commit=baseline.commit, label=baseline.label)
    launched = ",".join(launch.run_id for launch in baseline.launches)
    return _Known(
        baseline=baseline,
        trees=Trees(top=top, base=base, head=head),
        question=Question(
            base={**cell.facts, "source.baseline": request.baseline, "source.launches": launched},
            candidate={**cell.facts, "source.commit": head.commit, "source.dirty": head.changes},
            method="gate",
            seed=request.subject.seed,
            settings=settings_of(request),
        ),
        plan=StudyPlan(
            base=baseline.label,
            candidate=head.label,
            method=MethodChoice.COLD,
            confirmed=(),
            rule=study_request(request).rule,
            seed=request.subject.seed,
            sites=(SITE,),
        ),
        cell=cell,
    )


def _refuse_other_cell(request: GateRequest, known: _Known, folder: StudyFolder, run_id: str) -> None:
    """What a launch says of itself must be alike, too: toggles, device, library versions."""
    with suppress(FormatError, KeyError):
        cell = history_cell(read_manifest(folder.launches / run_id)["cell_facts"])
        unlike = beside_source(known.baseline.cell.differences(cell))
        refuse_unlike(unlike, under_test=(), allowed=request.allow)


def _state(known: _Known, folder: StudyFolder) -> StudyState:
    return replay(known.plan, folder.observations())


def _next(request: GateRequest, known: _Known, course: Course) -> LaunchCold | None:
    """The next launch of head; None once the answer is clear, or there will be none."""
    state = course.state
    is_over = state.is_wrong or state.is_stopped or state.given_up or state.spent_s >= request.budget_s
    verdict = worst_reason(_metrics(request, known, course))[0]
    if is_over or verdict is not Verdict.INCONCLUSIVE:
        return None
    seen = {launch.block for launch in state.cold_launches} | state.skipped
    number = next(number for number in range(1, len(seen) + 2) if number not in seen)
    num_failures = sum(failure.block == number for failure in state.failures)
    return LaunchCold(arm=Arm.CANDIDATE, block=number, attempt=1 + num_failures, site=SITE)


def _metrics(request: GateRequest, known: _Known, course: Course) -> tuple[MetricVerdict, ...]:
    calm = [launch for launch in course.state.cold_launches if not launch.disturbances]
    names = [threshold.metric for threshold in request.thresholds]
    figures = [read_figures(course.folder.launches / launch.run_id, names) for launch in calm]
    rule = MarginRule(alpha=request.alpha, budget_s=request.budget_s, num_metrics=len(request.thresholds))
    stored = known.baseline.launches
    found = []
    for place, threshold in enumerate(request.thresholds):
        metric = threshold.metric
        if metric == TOK_PER_S:
            base, head = ([launch.log_tok_per_s for launch in side] for side in (stored, calm))
        else:
            refuse_unrecorded(metric, [launch.figures for launch in stored])
            base = [log_of_less(launch.figures.value(metric)) for launch in stored]
            head = [log_of_less(item.value(metric)) for item in figures]
        found.append(judge_launches(base, head, threshold, rule, place=place, unit=unit_of(metric)))
    return tuple(found)


def _result(request: GateRequest, known: _Known, course: Course) -> GateResult:
    state, told = course.state, _about(known, course)
    metrics = _metrics(request, known, course)
    tok_per_s = metrics[0].comparison
    assert tok_per_s is not None, "launches have a comparison"
    study = study_result(
        told,
        state,
        metrics,
        standing=Standing.SCREENED,
        comparisons=(tok_per_s,),
        failures=_failures(state),
        notes=tok_per_s.notes,
    )
    return judged_result(told, state, metrics, study, ())


def _failures(state: StudyState) -> tuple[str, ...]:
    """An interruption of an earlier call is none any more, since this call went on."""
    earlier = state.failures[: state.num_earlier_failures]
    kept = [failure for failure in earlier if HANDLING[failure.outcome].then is not Step.STOP_STUDY]
    return tuple(failure.sentence for failure in (*kept, *failures_of_this_call(state)))


def _about(known: _Known, course: Course) -> dict[str, Any]:
    return about(GateMode.STORED, course.folder, known.trees, known.cell)
