"""A gate as JUnit XML: counts, elements as the common schema has them, and well-formed for any text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree as ET

import gate_results
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flashprof.contracts.gate import GateResult
from flashprof.report.gate_junit import render_gate_junit

ATTRIBUTES = {
    "testsuites": ({"name", "tests", "failures", "errors", "time"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"properties", "testcase"}),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "classname", "time"}, {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
    "system-out": (set(), set()),
}
"""The attributes and children that Jenkins' junit-10.xsd and GitLab's reader both know."""
MAKERS = [
    gate_results.passed,
    gate_results.failed,
    gate_results.inconclusive,
    gate_results.broken,
    gate_results.interrupted,
    gate_results.empty,
    gate_results.odd,
]


def read(text: str) -> ET.Element:
    """The suite, with all elements checked."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = ATTRIBUTES[element.tag]
        assert attributes == set(element.attrib), element.tag
        assert children >= {child.tag for child in element}
    (suite,) = root
    cases = suite.findall("testcase")
    counts = {"tests": len(cases)} | {
        name: len(suite.findall(f"testcase/{tag}"))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    assert counts == {name: int(suite.attrib[name]) for name in counts}
    assert all(len(case) <= 1 for case in cases)
    return suite


def endings(suite: ET.Element) -> dict[str, str]:
    return {case.attrib["name"]: next((child.tag for child in case), "") for case in suite.findall("testcase")}


@pytest.mark.parametrize("make", MAKERS)
def test_every_gate_keeps_to_the_schema(make: Callable[[], GateResult]) -> None:
    suite = read(render_gate_junit(make()))

    assert suite.findall("testcase")


def test_each_metric_is_a_test() -> None:
    suite = read(render_gate_junit(gate_results.failed()))

    assert {"tok/s": "failure", "memory": "system-out", "drafter mask": "failure"} == endings(suite)
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "tok/s −17.2 %" in failure.attrib["message"]
    assert "94 % of it is drafter mask" in (failure.text or "")


def test_the_machinery_has_a_test_of_its_own_and_fails_no_metric() -> None:
    suite = read(render_gate_junit(gate_results.broken()))

    assert {"measuring": "error", "tok/s": "skipped"} == endings(suite)
    assert "0" == suite.attrib["failures"]


@pytest.mark.parametrize(("inconclusive", "ending"), [(None, "skipped"), ("fail", "failure"), ("pass", "system-out")])
def test_an_open_answer_ends_as_its_status_does(inconclusive: str | None, ending: str) -> None:
    suite = read(render_gate_junit(gate_results.inconclusive(), inconclusive=inconclusive))

    assert {"tok/s": ending} == endings(suite)


def test_times_of_tests_sum_to_that_of_the_gate() -> None:
    suite = read(render_gate_junit(gate_results.failed()))

    assert 871.0 == float(suite.attrib["time"]) == sum(float(it.attrib["time"]) for it in suite.findall("testcase"))


@given(st.text(st.characters(), max_size=20))
@settings(max_examples=60)
@example("\x00\x1b]]><!--\ud800\uffff&amp;<x a='\"'>")
def test_any_text_is_well_formed(text: str) -> None:
    for result in (gate_results.hostile(text), replace(gate_results.hostile(text), is_failed=True)):
        suite = read(render_gate_junit(result))

        assert suite.findall("testcase")
