"""
A bisection, printed and as Markdown, against golden files, and on odd input.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import search_results
from golden import check_golden

from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.search import SearchKind, SearchResult
from flashprof.report.bisect_console import render_search
from flashprof.report.bisect_markdown import render_search_markdown

MAKERS = [
    search_results.one_culprit,
    search_results.two_culprits,
    search_results.pure_pair,
    search_results.commit,
    search_results.commits_open,
    search_results.no_regression,
    search_results.undecided,
    search_results.failed_end,
    search_results.interrupted,
]
Make = Callable[[], SearchResult]


@pytest.mark.parametrize("make", MAKERS)
def test_the_console_text_is_the_golden_one(make: Make) -> None:
    check_golden(f"bisect-{make.__name__}.txt", render_search(make(), color=False, width=100))


@pytest.mark.parametrize("make", MAKERS)
def test_the_markdown_is_the_golden_one(make: Make) -> None:
    check_golden(f"bisect-{make.__name__}.md.txt", render_search_markdown(make()))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_only_paths_and_commands_are_longer_than_the_width(make: Make, width: int) -> None:
    lines = render_search(make(), color=False, width=width).splitlines()

    assert [line for line in lines if len(line) > width and not line.startswith(("next: ", "search ", "report "))] == []


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("width", [40, 95, 96, 100])
def test_numbers_of_causes_and_proofs_are_never_cut(make: Make, width: int) -> None:
    text = render_search(make(), color=False, width=width).partition("\nHypotheses")[0].partition("\nCells")[0]

    # A long subject of a commit may be cut in a table; the answer has it whole.
    assert not re.search(r"[\d%−,.]…|…[\d%]", text)


@pytest.mark.parametrize("width", [44, 60, 71, 72, 80, 100])
def test_the_numbers_of_cells_are_never_cut(width: int) -> None:
    text = render_search(search_results.commit(), color=False, width=width)

    assert [] == [rate for rate in ("14,480", "12,020", "14,430", "build failed") if rate not in text]


def test_plain_text_has_neither_ansi_sequences_nor_box_characters() -> None:
    text = render_search(search_results.one_culprit(), color=False, width=100)

    assert "\x1b" not in text
    assert not any(0x2500 <= ord(character) <= 0x25FF for character in text)


def test_a_terminal_with_colors_has_bars() -> None:
    text = render_search(search_results.undecided(), color=True, width=100)

    assert "██████████████░░░░░░" in text
    assert "●" in text


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (search_results.one_culprit, "\x1b[1;31mswa"),
        (search_results.no_regression, "\x1b[1;32mall and none"),
        (search_results.undecided, "\x1b[1;33minconclusive"),
        (search_results.failed_end, "\x1b[1;31mfailed"),
    ],
)
def test_the_verdict_has_its_color(make: Make, start: str) -> None:
    assert render_search(make(), color=True, width=100).startswith(start)


def test_a_result_without_anything_is_said_in_words() -> None:
    empty = SearchResult(
        search="bisect-0",
        kind=SearchKind.TOGGLES,
        good="all",
        bad="none",
        cell={},
        verdict=Verdict.INCONCLUSIVE,
        standing=Standing.SCREENED,
        reason="",
        drop=None,
        culprits=(),
    )

    assert render_search(empty, color=False, width=100).startswith("inconclusive: nothing was measured: good and bad")
    assert "# all → none" in render_search_markdown(empty)


def test_numbers_that_are_not_finite_become_dashes() -> None:
    broken = search_results.broken()
    text = render_search(broken, color=False, width=100) + render_search_markdown(broken)

    assert "the difference of good and bad is not known" in text
    assert "no bound yet" in text
    assert "nan" not in text
    assert "inf" not in text


def test_many_failures_and_cells_are_counted_on_the_console_and_listed_in_the_report() -> None:
    cells = tuple(search_results.cell(f"c{number}", f"cell-{number}", 12_000.0 - number) for number in range(40))
    failures = tuple(f"hot-{number}: crashed" for number in range(9))
    long = replace(search_results.undecided(), cells=cells, failures=failures)
    text, report = render_search(long, color=False, width=100), render_search_markdown(long)

    assert "and 16 more cells, in report.md" in text
    assert "and 3 more failures, in report.md" in text
    assert [] == [item for item in (*(info.label for info in cells), *failures) if item not in report]


def test_markup_in_names_is_text() -> None:
    result = search_results.one_culprit()
    cells = (replace(result.cells[0], label="[red]|"), *result.cells[1:])
    marked = replace(result, notes=("[bold]a|b[/bold] <x>",), cells=cells, labels={"swa": "swa: [u] → <y>"})
    text, report = render_search(marked, color=False, width=100), render_search_markdown(marked)

    assert "swa ([u] → <y>) causes the drop" in text
    assert "\n  [red]|" in text
    assert "note: [bold]a|b[/bold] <x>" in text
    assert "- [bold]a\\|b[/bold] &lt;x>" in report
    assert "| [red]\\| |" in report
