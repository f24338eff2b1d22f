"""
A gate, printed, against golden files, and on odd input.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gate_results
import pytest

from flashprof.contracts.gate import GateResult
from flashprof.report.gate_console import render_gate

GOLDEN = Path(__file__).parent / "golden"
MAKERS = [
    gate_results.passed,
    gate_results.failed,
    gate_results.bisected,
    gate_results.inconclusive,
    gate_results.broken,
    gate_results.interrupted,
    gate_results.stored,
    gate_results.empty,
]
Make = Callable[[], GateResult]


@pytest.mark.parametrize("make", MAKERS)
def test_the_text_is_the_golden_one(make: Make) -> None:
    text = render_gate(make(), color=False, width=100)
    path = GOLDEN / f"gate-{make.__name__}.txt"
    if os.environ.get("FLASHPROF_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("make", MAKERS)
def test_it_is_one_screen(make: Make) -> None:
    assert len(render_gate(make(), color=False, width=100).splitlines()) <= 40


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_only_what_is_to_be_copied_is_longer_than_the_width(make: Make, width: int) -> None:
    lines = render_gate(make(), color=False, width=width).splitlines()

    assert [] == [line for line in lines if len(line) > width and "reports/" not in line and "next: " not in line]


@pytest.mark.parametrize("width", [40, 99, 100])
def test_numbers_stay_whole_on_a_narrow_terminal(width: int) -> None:
    words = " ".join(render_gate(gate_results.failed(), color=False, width=width).split())

    assert [] == [number for number in ("−17.2", "−19.0 to −15.4 %", "+0.2 to +2.0 %", "−3 %") if number not in words]


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (gate_results.failed, "\x1b[1;31mfail "),
        (gate_results.passed, "\x1b[1;32mpass "),
        (gate_results.inconclusive, "\x1b[1;33minconclusive "),
        (gate_results.broken, "\x1b[1;31mfailed to measure "),
    ],
)
def test_the_verdict_has_its_color(make: Make, start: str) -> None:
    assert render_gate(make(), color=True, width=100).startswith(start)


def test_numbers_that_are_not_finite_become_dashes() -> None:
    text = render_gate(gate_results.odd(), color=False, width=100)

    assert "no bound yet" in text
    assert "nan" not in text
    assert "inf" not in text.replace("inconclusive", "")


def test_more_than_a_screenful_is_counted() -> None:
    found = gate_results.failed()
    many = replace(
        found,
        metrics=found.metrics * 9,
        notes=tuple(f"note {number}" for number in range(9)),
        failures=tuple(f"launch {number}" for number in range(9)),
    )
    text = render_gate(many, color=False, width=100)

    assert "and 15 more, in report.md" in text
    assert "and 5 more notes, in report.md" in text
    assert "and 5 more failures, in report.md" in text


def test_markup_in_names_is_text() -> None:
    text = render_gate(gate_results.hostile("[bold]x[/bold]"), color=False, width=100)

    assert "note: [bold]x[/bold]" in text
    assert "failed: [bold]x[/bold]" in text
