"""A request to bisect as JSON, and back."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FlashProfError, FormatError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec, WindowPlan
from flashprof.contracts.search import SearchKind, SearchRule
from flashprof.contracts.search_request import BisectRequest, request_from_json, request_to_json
from flashprof.contracts.study import ArmSpec

words = st.text(max_size=8)
tuples = st.lists(words, max_size=3).map(tuple)
arms = st.builds(
    ArmSpec,
    expression=words,
    values=st.dictionaries(words, st.booleans() | st.integers(-9, 99) | words, max_size=3),
)
subjects = st.builds(
    SubjectSpec,
    kind=st.sampled_from(SubjectKind),
    command=tuples,
    preset=words,
    topology=words,
    toggles=words,
    seed=st.integers(0, 9),
    train_options=tuples,
    tok_per_s_pattern=words,
)
shares = st.floats(0.001, 0.999)
requests = st.builds(
    BisectRequest,
    kind=st.sampled_from(SearchKind),
    good=st.none() | arms,
    bad=st.none() | arms,
    commits=words,
    repo=st.just(Path("a/b")),
    setup=words,
    command=tuples,
    cold_toggles=tuples,
    upstream_toggles=tuples,
    subject=subjects,
    subject_file=words,
    windows=st.builds(WindowPlan, num_measure=st.integers(2, 9), measure_s=st.floats(0.5, 9.0)),
    rule=st.builds(SearchRule, certainty=shares, alpha=shares, tolerance=shares, budget_s=st.floats(1.0, 1e4)),
    confirm=st.booleans(),
    allow=tuples,
    gpu_sets=st.lists(st.lists(st.integers(0, 7), max_size=2).map(tuple), max_size=2).map(tuple),
    fresh=st.booleans(),
    reports=st.just(Path("reports")),
)


@given(request=requests)
def test_a_request_comes_back_as_it_was(request: BisectRequest) -> None:
    assert request == request_from_json(json.loads(json.dumps(request_to_json(request))))


def test_a_request_of_another_version_is_read_as_far_as_it_goes() -> None:
    least = {"kind": "commits", "subject": {}, "windows": {"tomorrow": 1}, "rule": {}, "reports": "r", "tomorrow": 2}
    expected = BisectRequest(
        kind=SearchKind.COMMITS,
        subject=SubjectSpec(),
        windows=WindowPlan(),
        rule=SearchRule(),
        reports=Path("r"),
    )

    assert expected == request_from_json(least)


@given(
    name=st.sampled_from([item.name for item in fields(BisectRequest)]),
    junk=st.none() | st.integers() | st.lists(st.integers(), max_size=2) | st.just({"kind": []}),
)
def test_damage_is_read_or_is_an_error_that_can_be_shown(name: str, junk: object) -> None:
    raw = {"kind": "toggles", "subject": {}, "windows": {}, "rule": {}, "reports": "r", name: junk}

    with contextlib.suppress(FlashProfError):
        request_from_json(raw)


@pytest.mark.parametrize("raw", [{}, {"kind": "sideways"}, {"kind": "toggles"}])
def test_what_is_no_request_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="not a request to bisect"):
        request_from_json(raw)


def test_toggles_under_test_are_those_that_differ() -> None:
    request = BisectRequest(
        kind=SearchKind.TOGGLES,
        good=ArmSpec(expression="a", values={"a": True, "queue": 1, "b": False}),
        bad=ArmSpec(expression="none", values={"a": False, "queue": 8, "b": False}),
        subject=SubjectSpec(),
        windows=WindowPlan(),
        rule=SearchRule(),
        reports=Path("r"),
    )

    assert ("a", "queue") == request.under_test
