"""A search's result survives its file, whatever is in it; what is no such file is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashprof.contracts.comparison import Comparison, DecisionRule, Method, PhaseChange, Standing, Verdict
from flashprof.contracts.errors import FormatError
from flashprof.contracts.results import Interval
from flashprof.contracts.search import Belief, Cause, CellInfo, Proof, SearchKind, SearchResult
from flashprof.store.search_result import FORMAT, VERSION, search_from_json, search_to_json

TEXTS = st.text(max_size=8)
COUNTS = st.integers(0, 10**6)
NUMBERS = st.floats(-1e6, 1e6)


def many(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=2).map(tuple)


CAUSES = st.builds(Cause, many(TEXTS))
INTERVALS = st.builds(
    Interval,
    estimate=NUMBERS,
    low=NUMBERS | st.just(-math.inf),
    high=NUMBERS | st.just(math.inf),
    level=NUMBERS,
    num_samples=COUNTS,
    method=TEXTS,
)
RULES = st.builds(DecisionRule, alpha=NUMBERS, tolerance=NUMBERS, level=NUMBERS, budget_s=NUMBERS)
PHASES = st.builds(
    PhaseChange,
    role=TEXTS,
    phase=TEXTS,
    kind=TEXTS,
    base_ns_per_token=NUMBERS,
    difference=INTERVALS,
    is_changed=st.booleans(),
)
COMPARISONS = st.builds(
    Comparison,
    method=st.sampled_from(Method),
    base_tok_per_s=NUMBERS,
    effect=INTERVALS,
    deciding=INTERVALS,
    verdict=st.sampled_from(Verdict),
    reason=TEXTS,
    num_launches=COUNTS,
    num_blocks=COUNTS,
    num_windows=COUNTS,
    num_left_out=COUNTS,
    spent_s=NUMBERS,
    to_resolve_s=st.none() | NUMBERS,
    rule=RULES,
    phases=many(PHASES),
    notes=many(TEXTS),
)
BELIEFS = st.builds(Belief, causes=many(CAUSES), probability=NUMBERS, effects=many(INTERVALS))
PROOFS = st.builds(
    Proof,
    number=COUNTS,
    cause=CAUSES,
    is_back=st.booleans(),
    base=TEXTS,
    candidate=TEXTS,
    comparison=st.none() | COMPARISONS,
)
CELLS = st.builds(
    CellInfo,
    cell=TEXTS,
    label=TEXTS,
    num_launches=COUNTS,
    num_readings=COUNTS,
    tok_per_s=st.none() | NUMBERS,
    outcome=TEXTS,
)
NAMES = st.dictionaries(TEXTS, TEXTS, max_size=2)
RESULTS = st.builds(
    SearchResult,
    search=TEXTS,
    kind=st.sampled_from(SearchKind),
    good=TEXTS,
    bad=TEXTS,
    cell=NAMES,
    verdict=st.sampled_from(Verdict),
    standing=st.sampled_from(Standing),
    reason=TEXTS,
    drop=st.none() | INTERVALS,
    culprits=many(CAUSES),
    gains=many(CAUSES),
    beliefs=many(BELIEFS),
    proofs=many(PROOFS),
    cells=many(CELLS),
    num_readings=COUNTS,
    num_left_out=COUNTS,
    num_launches=COUNTS,
    num_builds=COUNTS,
    spent_s=NUMBERS,
    num_reused=COUNTS,
    to_resolve_s=st.none() | NUMBERS,
    is_interrupted=st.booleans(),
    failures=many(TEXTS),
    notes=many(TEXTS),
    labels=st.none() | NAMES,
    paths=NAMES.map(lambda names: tuple(names.items())),
)


def interval(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, level=0.95, num_samples=9, method="posterior")


def comparison(verdict: Verdict) -> Comparison:
    return Comparison(
        method=Method.HOT,
        base_tok_per_s=14_480.0,
        effect=interval(-0.17, -0.18, -0.16),
        deciding=interval(-0.17, -1.0, math.inf),
        verdict=verdict,
        reason="The whole interval is below zero.",
        num_launches=1,
        num_blocks=6,
        num_windows=24,
        num_left_out=0,
        spent_s=61.5,
        to_resolve_s=math.inf,
        rule=DecisionRule(),
    )


def result() -> SearchResult:
    swa, pair = Cause(("swa",)), Cause(("compile", "queue"))
    return SearchResult(
        search="bisect-0123456789ab",
        kind=SearchKind.TOGGLES,
        good="all",
        bad="none",
        cell={"preset": "tiny"},
        verdict=Verdict.REGRESSION,
        standing=Standing.SCREENED,
        reason="Both proofs show it.",
        drop=interval(-0.17, -0.18, math.nan),
        culprits=(swa, pair),
        beliefs=(Belief(causes=(swa,), probability=0.97, effects=(interval(-0.17, -0.18, -0.16),)),),
        proofs=(
            Proof(
                number=1,
                cause=swa,
                is_back=False,
                base="good",
                candidate="swa",
                comparison=comparison(Verdict.REGRESSION),
            ),
            Proof(number=2, cause=pair, is_back=True, base="swa", candidate="bad"),
        ),
        labels={"queue": "queue: 8 → 1"},
        paths=(("search", "reports/bisect-0123456789ab"),),
    )


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@given(before=RESULTS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_result_survives(before: SearchResult) -> None:
    text = search_to_json(before)
    json.loads(text, parse_constant=no_constant)

    assert before == search_from_json(text)
    assert text == search_to_json(search_from_json(text))


def test_programs_find_causes_as_lists_and_paths_as_an_object() -> None:
    text = search_to_json(result())
    document = json.loads(text, parse_constant=no_constant)

    assert text.endswith("}\n")
    assert (FORMAT, VERSION) == (document["format"], document["version"])
    assert ("toggles", "regression", "screened") == (document["kind"], document["verdict"], document["standing"])
    assert [["swa"], ["compile", "queue"]] == document["culprits"]
    assert [["swa"]] == document["beliefs"][0]["causes"]
    assert ["compile", "queue"] == document["proofs"][1]["cause"]
    assert {"search": "reports/bisect-0123456789ab"} == document["paths"]
    assert "queue: 8 → 1" in text


def test_programs_find_whether_a_proof_is_shown() -> None:
    shown, bare = json.loads(search_to_json(result()))["proofs"]

    assert (True, False) == (shown["is_shown"], shown["is_refuted"])
    assert (False, False, None) == (bare["is_shown"], bare["is_refuted"], bare["comparison"])


def test_a_number_that_is_none_is_null_and_an_open_end_comes_back_open() -> None:
    text = search_to_json(result())
    document = json.loads(text, parse_constant=no_constant)
    after = search_from_json(text)

    assert (-0.17, -0.18, None) == tuple(document["drop"][name] for name in ("estimate", "low", "high"))
    assert after.drop == interval(-0.17, -0.18, math.inf)
    assert after.proofs[0].comparison is not None
    assert math.inf == after.proofs[0].comparison.deciding.high
    assert after.proofs[0].comparison.to_resolve_s is None


@pytest.mark.parametrize("text", ["", "{", "7", "[]", "null", '{"format": "flashprof-study-result", "version": 1}'])
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match=r"not a search's result|is not known") as caught:
        search_from_json(text, where="reports/x/result.json")

    assert "reports/x/result.json" == caught.value.where
    assert "flashprof bisect --resume" in (caught.value.next_command or "")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"culprits": "swa"}, "result.culprits is 'swa'"),
        ({"culprits": [["swa"], [1]]}, r"result.culprits\[1\]\[0\] is '1'"),
        ({"drop": 7}, "result.drop is '7'"),
        ({"drop": {"estimate": 1.0}}, "result.drop has no low"),
        ({"verdict": "slow"}, "slow"),
        ({"num_readings": 1.5}, "result.num_readings is '1.5'"),
        ({"num_readings": True}, "result.num_readings is 'True'"),
        ({"is_interrupted": 1}, "result.is_interrupted is '1'"),
        ({"spent_s": "long"}, "result.spent_s is 'long'"),
        ({"spent_s": 10**400}, "too large"),
        ({"labels": {"swa": 1}}, "result.labels.swa is '1'"),
        ({"paths": 7}, "result.paths is '7'"),
        ({"paths": {"search": 7}}, r"result.paths\[0\]\[1\] is '7'"),
        ({"cells": [{"cell": "good"}]}, r"result.cells\[0\] has no label"),
    ],
)
def test_damage_is_told_with_its_place(change: dict[str, Any], what: str) -> None:
    document = {**json.loads(search_to_json(result())), **change}
    with pytest.raises(FormatError, match=what):
        search_from_json(json.dumps(document))


def test_a_version_that_is_not_known_is_named() -> None:
    document = {**json.loads(search_to_json(result())), "version": 2}
    with pytest.raises(FormatError, match="version 2 is not known") as caught:
        search_from_json(json.dumps(document))

    assert f"{FORMAT} version {VERSION}" == caught.value.allowed
