"""A gate for programs: the document, and entries that github-action-benchmark reads."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import gate_results
import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flashprof.report.gate_json import bigger_is_better, gate_to_json, smaller_is_better

BENCHMARK = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"type": "string", "minLength": 1},
            "value": {"type": "number"},
            "range": {"type": "string", "pattern": r"^± \d[\d.e+-]*$"},
            "extra": {"type": "string"},
        },
    },
}
"""https://github.com/benchmark-action/github-action-benchmark#examples, custom tools; range as its code reads it."""
RESULT = {
    "type": "object",
    "required": ["format", "version", "verdict", "reason", "metrics", "base", "head", "mode", "is_failed"],
    "properties": {
        "format": {"const": "flashprof-gate-result"},
        "version": {"const": 1},
        "verdict": {"enum": ["regression", "no regression", "inconclusive"]},
        "mode": {"enum": ["interleaved", "stored"]},
        "paths": {"type": "object", "additionalProperties": {"type": "string"}},
        "metrics": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["threshold", "unit", "base", "head", "change", "verdict", "reason"],
                "properties": {
                    "threshold": {
                        "type": "object",
                        "required": ["metric", "max_regression"],
                        "properties": {"max_regression": {"type": "number"}},
                    },
                    "base": {"type": ["number", "null"]},
                    "head": {"type": ["number", "null"]},
                    "change": {"type": ["object", "null"]},
                },
            },
        },
    },
}


def strict(text: str) -> Any:
    """JSON as other languages read it: without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text.encode(), parse_constant=refuse)


@pytest.mark.parametrize(
    "make",
    [gate_results.passed, gate_results.failed, gate_results.broken, gate_results.odd, gate_results.empty],
)
def test_documents_keep_to_their_schemas(make: Any) -> None:
    jsonschema.validate(strict(gate_to_json(make())), RESULT)
    jsonschema.validate(strict(bigger_is_better(make())), BENCHMARK)
    jsonschema.validate(strict(smaller_is_better(make())), BENCHMARK)


def test_the_document_holds_all_of_the_result() -> None:
    found = strict(gate_to_json(gate_results.failed()))

    assert "regression" == found["verdict"]
    assert "tok/s" == found["metrics"][0]["threshold"]["metric"]
    assert -0.172 == found["metrics"][0]["change"]["estimate"]
    assert "mask" == found["localisation"]["parts"][0]["phase"]
    assert 4 == len(found["study"]["blocks"])
    assert {"gate": "reports/gate-3f9a1c0d5b7e", "report": "reports/gate-3f9a1c0d5b7e/report.md"} == found["paths"]


def test_numbers_that_are_not_finite_become_null() -> None:
    found = strict(gate_to_json(gate_results.odd()))

    assert found["metrics"][0]["base"] is None
    assert found["metrics"][0]["change"]["low"] is None


def test_rates_and_costs_go_to_two_dashboards() -> None:
    bigger, smaller = (strict(make(gate_results.failed())) for make in (bigger_is_better, smaller_is_better))

    assert [("tok/s", "tok/s")] == [(item["name"], item["unit"]) for item in bigger]
    assert ["memory", "drafter mask"] == [item["name"] for item in smaller]
    # Half of 15.4 to 19.0 % of 12,230.
    (half,) = re.findall(r"± (.*)", bigger[0]["range"])
    assert math.isclose(220.14, float(half))
    assert math.isclose(12_230 * (1 - 0.172), bigger[0]["value"])


def test_a_gate_that_failed_to_measure_leaves_no_point_on_a_dashboard() -> None:
    assert [] == strict(bigger_is_better(gate_results.broken()))
    assert [] == strict(bigger_is_better(replace(gate_results.failed(), is_failed=True)))
    assert [] == strict(bigger_is_better(gate_results.odd()))


@given(st.text(max_size=10))
@example("\ud800")
def test_any_text_can_be_written_as_utf8(text: str) -> None:
    result = gate_results.hostile(text)

    assert strict(gate_to_json(result))["notes"]
    jsonschema.validate(strict(smaller_is_better(result)), BENCHMARK)
