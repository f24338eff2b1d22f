"""A gate for GitLab: OpenMetrics text as its reader splits it, and Code Quality by its documented format."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace

import gate_results
import jsonschema
import localisations
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flashprof.contracts.gate import GateResult
from flashprof.report.gate_gitlab import render_code_quality, render_metrics
from flashprof.report.gate_sources import Sources

SOURCES = Sources(has_file=lambda path: path.startswith("pipeline/"))
CODE_QUALITY = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "location", "severity"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32,64}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": "^[^/.]"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
"""https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format"""
SAMPLE = re.compile(r'([a-z_]+)(\{[a-z]+="[^"\\\n]*"\})? (-?\d[\d.]*(?:e[+-]\d+)?)')
MAKERS = [gate_results.passed, gate_results.failed, gate_results.broken, gate_results.odd, gate_results.empty]


def read_metrics(text: str) -> dict[str, float]:
    """Samples, with what OpenMetrics asks of their order checked."""
    *lines, end = text.removesuffix("\n").split("\n")
    assert "# EOF" == end
    family, seen, found = "", set(), {}
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert (family not in seen, "gauge") == (True, kind)
            seen.add(family)
        elif line.startswith("# "):
            assert line.startswith(f"# HELP {family} ")
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert family == match[1]
            # GitLab: what is before a `#`, split as a shell does.
            assert 2 == len(shlex.split(line.partition("#")[0]))
            key = match[1] + (match[2] or "")
            assert key not in found
            found[key] = float(match[3])
    return found


@pytest.mark.parametrize("make", MAKERS)
def test_both_reports_keep_to_their_formats(make: Callable[[], GateResult]) -> None:
    read_metrics(render_metrics(make()))

    jsonschema.validate(json.loads(render_code_quality(make(), SOURCES)), CODE_QUALITY)


def test_metrics_are_in_base_units() -> None:
    found = read_metrics(render_metrics(gate_results.failed()))

    assert 10_126.4 == found["flashprof_tokens_per_second"]
    assert 6.20754e10 == found["flashprof_memory_bytes"]
    assert 4.128e-05 == found['flashprof_phase_seconds_per_token{phase="drafter_mask"}']
    assert -0.172 == found['flashprof_change_ratio{metric="tok/s"}']
    assert 0.1 == found['flashprof_allowed_ratio{metric="memory"}']
    assert (1.0, 0.0) == (
        found['flashprof_regression{metric="tok/s"}'],
        found['flashprof_regression{metric="memory"}'],
    )
    start_up = read_metrics(render_metrics(gate_results.passed()))["flashprof_start_up_seconds"]
    assert 40.376 == start_up


def test_what_was_not_measured_is_not_there() -> None:
    assert {} == read_metrics(render_metrics(gate_results.broken()))


@given(st.text(max_size=20))
@example('a"b\\ #c\n')
@example("e' x")
def test_any_name_of_a_phase_is_one_label(text: str) -> None:
    read_metrics(render_metrics(gate_results.hostile(text)))

    assert isinstance(json.loads(render_code_quality(gate_results.hostile(text), SOURCES)), list)


def test_lines_of_a_regression_are_marked_the_culprit_first() -> None:
    first, second = json.loads(render_code_quality(gate_results.failed(), SOURCES))

    assert {"path": "pipeline/train/masks.py", "lines": {"begin": 41}} == first["location"]
    assert "MaskFactory._build_masks: +38.2 µs a token" in first["description"]
    assert ("major", "minor") == (first["severity"], second["severity"])
    assert first["fingerprint"] != second["fingerprint"]


def test_nothing_is_marked_without_a_regression_or_outside_the_repository() -> None:
    nowhere = Sources(has_file=lambda path: False)
    passed = replace(gate_results.passed(), localisation=localisations.one_phase())

    assert [] == json.loads(render_code_quality(passed, SOURCES))
    assert [] == json.loads(render_code_quality(gate_results.failed(), nowhere))


def test_a_finding_that_moves_stays_the_same_issue() -> None:
    found = gate_results.failed()
    assert found.localisation is not None
    frames = tuple(replace(it, where="pipeline/train/masks.py:77") for it in found.localisation.frames)
    moved = replace(found, spent_s=1.0, localisation=replace(found.localisation, frames=frames))
    before, after = (json.loads(render_code_quality(it, SOURCES)) for it in (found, moved))

    assert [it["fingerprint"] for it in before] == [it["fingerprint"] for it in after]
    assert before[0]["location"] != after[0]["location"]
