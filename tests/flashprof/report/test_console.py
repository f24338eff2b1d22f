"""
The printed summary against golden files, and on odd input.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import run_summaries
from golden import check_golden

from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary, Warmup
from flashprof.report.console import render_summary
from flashprof.report.markdown import render_markdown

MAKERS = [run_summaries.healthy, run_summaries.crashed, run_summaries.foreign]


@pytest.mark.parametrize("make", MAKERS)
def test_the_console_text_is_the_golden_one(make: Callable[[], RunSummary]) -> None:
    check_golden(f"{make.__name__}.txt", render_summary(make(), color=False, width=100))


@pytest.mark.parametrize("make", MAKERS)
def test_the_markdown_is_the_golden_one(make: Callable[[], RunSummary]) -> None:
    check_golden(f"{make.__name__}.md.txt", render_markdown(make()))


def test_plain_text_has_neither_ansi_sequences_nor_box_characters() -> None:
    text = render_summary(run_summaries.healthy(), color=False, width=100)

    assert "\x1b" not in text
    assert not any(0x2500 <= ord(character) <= 0x259F for character in text)


def test_color_marks_the_failure_red() -> None:
    first_line = render_summary(run_summaries.crashed(), color=True, width=100).splitlines()[0]

    assert first_line.startswith("\x1b[1;31mcrashed: ")


def test_the_environment_does_not_change_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = render_summary(run_summaries.healthy(), color=False, width=100)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")

    assert expected == render_summary(run_summaries.healthy(), color=False, width=100)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_only_paths_are_longer_than_the_width(width: int) -> None:
    lines = render_summary(run_summaries.healthy(), color=False, width=width).splitlines()

    assert [line for line in lines if len(line) > width and "reports/" not in line] == []


def test_numbers_stay_whole_on_a_narrow_terminal() -> None:
    text = render_summary(run_summaries.healthy(), color=False, width=72)

    assert all(number in text for number in ("88.2", "1,040", "41 %", "192"))


def test_an_empty_summary_is_said_in_words() -> None:
    empty = RunSummary(run_id="r", cell={}, outcome=Outcome.LOAD_FAILED, reason="no such preset")

    text = render_summary(empty, color=False, width=80)

    assert text.startswith("failed while loading: no such preset\nkept: no window")
    assert "tok/s unknown" in text
    assert "# r" in render_markdown(empty)


def test_numbers_that_are_not_finite_become_dashes() -> None:
    summary = run_summaries.healthy()
    broken = replace(
        summary,
        tok_per_s=run_summaries.interval(math.nan, -math.inf, math.inf),
        sampling_cost=run_summaries.interval(math.nan, math.nan, math.nan),
        losses=(math.nan, math.inf),
        warmup=Warmup(length_s=math.nan, num_steps=0, settled=True),
        phases=tuple(replace(p, share=math.nan, step_p50_ns=math.inf, num_steps=0) for p in summary.phases),
        lanes=tuple(replace(row, wall_ns=0, capacity_tok_per_s=math.inf) for row in summary.lanes),
    )

    text = render_summary(broken, color=False, width=100)

    assert "– tok/s" in text
    assert "nan" not in text + render_markdown(broken)
    assert "loss – → –" in text


def test_markup_in_names_is_text() -> None:
    marked = replace(run_summaries.foreign(), notes=("[bold]a|b[/bold] <x>",), reason="[red]")

    assert "note: [bold]a|b[/bold] <x>" in render_summary(marked, color=False, width=100)
    assert "- [bold]a\\|b[/bold] &lt;x>" in render_markdown(marked)
