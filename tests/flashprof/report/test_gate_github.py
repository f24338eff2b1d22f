"""Annotations and outputs as GitHub's runner reads them: nothing of a run becomes a command."""

from __future__ import annotations

import re
from dataclasses import replace

import gate_results
import localisations
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flashprof.contracts.gate import GateResult
from flashprof.report.gate_github import (
    annotation_lines,
    command,
    escape_data,
    escape_property,
    output_text,
    outputs,
    without_commands,
)
from flashprof.report.gate_sources import Sources

SOURCES = Sources(has_file=lambda path: path.startswith("pipeline/"))
NOWHERE = Sources(has_file=lambda path: False)
TEXTS = st.text(max_size=40) | st.text("%0AaD:,=\r\n25", max_size=20)


def read_command(line: str) -> tuple[str, dict[str, str], str]:
    """As the runner does: up to the first `::` behind the first one, properties between commas."""
    assert line.startswith("::")
    head, _, data = line[2:].partition("::")
    name, _, told = head.partition(" ")
    pairs = (pair.split("=", 1) for pair in told.split(",") if pair)
    return name, {key: unescape(value, "%3A", "%2C") for key, value in pairs}, unescape(data)


def unescape(text: str, *more: str) -> str:
    signs = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}
    for code in ("%0D", "%0A", *more):
        text = text.replace(code, signs[code])
    return text.replace("%25", "%")


def read_outputs(text: str) -> dict[str, str]:
    """As the runner does: `name=value`, or `name<<END` up to the line END."""
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        equals, heredoc = line.find("="), line.find("<<")
        if heredoc >= 0 and (equals < 0 or heredoc < equals):
            name, _, end = line.partition("<<")
            value = []
            for inner in lines:
                if inner == end:
                    break
                value.append(inner)
            else:
                raise AssertionError(f"{end!r} does not come")
            found[name] = "\n".join(value)
        elif line:
            assert equals > 0, line
            found[line[:equals]] = line[equals + 1 :]
    return found


@pytest.mark.parametrize(
    ("text", "data", "value"),
    [
        ("50 % a:b, c", "50 %25 a:b, c", "50 %25 a%3Ab%2C c"),
        ("a\r\nb", "a%0D%0Ab", "a%0D%0Ab"),
        ("%0A", "%250A", "%250A"),
    ],
)
def test_escapes_are_those_of_the_toolkit(text: str, data: str, value: str) -> None:
    assert data == escape_data(text)
    assert value == escape_property(text)


@given(TEXTS, TEXTS)
@example("::error::x", "a,line=1::b")
@example("%250A%2525", "%3A")
def test_a_command_is_one_line_that_the_runner_reads_back(message: str, title: str) -> None:
    line = command("error", message, {"file": "a.py", "title": title})
    name, properties, data = read_command(line)

    assert "\n" not in line
    assert "\r" not in line
    assert ("error", message) == (name, data)
    # The runner trims all properties together.
    assert {"file": "a.py", **({"title": title} if title else {})} == properties


def test_a_regression_is_marked_on_the_line_of_its_frame() -> None:
    first, phase, *warnings = annotation_lines(gate_results.failed(), SOURCES)
    name, properties, message = read_command(first)

    assert "error" == name
    assert ("pipeline/train/masks.py", "41") == (properties["file"], properties["line"])
    assert "tok/s −17.2 %" in properties["title"]
    assert "94 % of it is drafter mask" in message
    assert "drafter mask" in read_command(phase)[1]["title"]
    assert ["warning", "warning"] == [read_command(line)[0] for line in warnings]
    assert "visible: +900 ns a token" in read_command(warnings[0])[2]


def test_frames_of_libraries_are_not_marked() -> None:
    first, *_ = annotation_lines(gate_results.failed(), NOWHERE)

    assert {"title"} == set(read_command(first)[1])


def test_a_failure_of_the_machinery_is_one_error_that_claims_no_regression() -> None:
    (line,) = annotation_lines(gate_results.broken(), SOURCES)
    name, properties, message = read_command(line)

    assert "error" == name
    assert "which is no regression" in properties["title"]
    assert "ImportError" in message
    assert "file" not in properties


