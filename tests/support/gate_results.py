"""Results of gates as `flashprof gate` would give them."""

from __future__ import annotations

import math
from dataclasses import replace

import localisations
import study_results
from study_results import cold_blocks, comparison, interval

from flashprof.contracts.comparison import Comparison, DecisionRule, Method, Standing, StudyResult, Verdict
from flashprof.contracts.gate import MEMORY, PHASE, START_UP, TOK_PER_S, GateMode, GateResult, MetricVerdict, Threshold
from flashprof.contracts.results import Interval

BASE_COMMIT = "3f9a1c0d5b7e2846a1c3d5e7f90214365870b1c2"
HEAD_COMMIT = "b81e44f60c2d9a7351e8f0a6c4d2b39785160e4f"
PATHS = (("gate", "reports/gate-3f9a1c0d5b7e"), ("report", "reports/gate-3f9a1c0d5b7e/report.md"))
RULE = DecisionRule(tolerance=0.0, budget_s=1_200.0)


def metric(
    name: str, unit: str, base: float, change: Interval | None, verdict: Verdict, **fields: object
) -> MetricVerdict:
    """One metric against 3 % for tok/s, 10 % for others."""
    values: dict[str, object] = {
        "threshold": Threshold(metric=name, max_regression=0.03 if name == TOK_PER_S else 0.10),
        "head": math.nan if change is None else base * (1 + change.estimate),
        "reason": "not shown to be worse",
        **fields,
    }
    return MetricVerdict(unit=unit, base=base, change=change, verdict=verdict, **values)  # type: ignore[arg-type]


def gate(verdict: Verdict, *metrics: MetricVerdict, **fields: object) -> GateResult:
    values: dict[str, object] = {
        "gate": "gate-3f9a1c0d5b7e",
        "mode": GateMode.INTERLEAVED,
        "base": "3f9a1c0d5b7e Queue: eight batches",
        "head": "b81e44f60c2d Masks: one more copy",
        "base_commit": BASE_COMMIT,
        "head_commit": HEAD_COMMIT,
        "cell": study_results.CELL,
        "reason": "not shown to be worse",
        "spent_s": 871.0,
        "paths": PATHS,
        **fields,
    }
    return GateResult(verdict=verdict, metrics=metrics, **values)  # type: ignore[arg-type]


def study(item: Comparison, *changes: float, **fields: object) -> StudyResult:
    """The blocks of a gate: trees as arms."""
    values: dict[str, object] = {
        "base": "3f9a1c0d5b7e Queue: eight batches",
        "candidate": "b81e44f60c2d Masks: one more copy",
        "study": "gate-3f9a1c0d5b7e",
        "spent_s": item.spent_s,
        "blocks": cold_blocks(*changes),
        **fields,
    }
    return study_results.study(item.verdict, Standing.CONFIRMED, (item,), **values)


def cold(estimate: float, half: float, verdict: Verdict, **fields: object) -> Comparison:
    """Read from eight launches in four pairs; the deciding interval is half as wide again."""
    values: dict[str, object] = {
        "num_launches": 8,
        "num_blocks": 4,
        "num_windows": 40,
        "spent_s": 560.0,
        "rule": RULE,
        **fields,
    }
    effect = interval(estimate, estimate - half, estimate + half, num_samples=4)
    deciding = interval(estimate, estimate - 1.5 * half, estimate + 1.5 * half, 0.99, 4)
    return comparison(Method.COLD, effect, deciding, verdict, **values)


def passed() -> GateResult:
    """Two metrics, both well within what is allowed."""
    found = cold(-0.004, 0.009, Verdict.NO_REGRESSION, reason="not shown to be worse, and no more than 1.8 % slower")
    return gate(
        Verdict.NO_REGRESSION,
        metric(TOK_PER_S, "tok/s", 12_230.0, found.effect, Verdict.NO_REGRESSION, comparison=found),
        metric(START_UP, "s", 41.2, interval(-0.02, -0.05, 0.01), Verdict.NO_REGRESSION),
        study=study(found, -0.006, 0.002, -0.009, -0.003),
        spent_s=560.0,
    )


