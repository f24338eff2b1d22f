"""What both kinds of gates are as studies: the question, the plan's request, the result, and why there is none."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from flashprof.app.cells import known_before_launch, survey
from flashprof.app.gate_launches import NAMES, Trees
from flashprof.app.gate_metrics import worst_reason
from flashprof.app.search_result import common_facts
from flashprof.app.session import Ports
from flashprof.contracts.cell import Cell, Difference
from flashprof.contracts.comparison import DecisionRule, StudyResult, Verdict
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.experiment import Experiment, Output
from flashprof.contracts.gate import GateMode, GateRequest, GateResult, MetricVerdict
from flashprof.contracts.localisation import Localisation
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import ArmSpec, CompareRequest, MethodChoice
from flashprof.decide.study import Failure, StudyState
from flashprof.stats.margin import tolerance
from flashprof.store.study_folder import StudyFolder

OF_A_TREE = ("workload.cwd", "workload.file.[!/]*")
"""
Facts that are each tree's own, as its source is: where it lies, and the files in it that a declaration names. Those
that are named by their full path are in no tree.
"""


def cell_here(request: GateRequest, ports: Ports) -> Cell:
    """The cell of a launch in the user's own tree, as far as it is known beforehand."""
    experiment = Experiment(
        subject=request.subject, windows=request.windows, output=Output(reports=request.reports, run_id="gate")
    )
    return known_before_launch(experiment, survey(experiment, ports.env, ports.cwd)).without("toggles")


def study_request(request: GateRequest) -> CompareRequest:
    """The gate as a comparison of cold launches; its arms differ in no toggle."""
    arm = ArmSpec(expression=request.subject.toggles, values={})
    return CompareRequest(
        base=arm,
        candidate=arm,
        subject=request.subject,
        windows=request.windows,
        rule=DecisionRule(alpha=request.alpha, tolerance=tolerance(request.thresholds[0]), budget_s=request.budget_s),
        method=MethodChoice.COLD,
        explain=request.explain,
        allow=request.allow,
        gpu_sets=request.gpu_sets,
        fresh=request.fresh,
        reports=request.reports,
    )


def settings_of(request: GateRequest) -> Mapping[str, str]:
    """What makes launches alike; thresholds and budgets may change from call to call."""
    windows = request.windows
    return {
        "num_measure": str(windows.num_measure),
        "measure_s": f"{windows.measure_s:g}",
        "gpu_sets": " ".join(",".join(map(str, numbers)) for numbers in request.gpu_sets),
        "setup": request.setup,
        "command": shlex.join(request.command),
        "toggles": request.subject.toggles,
    }


def beside_source(differences: Sequence[Difference]) -> list[Difference]:
    """Those that two trees need not have."""
    return [item for item in differences if not any(fnmatchcase(item.name, pattern) for pattern in OF_A_TREE)]


def failures_of_this_call(state: StudyState) -> Sequence[Failure]:
    """Those of earlier calls were tried again."""
    return state.failures[state.num_earlier_failures :]


def is_interrupted(state: StudyState) -> bool:
    """Whether the user stopped this call."""
    return any(failure.outcome is Outcome.INTERRUPTED for failure in failures_of_this_call(state))


def broken(state: StudyState) -> str:
    """Why there is no answer, where launches failed; empty where it is only open, or was stopped."""
    recent = failures_of_this_call(state)
    if is_interrupted(state):
        return ""
    if not recent:
        return "launches gave wrong numbers: nothing is compared" if state.is_wrong else ""
    last = recent[-1]
    assert last.arm is not None, "a gate has no launch of both arms"
    name = NAMES[last.arm]
    if last.arm in state.given_up and not state.is_wrong:
        others = {launch.arm for launch in state.cold_launches} - {last.arm}
        beside = "".join(f", while {NAMES[other]} does" for other in others)
        return f"{name} does not run{beside}: {last.sentence}"
    if state.given_up or state.is_wrong or state.is_stopped or not state.cold_launches:
        return f"{name} could not be measured: {last.sentence}"
    return ""


def about(mode: GateMode, folder: StudyFolder, trees: Trees, cell: Cell) -> dict[str, Any]:
    """What every result of a gate says, whatever came of it."""
    return {
        "gate": folder.name,
        "mode": mode,
        "base": trees.base.label,
        "head": trees.head.label,
        "base_commit": trees.base.commit,
        "head_commit": trees.head.commit,
        "cell": common_facts(cell),
        "paths": (("gate", str(folder.path)), ("report", str(folder.path / "report.md"))),
    }


def study_result(
    told: Mapping[str, Any], state: StudyState, metrics: Sequence[MetricVerdict], **fields: Any
) -> StudyResult:
    """
    The launches of a gate as a study has them; tok/s is what it is about.

    Args:
        told: From `about`.
        state: What is known.
        metrics: That of tok/s first.
        fields: Of the study, where the two kinds of gates differ.
    """
    return StudyResult(
        study=told["gate"],
        base=told["base"],
        candidate=told["head"],
        cell=told["cell"],
        verdict=metrics[0].verdict,
        spent_s=state.spent_s,
        num_reused=state.num_reused,
        is_interrupted=is_interrupted(state),
        **fields,
    )


def judged_result(
    told: Mapping[str, Any],
    state: StudyState,
    metrics: tuple[MetricVerdict, ...],
    study: StudyResult,
    notes: Sequence[str],
) -> GateResult:
    """
    A gate whose launches have been judged.

    Args:
        told: From `about`.
        state: What is known.
        metrics: Each against its threshold.
        study: From `study_result`.
        notes: What to know besides what the study's notes say.
    """
    verdict, why = worst_reason(metrics)
    why_broken = broken(state) if verdict is Verdict.INCONCLUSIVE else ""
    return GateResult(
        **told,
        verdict=verdict,
        reason=why_broken or why,
        metrics=metrics,
        study=study,
        spent_s=state.spent_s,
        is_failed=bool(why_broken),
        is_interrupted=study.is_interrupted,
        failures=study.failures,
        notes=(*notes, *study.notes),
    )


def is_shown_slower(result: GateResult) -> bool:
    """Whether there is something to look for: which part of a step, which commit."""
    return result.verdict is Verdict.REGRESSION and not result.is_interrupted


def localised_result(result: GateResult, localisation: Localisation | None, notes: Sequence[str]) -> GateResult:
    """The same with where the time goes, and why that is not known."""
    study = None if result.study is None else replace(result.study, localisation=localisation)
    return replace(result, study=study, localisation=localisation, notes=(*result.notes, *notes))


def failed_result(told: Mapping[str, Any], state: StudyState, error: FlashProfError) -> GateResult:
    """
    A gate that something stopped; what was measured before is kept in its folder.

    Args:
        told: From `about`.
        state: What is known.
        error: What stopped it.
    """
    return GateResult(
        **told,
        verdict=Verdict.INCONCLUSIVE,
        reason=error.what,
        spent_s=state.spent_s,
        is_failed=True,
        failures=(*(failure.sentence for failure in state.failures), " | ".join(error.lines())),
    )
