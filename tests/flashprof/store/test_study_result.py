"""A study's result as JSON: everything in it, and numbers that any reader takes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import study_results

from flashprof.contracts.comparison import StudyResult
from flashprof.store.study_result import FORMAT, VERSION, study_to_json

Make = Callable[[], StudyResult]


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_all_that_is_printed_is_in_it() -> None:
    result = study_results.regression()
    document = json.loads(study_to_json(result), parse_constant=no_constant)

    assert (FORMAT, VERSION) == (document["format"], document["version"])
    assert ("regression", "confirmed") == (document["verdict"], document["standing"])
    assert [("hot", 1), ("cold", 8)] == [(item["method"], item["num_launches"]) for item in document["comparisons"]]
    assert -0.1733 == document["comparisons"][-1]["effect"]["estimate"]
    assert 0.01 == document["comparisons"][-1]["rule"]["alpha"]
    assert ["mask"] == [p["phase"] for p in document["comparisons"][0]["phases"] if p["base_ns_per_token"] == 2410.0]
    assert dict(study_results.PATHS) == document["paths"]
    assert 11 == len(document["blocks"])


def test_an_interval_without_a_bound_has_null_for_it() -> None:
    result = study_results.existing()
    (item,) = json.loads(study_to_json(result), parse_constant=no_constant)["comparisons"]

    assert (-1.0, None) == (item["deciding"]["low"], item["deciding"]["high"])


@pytest.mark.parametrize("make", [study_results.failed_arm, study_results.inconclusive])
def test_it_is_one_line_ended_document(make: Make) -> None:
    result = make()
    text = study_to_json(result)

    assert text.endswith("}\n")
    assert result.study == json.loads(text)["study"]
