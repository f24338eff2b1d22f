"""
`flashprof compare` without its command line: one question, one study folder, one answer.

    question → study folder (resumed or new) → measure what the course wants, until it has an answer → results
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from flashprof.app.cells import known_before_launch, survey, toggle_facts
from flashprof.app.course import Course
from flashprof.app.earlier import Earlier, find_earlier
from flashprof.app.existing import compare_runs
from flashprof.app.explain import Explainer
from flashprof.app.findings import add_phases, machine_notes, read_launches
from flashprof.app.launches import StudyLaunches, first_env, sites_of
from flashprof.app.localise_study import explain_arms, localise_study
from flashprof.app.progress import Progress
from flashprof.app.session import Ports
from flashprof.app.study_costs import study_costs, study_noise
from flashprof.contracts.calibration import Calibration
from flashprof.contracts.cell import Cell
from flashprof.contracts.comparison import Block, Method, StudyResult, Verdict
from flashprof.contracts.experiment import Experiment, Output
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import ArmSpec, CompareRequest
from flashprof.decide.actions import Finish, LaunchCold, MeasureHot
from flashprof.decide.observations import HotBlock
from flashprof.decide.plan import StudyPlan, estimate
from flashprof.decide.study import replay
from flashprof.report.compare_console import render_study
from flashprof.report.compare_markdown import render_study_markdown
from flashprof.report.compare_sentences import change, span
from flashprof.store.calibration_file import find_calibration
from flashprof.store.journal import EXPLAINED
from flashprof.store.study_folder import Question, StudyFolder, open_study, study_id
from flashprof.store.study_result import study_to_json

__all__ = ["compare", "compare_runs", "plan"]

PLAIN_WIDTH = 100
TOLD_BLOCKS = 16
"""Progress tells of blocks 1, 2, 4, 8, and then of every so many: they come every few seconds, for minutes."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    """All that is known before anything starts."""

    question: Question
    plan: StudyPlan
    cell: Cell
    """Of the base."""
    earlier: Earlier | None
    calibration: Calibration | None


def plan(request: CompareRequest, ports: Ports) -> Sequence[str]:
    """What would be launched and what it costs, as lines; starts nothing, and counts what earlier calls measured."""
    known = _survey(request, ports)
    folder = StudyFolder(request.reports / study_id(known.question))
    state = replay(known.plan, () if request.fresh else folder.observations())
    reused = {method: len(state.blocks(method)) for method in (Method.HOT, Method.COLD)}
    costs, noise = study_costs(request.windows, known.earlier), study_noise(known.calibration)
    told = estimate(known.plan, costs, noise, reused=reused, spent_s=state.spent_s)
    return (*told.lines, f"folder    {folder.path}")


def compare(request: CompareRequest, ports: Ports, progress: Progress) -> StudyResult:
    """
    Measure both arms until the answer is clear or the budget spent; a second call goes on where one stopped.

    Raises:
        UsageError: The subject refuses what is asked of it, or another FlashProf works on the same question.
        ToolError: The disk is full; what was measured is kept.
    """
    known = _survey(request, ports)
    kept = asdict(known.plan)
    with open_study(request.reports, known.question, plan=kept, fresh=request.fresh) as folder:
        course = Course(folder, known.plan)
        course.begin_call(request)
        launches = StudyLaunches(request=request, ports=ports, progress=progress, folder=folder.launches)
        while not isinstance(action := course.next(), Finish):
            _perform(action, course, launches, progress)
        progress.stage("comparing")
        return _publish(folder, _explained(_result(action, course, known), course, launches))


def _perform(action: MeasureHot | LaunchCold, course: Course, launches: StudyLaunches, progress: Progress) -> None:
    if isinstance(action, LaunchCold):
        progress.note(f"launching the {action.arm} of pair {action.block}{_so_far(course, Method.COLD)}")
        course.learn(launches.cold(action))
        return

    def on_block(block: Block, launch_s: float) -> bool:
        course.learn(HotBlock(block=block, launch_s=launch_s))
        if block.number % TOLD_BLOCKS == 0 or block.number in (1, 2, 4, 8):
            progress.stage(f"block {block.number} is measured{_so_far(course, Method.HOT)}")
        return isinstance(course.next(), MeasureHot)

    course.learn(launches.hot(action, num_windows=course.state.plan.num_windows, on_block=on_block))


def _so_far(course: Course, method: Method) -> str:
    if len(course.state.blocks(method)) < 2:
        return ""
    effect = course.judged(method).effect
    return f"; so far {change(effect.estimate)} % ({span(effect, course.state.plan.rule.tolerance)})"


def _survey(request: CompareRequest, ports: Ports) -> _Known:
    shared = _known_facts(request, ports)
    base, candidate = (_with_toggles(shared, arm) for arm in (request.base, request.candidate))
    host = base.facts.get("machine.host", "this machine")
    return _Known(
        question=Question(
            base=base.facts,
            candidate=candidate.facts,
            method=str(request.method),
            seed=request.subject.seed,
            settings=_settings(request),
        ),
        plan=StudyPlan(
            base=request.base.expression,
            candidate=request.candidate.expression,
            method=request.method,
            cold_toggles=request.cold_toggles,
            confirmed=(Verdict.REGRESSION,) if request.confirm else (),
            rule=request.rule,
            seed=request.subject.seed,
            sites=sites_of(request, host),
        ),
        cell=base,
        earlier=find_earlier(request.reports, base),
        calibration=find_calibration(request.reports, base),
    )


def _known_facts(request: CompareRequest, ports: Ports) -> Cell:
    """Of both arms: all but the toggles."""
    experiment = Experiment(
        subject=request.subject, windows=request.windows, output=Output(reports=request.reports, run_id="compare")
    )
    machine = survey(experiment, first_env(request, ports.env), ports.cwd)
    return known_before_launch(experiment, machine).without("toggles")


def _with_toggles(shared: Cell, arm: ArmSpec) -> Cell:
    return Cell({**shared.facts, **toggle_facts(arm.values)})


def _settings(request: CompareRequest) -> Mapping[str, str]:
    """What makes blocks alike; how long to wait for what does not."""
    windows = request.windows
    sites = " ".join(",".join(map(str, numbers)) for numbers in request.gpu_sets)
    return {"num_measure": str(windows.num_measure), "measure_s": f"{windows.measure_s:g}", "gpu_sets": sites}


def _result(finish: Finish, course: Course, known: _Known) -> StudyResult:
    folder = course.folder
    state = course.state
    is_interrupted = any(
        failure.outcome is Outcome.INTERRUPTED for failure in state.failures[state.num_earlier_failures :]
    )
    measured = read_launches(course.blocks, folder.launches)
    return StudyResult(
        study=folder.name,
        base=known.plan.base,
        candidate=known.plan.candidate,
        cell=_cell(known.cell),
        verdict=finish.verdict,
        standing=finish.standing,
        comparisons=add_phases(finish.comparisons, course.blocks, measured),
        spent_s=finish.spent_s,
        num_reused=finish.num_reused,
        blocks=course.blocks,
        is_interrupted=is_interrupted,
        failures=finish.failures,
        notes=(*finish.notes, *machine_notes(measured)),
        paths=(("study", str(folder.path)), ("report", str(folder.path / "report.md"))),
    )


def _explained(result: StudyResult, course: Course, launches: StudyLaunches) -> StudyResult:
    """With where the difference lies, where there is one, and the launches that show a regression."""
    if result.is_interrupted or not _is_clear(result):
        return result
    request, folder = launches.request, course.folder
    notes: tuple[str, ...] = ()
    if request.explain and result.verdict is Verdict.REGRESSION:
        explainer = Explainer(folder=folder.path / EXPLAINED, windows=request.windows, progress=launches.progress)
        notes = explain_arms(explainer, launches, (result.base, result.candidate))
    names = (result.base, result.candidate)
    found = localise_study(folder, result.blocks, names=names, seed=request.subject.seed)
    localisation = found.localisation if found else None
    return replace(result, localisation=localisation, notes=(*result.notes, *notes))


def _is_clear(result: StudyResult) -> bool:
    """Whether the arms differ, either way: what noise is made of need not be taken apart."""
    return any(item.deciding.high < 0 or item.deciding.low > 0 for item in result.comparisons)


def _cell(cell: Cell) -> dict[str, str]:
    facts = cell.facts
    named = {
        "preset": facts.get("workload.preset", ""),
        "command": facts.get("workload.command", ""),
        "topology": facts.get("topology", ""),
        "seed": facts.get("workload.seed", ""),
        "machine": f"{facts.get('machine.host', 'unknown host')}, {facts.get('machine.num_cores', '?')} cores",
    }
    return {name: text for name, text in named.items() if text}


def _publish(folder: StudyFolder, result: StudyResult) -> StudyResult:
    folder.write_text("comparison.json", study_to_json(result))
    folder.write_text("report.md", render_study_markdown(result))
    folder.write_text("report.txt", render_study(result, color=False, width=PLAIN_WIDTH))
    verdict = {"verdict": result.verdict, "standing": result.standing, "comparison": "comparison.json"}
    folder.write_text("verdict.json", json.dumps(verdict, indent=2) + "\n")
    return result
