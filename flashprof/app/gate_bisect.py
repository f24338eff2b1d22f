"""From a gate that failed to the commit: a bisection of base..head, with what is left of the budget."""

from __future__ import annotations

from dataclasses import replace

from flashprof.app.gate_launches import Trees
from flashprof.app.gate_study import is_shown_slower
from flashprof.app.search import bisect
from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.gate import GateRequest, GateResult
from flashprof.contracts.search import SearchKind, SearchResult, SearchRule
from flashprof.contracts.search_request import BisectRequest

LEAST_S = 60.0
"""Less than this holds no pair of launches."""


def bisect_gate(
    request: GateRequest, trees: Trees, result: GateResult, ports: Ports, progress: SearchProgress
) -> GateResult:
    """
    Name the commit that made head slow, where that is asked for and head is.

    Args:
        request: Of the gate.
        trees: Its arms.
        result: What it found.
        ports: The world outside.
        progress: Told what happens.

    Returns:
        The result with the culprit, if one was proved; else with a note that says why not. The verdict stays.
    """
    if not request.bisect or not is_shown_slower(result):
        return result
    budget_s = request.bisect_budget_s or request.budget_s - result.spent_s
    refusal = _refusal(trees, budget_s)
    if refusal:
        return _noted(result, f"not bisected: {refusal}")
    try:
        found = bisect(_search_request(request, trees, budget_s), ports, progress)
    except FlashProfError as error:
        # The gate's own answer stands.
        return _noted(result, f"not bisected: {error.what}")
    is_proved = found.verdict is Verdict.REGRESSION and len(found.culprits) == 1
    noted = _noted(result, f"bisected for {found.spent_s:.0f} s ({found.search}): {_told(found)}")
    return replace(
        noted,
        culprit=found.culprits[0].members[0] if is_proved else "",
        spent_s=result.spent_s + found.spent_s,
        is_interrupted=found.is_interrupted,
        paths=(*result.paths, *(("bisect", path) for name, path in found.paths if name == "search")),
    )


def _refusal(trees: Trees, budget_s: float) -> str:
    if trees.head.changes:
        return "head has changes that are in no commit; commit them, then flashprof gate --bisect"
    if not trees.base.commit:
        return "the baseline does not say of which commit it is; flashprof gate --base-ref REVISION --bisect"
    if trees.base.commit == trees.head.commit:
        return "base and head are the same commit"
    if budget_s < LEAST_S:
        return f"{max(0.0, budget_s):.0f} s of the budget are left; --bisect-budget 30m gives it its own"
    return ""


def _search_request(request: GateRequest, trees: Trees, budget_s: float) -> BisectRequest:
    return BisectRequest(
        kind=SearchKind.COMMITS,
        commits=f"{trees.base.commit}..{trees.head.commit}",
        repo=trees.top,
        setup=request.setup,
        command=request.command,
        subject=request.subject,
        subject_file=request.subject_file,
        windows=request.windows,
        rule=SearchRule(alpha=request.alpha, budget_s=budget_s),
        explain=request.explain,
        allow=request.allow,
        gpu_sets=request.gpu_sets,
        fresh=request.fresh,
        reports=request.reports,
    )


def _told(found: SearchResult) -> str:
    labels = found.labels or {}
    names = ", ".join(labels.get(member, member) for cause in found.culprits for member in cause.members)
    return f"{names}; {found.reason}" if names else found.reason


def _noted(result: GateResult, note: str) -> GateResult:
    return replace(result, notes=(*result.notes, note))