@pytest.mark.parametrize(("inconclusive", "kind"), [(None, "warning"), ("pass", "warning"), ("fail", "error")])
def test_an_open_answer_is_as_loud_as_its_status(inconclusive: str | None, kind: str) -> None:
    (line,) = annotation_lines(gate_results.inconclusive(), SOURCES, inconclusive=inconclusive)

    assert kind == read_command(line)[0]
    assert "--budget 31m" in line


def test_a_gate_that_passed_says_nothing() -> None:
    assert () == annotation_lines(gate_results.passed(), SOURCES)


def test_more_than_github_shows_are_counted() -> None:
    found = gate_results.failed()
    many = replace(found, metrics=found.metrics * 12, failures=tuple(f"launch {number}: crash" for number in range(30)))
    lines = [read_command(line) for line in annotation_lines(many, SOURCES)]
    errors, warnings = ([item for item in lines if item[0] == kind] for kind in ("error", "warning"))

    assert (10, 10) == (len(errors), len(warnings))
    assert "and 22 more, in the gate's report" == warnings[-1][2]


@pytest.mark.parametrize("text", ["\n::add-mask::x", "::error::", "%0A::x", "a,b:c\r\n", "x" * 90_000])
def test_names_of_a_run_stay_in_their_place(text: str) -> None:
    for line in annotation_lines(gate_results.hostile(text), SOURCES):
        name, properties, message = read_command(line)

        assert name in ("error", "warning")
        assert set(properties) <= {"file", "line", "title"}
        assert len(properties["title"]) <= 255
        assert len(message) <= 4_000
        assert not re.search(r"[\r\n]", line)


def test_the_runner_looks_for_no_commands_in_what_is_printed() -> None:
    text = without_commands("note: x\n::add-mask::a\n::t0::\n", "t0")
    lines = text.splitlines()

    assert "::stop-commands::t0_" == lines[0]
    assert "::t0_::" == lines[-1]
    assert "::t0_::" not in lines[:-1]


def test_outputs_tell_verdict_numbers_and_place() -> None:
    found = outputs(gate_results.bisected())

    assert "fail" == found["verdict"]
    assert ("tok/s", "-17.20", "-19.00", "-15.40") == (
        found["metric"],
        found["change-pct"],
        found["change-low-pct"],
        found["change-high-pct"],
    )
    assert "MaskFactory._build_masks (pipeline/train/masks.py:41)" == found["frame"]
    assert "git show 77ab01c9d2e3" == found["next"]
    assert "reports/gate-3f9a1c0d5b7e/report.md" == found["report"]


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (gate_results.passed(), "pass"),
        (gate_results.inconclusive(), "inconclusive"),
        (gate_results.broken(), "failed"),
        (gate_results.interrupted(), "interrupted"),
    ],
)
def test_verdicts_are_words_that_a_workflow_can_ask_for(result: GateResult, verdict: str) -> None:
    assert verdict == outputs(result)["verdict"]


def test_what_is_no_number_is_no_output() -> None:
    assert "change-pct" not in outputs(gate_results.broken())
    assert "" == outputs(gate_results.odd())["change-pct"]
    assert "change-pct" not in outputs(gate_results.empty())


@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), TEXTS, max_size=4))
@example({"a": "x\nEND\nb=1", "b": "END", "c": "<<END"})
def test_outputs_are_read_back_by_the_runner(values: dict[str, str]) -> None:
    found = read_outputs(output_text(values, "END"))

    assert set(values) == set(found)
    assert {name: "".join(text.split()) for name, text in found.items()} == {
        name: "".join(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]", "", text).split())
        for name, text in values.items()
    }


def test_outputs_of_hostile_names_keep_to_their_lines() -> None:
    result = gate_results.hostile("x\nverdict=pass\n::set-output name=verdict::pass\nEND")
    found = read_outputs(output_text(outputs(result), "END"))

    assert set(outputs(result)) == set(found)
    assert "fail" == found["verdict"]


def test_a_place_is_marked_for_each_further_frame_of_the_repository() -> None:
    found = gate_results.failed()
    assert found.localisation is not None
    more = (*found.localisation.frames, localisations.frame("lib", 30_000.0, where="torch/x.py:3"))
    lines = annotation_lines(replace(found, localisation=replace(found.localisation, frames=more)), SOURCES)

    assert 2 == sum("file=" in line for line in lines)