def failed() -> GateResult:
    """tok/s and a phase fail, memory passes; localised to one frame, no commit named yet."""
    reason = "slower by 17.2 %, shown with 99 %, where 3 % is allowed"
    found = cold(-0.172, 0.018, Verdict.REGRESSION, reason=reason)
    return gate(
        Verdict.REGRESSION,
        metric(TOK_PER_S, "tok/s", 12_230.0, found.effect, Verdict.REGRESSION, comparison=found, reason=reason),
        metric(MEMORY, "bytes", 61.4e9, interval(0.011, 0.002, 0.02), Verdict.NO_REGRESSION),
        metric(
            f"{PHASE}drafter mask",
            "ns a token",
            2_400.0,
            interval(16.2, 15.1, 17.4),
            Verdict.REGRESSION,
            reason="1,620 % more time a token, where 10 % is allowed",
        ),
        reason=reason,
        study=study(found, -0.181, -0.168, -0.174, -0.170, failures=("cold-2-candidate: killed by a signal (9)",)),
        localisation=replace(localisations.one_phase(), base="3f9a1c0d5b7e", candidate="b81e44f60c2d"),
        failures=("cold-2-candidate: killed by a signal (9); launched again",),
        notes=("machine.host differs, as --allow machine.host says",),
    )


def bisected() -> GateResult:
    """The same with `--bisect`: the commit is known."""
    return replace(failed(), culprit="77ab01c9d2e34f5061728394a5b6c7d8e9f00112", spent_s=2_420.0)


def inconclusive() -> GateResult:
    """At the end of the budget neither is shown."""
    reason = "between 5.9 % slower and 0.1 % faster, 99 % sure; 3 % is allowed"
    found = cold(-0.029, 0.020, Verdict.INCONCLUSIVE, reason=reason, to_resolve_s=640.0, spent_s=1_190.0)
    return gate(
        Verdict.INCONCLUSIVE,
        metric(TOK_PER_S, "tok/s", 12_230.0, found.effect, Verdict.INCONCLUSIVE, comparison=found, reason=reason),
        reason=reason,
        study=study(found, -0.031, -0.012, -0.047, -0.026),
        spent_s=1_190.0,
    )


def broken() -> GateResult:
    """Head never trained a step: the machinery failed, and nothing is said of speed."""
    return gate(
        Verdict.INCONCLUSIVE,
        metric(TOK_PER_S, "tok/s", 12_230.0, None, Verdict.INCONCLUSIVE, reason="head was not measured"),
        reason="head does not run where base does",
        is_failed=True,
        spent_s=96.0,
        failures=(
            "head-1: crash: ImportError: cannot import name 'visible' from 'pipeline.train.masks'; launched again",
            "head-2: crash: ImportError: cannot import name 'visible' from 'pipeline.train.masks'; given up",
        ),
    )


def interrupted() -> GateResult:
    """Somebody pressed Ctrl-C."""
    return replace(inconclusive(), is_interrupted=True, spent_s=233.0)


def stored() -> GateResult:
    """Against a baseline that was measured earlier; no commit of it is known."""
    found = cold(0.031, 0.012, Verdict.NO_REGRESSION, reason="faster by 3.1 %")
    return gate(
        Verdict.NO_REGRESSION,
        metric(TOK_PER_S, "tok/s", 12_230.0, found.effect, Verdict.NO_REGRESSION, comparison=found),
        mode=GateMode.STORED,
        base="main-h200, 2026-11-28",
        base_commit="",
        spent_s=210.0,
    )


def empty() -> GateResult:
    """Nothing but names."""
    return GateResult(
        gate="g",
        mode=GateMode.INTERLEAVED,
        base="main",
        head="HEAD",
        verdict=Verdict.INCONCLUSIVE,
        reason="nothing was measured",
    )


def odd() -> GateResult:
    """Nothing in it is a number."""
    nan = Interval(estimate=math.nan, low=-math.inf, high=math.inf, level=0.95, num_samples=0, method="")
    found = failed()
    metrics = tuple(
        replace(it, base=math.nan, head=math.inf, change=nan, comparison=_odd_comparison(it.comparison, nan))
        for it in found.metrics
    )
    return replace(found, metrics=metrics, localisation=localisations.odd(), spent_s=math.nan, study=None)


def hostile(text: str) -> GateResult:
    """*text* wherever a tree, a machine, or a trainer can put its own."""
    found = failed()
    metrics = tuple(replace(it, reason=text, unit=text) for it in found.metrics)
    phase = replace(metrics[-1], threshold=Threshold(metric=f"{PHASE}{text}", max_regression=0.1))
    assert found.study is not None
    blocks = tuple(replace(block, site=text, launches=(text,), disturbances=(text,)) for block in found.study.blocks)
    return replace(
        found,
        gate=text,
        base=text,
        head=text,
        cell={"preset": text, "machine": text},
        reason=text,
        culprit=text,
        metrics=(*metrics[:-1], phase),
        study=replace(found.study, blocks=blocks, base=text, candidate=text, notes=(text,)),
        localisation=localisations.hostile(text),
        failures=(text,),
        notes=(text,),
        paths=(("report", text),),
    )


def _odd_comparison(item: Comparison | None, nan: Interval) -> Comparison | None:
    return item and replace(item, effect=nan, deciding=nan, base_tok_per_s=math.nan, to_resolve_s=math.nan)
