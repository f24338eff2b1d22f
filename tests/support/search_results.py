"""Results of searches as `flashprof bisect` would give them."""

from __future__ import annotations

import math
from dataclasses import replace

from flashprof.contracts.comparison import Comparison, DecisionRule, Method, Standing, Verdict
from flashprof.contracts.results import Interval
from flashprof.contracts.search import Belief, Cause, CellInfo, Proof, SearchKind, SearchLook, SearchResult

CELL = {"preset": "tiny", "topology": "1+1", "seed": "0", "machine": "box, 2 cores"}
FOLDER = "reports/bisect-4f1c2ab09d3e"
LABELS = {
    "compile": "compile: on → off",
    "swa": "swa: on → off",
    "queue": "queue: 8 → 1",
    "async-metrics": "async-metrics: on → off",
    "grad-norm": "grad-norm: on → off",
    "docids": "docids: on → off",
}
GOOD_COMMIT, CULPRIT, BEFORE, BROKEN, BAD_COMMIT = (two * 20 for two in ("0a", "3c", "2b", "4d", "5e"))
SUBJECTS = {
    GOOD_COMMIT: "0a0a0a0a0a0a Release 0.4",
    BEFORE: "2b2b2b2b2b2b Describe the queue in the guide",
    CULPRIT: "3c3c3c3c3c3c Build the attention mask per document",
    BROKEN: "4d4d4d4d4d4d Move the loader to its own module",
    BAD_COMMIT: "5e5e5e5e5e5e Pin the formatter",
}


def interval(estimate: float, half: float, level: float = 0.95) -> Interval:
    return Interval(
        estimate=estimate, low=estimate - half, high=estimate + half, level=level, num_samples=12, method="posterior"
    )


def comparison(effect: float, verdict: Verdict = Verdict.REGRESSION, **values: object) -> Comparison:
    known: dict[str, object] = {
        "method": Method.HOT,
        "base_tok_per_s": 14_480.0,
        "num_launches": 1,
        "num_blocks": 4,
        "num_windows": 16,
        "num_left_out": 0,
        "spent_s": 48.0,
        "to_resolve_s": None,
        "reason": "slower by at least 11.2 %, 99 % sure",
        "rule": DecisionRule(),
        **values,
    }
    return Comparison(
        effect=interval(effect, 0.009),
        deciding=interval(effect, 0.02, 0.99),
        verdict=verdict,
        **known,  # type: ignore[arg-type]
    )


def belief(probability: float, *effects: tuple[tuple[str, ...], float]) -> Belief:
    """Causes with their effects."""
    return Belief(
        causes=tuple(Cause(members) for members, _ in effects),
        probability=probability,
        effects=tuple(interval(effect, 0.011) for _, effect in effects),
    )


def cell(name: str, label: str, tok_per_s: float | None, num_readings: int = 4, **values: object) -> CellInfo:
    known: dict[str, object] = {"num_launches": 1, "num_readings": num_readings, **values}
    return CellInfo(cell=name, label=label, tok_per_s=tok_per_s, **known)  # type: ignore[arg-type]


def search(verdict: Verdict, reason: str, **values: object) -> SearchResult:
    known: dict[str, object] = {
        "search": "bisect-4f1c2ab09d3e",
        "kind": SearchKind.TOGGLES,
        "good": "all",
        "bad": "none",
        "cell": CELL,
        "standing": Standing.CONFIRMED,
        "drop": interval(-0.170, 0.0115),
        "culprits": (),
        "num_readings": 46,
        "num_launches": 9,
        "spent_s": 552.0,
        "labels": LABELS,
        "paths": (("search", FOLDER), ("report", f"{FOLDER}/report.md")),
        **values,
    }
    return SearchResult(verdict=verdict, reason=reason, **known)  # type: ignore[arg-type]


def proofs(cause: Cause, alone: tuple[str, str], back: tuple[str, str], effect: float) -> tuple[Proof, ...]:
    """Within launches and between them: alone and back."""
    cold = {"method": Method.COLD, "num_launches": 8}
    sides = ((False, *alone, 14_480.0), (True, *back, 14_350.0))
    made = []
    for how in ({}, cold):
        for is_back, base, candidate, rate in sides:
            shown = comparison(effect + 0.004 * is_back, base_tok_per_s=rate, **how)
            number = len(made) + 1
            made.append(
                Proof(number=number, cause=cause, is_back=is_back, base=base, candidate=candidate, comparison=shown)
            )
    return tuple(made)


