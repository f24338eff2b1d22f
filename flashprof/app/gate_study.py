"""What both kinds of gates are as studies: the question, the plan's request, and why there is no answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from flashprof.app.cells import known_before_launch, survey
from flashprof.app.gate_launches import NAMES, Trees
from flashprof.app.search_result import common_facts
from flashprof.app.session import Ports
from flashprof.contracts.cell import Cell
from flashprof.contracts.comparison import DecisionRule, Verdict
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.experiment import Experiment, Output
from flashprof.contracts.gate import GateMode, GateRequest, GateResult
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import ArmSpec, CompareRequest, MethodChoice
from flashprof.decide.study import Failure, StudyState
from flashprof.stats.margin import tolerance
from flashprof.store.study_folder import StudyFolder


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
