"""
A comparison, printed and as Markdown, against golden files, and on odd input.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import study_results
from golden import check_golden
from study_results import interval

from flashprof.contracts.comparison import StudyResult, Verdict
from flashprof.report.compare_console import render_study
from flashprof.report.compare_markdown import render_study_markdown

MAKERS = [
    study_results.regression,
    study_results.no_regression,
    study_results.inconclusive,
    study_results.failed_arm,
    study_results.existing,
]
Make = Callable[[], StudyResult]


@pytest.mark.parametrize("make", MAKERS)
def test_the_console_text_is_the_golden_one(make: Make) -> None:
    result = make()

    check_golden(f"compare-{make.__name__}.txt", render_study(result, color=False, width=100))


@pytest.mark.parametrize("make", MAKERS)
def test_the_markdown_is_the_golden_one(make: Make) -> None:
    result = make()

    check_golden(f"compare-{make.__name__}.md.txt", render_study_markdown(result))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_only_paths_are_longer_than_the_width(make: Make, width: int) -> None:
    result = make()
    lines = render_study(result, color=False, width=width).splitlines()

    assert [line for line in lines if len(line) > width and "reports/" not in line] == []


@pytest.mark.parametrize("width", [44, 60, 95, 96])
def test_numbers_stay_whole_on_a_narrow_terminal(width: int) -> None:
    result = study_results.regression()
    text = render_study(result, color=False, width=width)
    words = " ".join(text.split())

    assert "…" not in words.partition("Phases")[0]
    assert [] == [number for number in ("−17.6 to −16.6 %", "−16.9 %", "52.7", "+16.6", "2.41") if number not in words]


def test_plain_text_has_neither_ansi_sequences_nor_box_characters() -> None:
    result = study_results.regression()
    text = render_study(result, color=False, width=100)

    assert "\x1b" not in text
    assert not any(0x2500 <= ord(character) <= 0x25FF and character != "◀" for character in text)


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (study_results.regression, "\x1b[1;31mregression"),
        (study_results.no_regression, "\x1b[1;32mno regression"),
        (study_results.inconclusive, "\x1b[1;33minconclusive"),
        (study_results.failed_arm, "\x1b[1;31mfailed"),
    ],
)
def test_the_verdict_has_its_color(make: Make, start: str) -> None:
    result = make()
    text = render_study(result, color=True, width=100)

    assert text.startswith(start)


def test_a_result_without_anything_is_said_in_words() -> None:
    empty = StudyResult(
        study="s",
        base="none",
        candidate="swa",
        cell={},
        verdict=Verdict.INCONCLUSIVE,
        standing=study_results.Standing.SCREENED,
        comparisons=(),
        spent_s=0.0,
        num_reused=0,
    )

    assert render_study(empty, color=False, width=80).startswith("inconclusive  none → swa: nothing was measured\n")
    assert "# none → swa" in render_study_markdown(empty)


def test_numbers_that_are_not_finite_become_dashes() -> None:
    result = study_results.regression()
    nan = interval(math.nan, -math.inf, math.inf)
    item = replace(
        result.comparisons[0],
        effect=nan,
        deciding=nan,
        base_tok_per_s=math.nan,
        phases=tuple(replace(phase, difference=nan, base_ns_per_token=math.nan) for phase in study_results.phases()),
    )
    odd = tuple(replace(block, difference=math.nan) for block in result.blocks)
    broken = replace(result, comparisons=(item,), spent_s=math.nan, blocks=odd)
    text = render_study(broken, color=False, width=100) + render_study_markdown(broken)

    assert "the effect is not known" in text
    assert "no bound yet" in text
    assert "nan" not in text
    assert "inf" not in text.replace("inconclusive", "")


def test_an_interrupted_study_says_that_it_can_go_on() -> None:
    stopped = replace(study_results.inconclusive(), is_interrupted=True)

    assert "interrupted: what was measured is kept" in render_study(stopped, color=False, width=100)
    assert "interrupted: what was measured is kept" in render_study_markdown(stopped)
    assert "interrupted" not in render_study(study_results.inconclusive(), color=False, width=100)


def test_what_the_user_stopped_before_anything_was_measured_did_not_fail() -> None:
    stopped = replace(study_results.failed_arm(), comparisons=(), blocks=(), is_interrupted=True)

    assert not render_study(stopped, color=False, width=100).startswith("failed")


def test_markup_in_names_is_text() -> None:
    result = study_results.regression()
    blocks = tuple(replace(block, disturbances=("[blue]|",)) for block in result.blocks)
    marked = replace(result, notes=("[bold]a|b[/bold] <x>",), base="[red]", blocks=blocks)
    text = render_study(marked, color=False, width=100)

    assert "[red] → none" in text
    assert "note: [bold]a|b[/bold] <x>" in text
    assert "left out: [blue]|" in text
    assert "- [bold]a\\|b[/bold] &lt;x>" in render_study_markdown(marked)