def one_culprit() -> SearchResult:
    """Proved hot and cold, one reading disturbed, some readings from an earlier call."""
    swa = Cause(("swa",))
    return search(
        Verdict.REGRESSION,
        "swa alone makes the good cell 16.8 % slower, and without it the bad cell is as fast as the good one",
        culprits=(swa,),
        beliefs=(
            belief(0.973, (("swa",), -0.168)),
            belief(0.011, (("swa",), -0.161), (("compile",), -0.008)),
            belief(0.006, (("swa",), -0.17), (("compile", "swa"), -0.004)),
        ),
        proofs=proofs(swa, ("good", "swa"), ("compile+queue+async-metrics+grad-norm+docids", "bad"), -0.168),
        cells=(
            cell("good", "all", 14_480.0, 9, num_launches=5),
            cell("bad", "none", 12_020.0, 9, num_launches=5),
            cell("swa", "all,-swa", 12_060.0),
            cell("compile+queue+async-metrics+grad-norm+docids", "swa", 14_420.0),
            cell("compile+queue", "all,-compile,queue=1", 14_390.0, 1),
            cell("queue+swa", "all,-swa,queue=1", 12_110.0, 1),
        ),
        num_left_out=1,
        num_reused=12,
        notes=("the drafter waits for memory in all cells",),
    )


def two_culprits() -> SearchResult:
    """A loss, a pair, and a gain that masks a part of them; not confirmed."""
    queue, pair, gain = Cause(("queue",)), Cause(("compile", "swa")), Cause(("grad-norm",))
    return search(
        Verdict.REGRESSION,
        "two causes make it slower, each shown alone and switched back",
        standing=Standing.SCREENED,
        culprits=(queue, pair),
        gains=(gain,),
        drop=interval(-0.131, 0.012),
        beliefs=(
            belief(0.958, (("queue",), -0.092), (("grad-norm",), 0.031), (("compile", "swa"), -0.074)),
            belief(0.021, (("queue",), -0.09), (("compile", "swa"), -0.051)),
        ),
        proofs=(
            *proofs(queue, ("good", "queue"), ("compile+swa", "bad"), -0.092)[:2],
            replace(proofs(pair, ("good", "compile+swa"), ("queue", "bad"), -0.074)[0], number=3),
            Proof(number=4, cause=pair, is_back=True, base="queue", candidate="bad"),
        ),
        cells=(
            cell("good", "all", 14_480.0),
            cell("bad", "none", 12_583.0),
            cell("queue", "all,queue=1", 13_150.0),
            cell("compile+swa", "all,-compile,-swa", 13_408.0),
        ),
        num_launches=1,
        spent_s=171.0,
    )


def pure_pair() -> SearchResult:
    """Neither alone costs anything."""
    pair = Cause(("compile", "swa"))
    return search(
        Verdict.REGRESSION,
        "neither compile nor swa costs 1 % alone; both together cost 16.8 %",
        culprits=(pair,),
        beliefs=(belief(0.981, (("compile", "swa"), -0.168)),),
        proofs=proofs(pair, ("good", "compile+swa"), ("queue+async-metrics+grad-norm+docids", "bad"), -0.168),
        cells=(cell("good", "all", 14_480.0), cell("bad", "none", 12_020.0), cell("swa", "all,-swa", 14_460.0)),
    )


def commit() -> SearchResult:
    """Found among 64, one did not build."""
    cause = Cause((CULPRIT,))
    return search(
        Verdict.REGRESSION,
        "the commit makes its parent 16.8 % slower, and without it the bad commit is as fast as the good one",
        kind=SearchKind.COMMITS,
        good=SUBJECTS[GOOD_COMMIT],
        bad=SUBJECTS[BAD_COMMIT],
        labels=SUBJECTS,
        culprits=(cause,),
        beliefs=(belief(0.968, ((CULPRIT,), -0.168)), belief(0.02, ((BROKEN,), -0.165))),
        proofs=proofs(cause, (BEFORE, CULPRIT), (f"bad-without:{CULPRIT}", BAD_COMMIT), -0.168)[2:],
        cells=(
            cell(GOOD_COMMIT, SUBJECTS[GOOD_COMMIT], 14_480.0, 10, num_launches=2),
            cell(BAD_COMMIT, SUBJECTS[BAD_COMMIT], 12_020.0, 10, num_launches=2),
            cell(BEFORE, SUBJECTS[BEFORE], 14_470.0, 5),
            cell(CULPRIT, SUBJECTS[CULPRIT], 12_030.0, 5),
            cell(BROKEN, SUBJECTS[BROKEN], None, 0, num_launches=0, outcome="build failed"),
            cell(f"bad-without:{CULPRIT}", "5e5e5e5e5e5e without 3c3c3c3c3c3c", 14_430.0, 5),
        ),
        num_builds=6,
        failures=(f"build of {BROKEN}: crashed; left out from now on. It does not build: No module named 'loader'",),
        spent_s=1_490.0,
    )


