"""Summaries and results survive JSON; what is no such object is refused, with the place where."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import run_summaries
import search_results
import study_results

from flashprof.contracts.comparison import StudyResult
from flashprof.contracts.results import Interval, RunSummary
from flashprof.contracts.search import SearchResult
from flashprof.store.from_json import from_json
from flashprof.store.search_result import search_to_json
from flashprof.store.study_result import study_to_json
from flashprof.store.summary_file import summary_to_json


def document_of(summary: RunSummary) -> dict[str, Any]:
    return dict(json.loads(summary_to_json(summary)))


@pytest.mark.parametrize("make", [run_summaries.healthy, run_summaries.crashed, run_summaries.foreign])
def test_a_summary_comes_back(make: Any) -> None:
    assert make() == from_json(RunSummary, document_of(make()), "summary")


@pytest.mark.parametrize(
    "make", [study_results.regression, study_results.inconclusive, study_results.failed_arm, study_results.existing]
)
def test_a_comparison_comes_back(make: Any) -> None:
    assert make() == from_json(StudyResult, json.loads(study_to_json(make())), "comparison")


@pytest.mark.parametrize("make", [search_results.one_culprit, search_results.pure_pair, search_results.failed_end])
def test_a_bisect_comes_back(make: Any) -> None:
    assert make() == from_json(SearchResult, json.loads(search_to_json(make())), "result")


def test_pairs_come_back_as_a_list_too() -> None:
    raw = json.loads(search_to_json(search_results.one_culprit()))
    as_list = {**raw, "paths": [list(pair) for pair in raw["paths"].items()]}

    assert raw["paths"] != {}
    assert search_results.one_culprit() == from_json(SearchResult, as_list, "result")


def test_numbers_that_json_cannot_hold_come_back() -> None:
    ends = Interval(estimate=1.0, low=-math.inf, high=math.inf, level=0.95, num_samples=3, method="t")
    summary = replace(run_summaries.healthy(), losses=(math.nan, 1.0), tok_per_s=ends)
    read = from_json(RunSummary, document_of(summary), "summary")

    assert ends == read.tok_per_s
    assert read.losses is not None
    assert math.isnan(read.losses[0])


def test_unknown_fields_are_left_out_and_missing_ones_have_their_default() -> None:
    raw = {**document_of(run_summaries.healthy()), "of_the_future": 1}
    del raw["notes"]

    assert replace(run_summaries.healthy(), notes=()) == from_json(RunSummary, raw, "summary")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"windows": {}}, r"summary\.windows is '\{\}'"),
        ({"notes": "text"}, r"summary\.notes is 'text'"),
        ({"notes": [1]}, r"summary\.notes\[0\] is '1'"),
        ({"padding_share": True}, r"summary\.padding_share is 'True'"),
        ({"padding_share": 10**400}, "too large"),
        ({"outcome": "fine"}, r"summary\.outcome is 'fine', none of completed"),
        ({"losses": [1.0]}, r"summary\.losses has 1 entries instead of 2"),
        ({"warmup": {"length_s": 1.0}}, r"summary\.warmup has no num_steps"),
        ({"paths": {"a": None}}, r"summary\.paths\.a is 'None'"),
        ({"run_id": None}, r"summary\.run_id is 'None'"),
    ],
)
def test_what_is_no_summary_is_refused_with_its_place(changes: dict[str, Any], message: str) -> None:
    raw = {**document_of(run_summaries.healthy()), **changes}

    with pytest.raises((TypeError, ValueError, OverflowError), match=message):
        from_json(RunSummary, raw, "summary")
