"""A gate as JUnit XML, a test a metric, as Jenkins, GitLab, and most others read it."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import GateResult, MetricVerdict
from flashprof.report import gate_sentences as sentences
from flashprof.report.gate_sentences import Ending
from flashprof.report.gate_text import plain, printable

SUITE = "flashprof gate"
CLASS = "flashprof.gate"
MEASURING = "measuring"
"""The test that the machinery fails: no metric is, by that, slower."""
MAX_FAILURES = 20


def render_gate_junit(result: GateResult, *, inconclusive: str | None = None) -> str:
    """
    One suite, well-formed for any text of a run.

    Args:
        result: What was found; anything may be missing.
        inconclusive: `pass` or `fail`, as for the status; an open answer is skipped else.
    """
    is_answered = sentences.ending(result) not in (Ending.FAILED, Ending.INTERRUPTED)
    cases = [_metric(metric, inconclusive) if is_answered else _unanswered(metric) for metric in result.metrics]
    if not is_answered or not cases:
        cases.insert(0, _measuring(result))
    # All metrics are read from the same launches: the sum over tests is then the time of the gate.
    cases[0].set("time", _seconds(result.spent_s))
    if is_answered and sentences.where(result):
        _tell_where(cases, result)
    counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    totals = {name: str(sum(case.find(tag) is not None for case in cases)) for name, tag in counts.items()}
    attributes = {"tests": str(len(cases)), **totals, "time": _seconds(result.spent_s)}
    suite = ET.Element("testsuite", {"name": SUITE, **attributes})
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(result).items():
        ET.SubElement(properties, "property", {"name": plain(name), "value": plain(value)})
    suite.extend(cases)
    # Only Ant's own readers want the outer element without `skipped`, so it has what all of them know.
    suites = ET.Element("testsuites", {"name": SUITE, **{k: v for k, v in attributes.items() if k != "skipped"}})
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _metric(metric: MetricVerdict, inconclusive: str | None) -> ET.Element:
    case = _case(metric)
    told = sentences.one_line(metric)
    if metric.verdict is Verdict.REGRESSION or (metric.verdict is Verdict.INCONCLUSIVE and inconclusive == "fail"):
        return _ended(case, "failure", told, sentences.decided(metric), kind=str(metric.verdict))
    if metric.verdict is Verdict.INCONCLUSIVE and inconclusive is None:
        return _ended(case, "skipped", f"inconclusive: {told}; {sentences.decided(metric)}")
    ET.SubElement(case, "system-out").text = printable(f"{told}\n{sentences.decided(metric)}")
    return case


def _unanswered(metric: MetricVerdict) -> ET.Element:
    return _ended(_case(metric), "skipped", f"no answer: {metric.reason}")


def _measuring(result: GateResult) -> ET.Element:
    case = ET.Element("testcase", {"name": MEASURING, "classname": CLASS, "time": _seconds(0.0)})
    ending = sentences.ending(result)
    if ending in (Ending.FAILED, Ending.INTERRUPTED):
        details = "\n".join((result.reason, *sentences.failures(result, MAX_FAILURES)))
        return _ended(case, "error", sentences.answer(result), details, kind=str(ending))
    return _ended(case, "skipped", sentences.answer(result))


def _tell_where(cases: list[ET.Element], result: GateResult) -> None:
    """In the first failure, which is what most pages show."""
    found = next((case.find("failure") for case in cases if case.find("failure") is not None), None)
    if found is not None:
        told = (found.text or "", sentences.where(result), sentences.culprit(result))
        found.text = printable("\n".join(line for line in told if line))


def _case(metric: MetricVerdict) -> ET.Element:
    name = plain(sentences.name_of(metric)) or "unnamed"
    return ET.Element("testcase", {"name": name, "classname": CLASS, "time": _seconds(0.0)})


def _ended(case: ET.Element, tag: str, message: str, details: str = "", *, kind: str = "") -> ET.Element:
    attributes = {"message": plain(message), **({"type": kind} if kind else {})}
    ET.SubElement(case, tag, attributes).text = printable(details)
    return case


def _properties(result: GateResult) -> dict[str, str]:
    commits = {"base-commit": result.base_commit, "head-commit": result.head_commit}
    told = {"verdict": str(sentences.ending(result)), "base": result.base, "head": result.head, **commits}
    cell = {f"cell.{name}": value for name, value in result.cell.items()}
    return {name: value for name, value in {**told, **cell, "culprit": result.culprit}.items() if value}


def _seconds(length_s: float) -> str:
    return f"{length_s:.3f}" if math.isfinite(length_s) else "0.000"