def commits_open() -> SearchResult:
    """Commits that could not be measured hide which it is."""
    return search(
        Verdict.INCONCLUSIVE,
        "3 commits between the last fast and the first slow one could not be measured",
        kind=SearchKind.COMMITS,
        standing=Standing.SCREENED,
        good=SUBJECTS[GOOD_COMMIT],
        bad=SUBJECTS[BAD_COMMIT],
        labels=SUBJECTS,
        culprits=(Cause((CULPRIT,)),),
        beliefs=(belief(0.61, ((CULPRIT,), -0.166)), belief(0.34, ((BROKEN,), -0.166))),
        cells=(
            cell(GOOD_COMMIT, SUBJECTS[GOOD_COMMIT], 14_480.0, 10),
            cell(BAD_COMMIT, SUBJECTS[BAD_COMMIT], 12_020.0, 10),
            cell(CULPRIT, SUBJECTS[CULPRIT], None, 0, num_launches=2, outcome="out of memory"),
            cell(BROKEN, SUBJECTS[BROKEN], None, 0, num_launches=0, outcome="skipped by the user"),
        ),
        failures=(f"cold-3: out of memory in {CULPRIT}; left out from now on",),
        num_builds=5,
        to_resolve_s=None,
        spent_s=1_802.0,
    )


def no_regression() -> SearchResult:
    """Good and bad are alike."""
    nothing = Cause(())
    alike = comparison(-0.003, Verdict.NO_REGRESSION, reason="slower by less than 1 %, 99 % sure", num_blocks=11)
    return search(
        Verdict.NO_REGRESSION,
        "slower by less than 1 %, 99 % sure",
        drop=interval(-0.003, 0.004),
        beliefs=(belief(0.964), belief(0.012, (("swa",), -0.006))),
        proofs=(Proof(number=1, cause=nothing, is_back=False, base="good", candidate="bad", comparison=alike),),
        cells=(cell("good", "all", 14_480.0, 26), cell("bad", "none", 14_437.0, 26)),
        standing=Standing.SCREENED,
        num_launches=1,
        num_readings=58,
        spent_s=224.0,
    )


def undecided() -> SearchResult:
    """The budget was spent before a hypothesis was certain."""
    return search(
        Verdict.INCONCLUSIVE,
        "the budget of 10 min is spent",
        standing=Standing.SCREENED,
        culprits=(Cause(("swa",)),),
        drop=interval(-0.042, 0.019),
        beliefs=(
            belief(0.71, (("swa",), -0.04)),
            belief(0.15, (("compile", "swa"), -0.041)),
            belief(0.08, (("docids",), -0.037)),
        ),
        cells=(cell("good", "all", 14_480.0), cell("bad", "none", 13_870.0)),
        spent_s=600.0,
        to_resolve_s=231.0,
    )


def failed_end() -> SearchResult:
    """The bad cell never trained a step."""
    return search(
        Verdict.INCONCLUSIVE,
        "the bad cell cannot be measured",
        standing=Standing.SCREENED,
        drop=None,
        cells=(
            cell("good", "all", 14_480.0),
            cell("bad", "none", None, 0, num_launches=2, outcome="out of memory"),
        ),
        failures=("hot-2: out of memory in bad; left out from now on. CUDA out of memory in drafter 0",),
        num_readings=4,
        num_launches=3,
        spent_s=131.0,
    )


def interrupted() -> SearchResult:
    """Stopped by the user while it searched."""
    return replace(
        undecided(), is_interrupted=True, reason="14 readings do not tell yet", spent_s=88.0, num_readings=14
    )


def look() -> SearchLook:
    """In the middle of a search."""
    return SearchLook(
        beliefs=undecided().beliefs,
        next_cell="all,-swa",
        why="tells the two leading hypotheses apart",
        num_readings=14,
        num_launches=1,
        spent_s=88.0,
        to_come_s=190.0,
    )


def broken() -> SearchResult:
    """Nothing in it is a number."""
    nan = Interval(estimate=math.nan, low=-math.inf, high=math.inf, level=0.95, num_samples=0, method="")
    result = one_culprit()
    item = result.proofs[0].comparison
    assert item is not None
    odd = replace(item, effect=nan, deciding=nan, base_tok_per_s=math.nan)
    return replace(
        result,
        drop=nan,
        beliefs=tuple(
            replace(belief, probability=math.nan, effects=(nan,) * len(belief.causes)) for belief in result.beliefs
        ),
        proofs=tuple(replace(proof, comparison=odd) for proof in result.proofs),
        cells=tuple(replace(info, tok_per_s=math.nan) for info in result.cells),
        spent_s=math.nan,
    )
