"""Progress of a search, on a terminal and in a log."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
import search_results
from rich.console import Console

from flashprof.cli.bisect_progress import LookBars, LookLines, search_progress_on_stderr
from flashprof.cli.terminal import make_bars


def drawn(shown: LookBars, width: int = 70) -> str:
    console = Console(file=StringIO(), width=width, force_terminal=False)
    console.print(shown.draw())
    text = console.file
    assert isinstance(text, StringIO)
    return text.getvalue()


def test_a_log_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LookLines()
    for number in range(1, 40):
        lines.look(replace(search_results.look(), num_readings=number))
    told = capsys.readouterr().err.splitlines()

    assert [1, 2, 4, 8, 16, 32] == [int(line.partition("; ")[2].split()[0]) for line in told]


def test_off_a_terminal_it_is_lines() -> None:
    with search_progress_on_stderr() as progress:
        assert isinstance(progress, LookLines)


def test_a_terminal_has_the_panel_above_the_bar() -> None:
    shown = LookBars(make_bars(Console(file=StringIO(), width=70)))
    shown.stage("launching")
    before = drawn(shown)
    shown.look(search_results.look())
    lines = drawn(shown).splitlines()

    assert "launching" in before
    assert "swa" not in before
    assert lines[0].startswith("██████████████░░░░░░   71 %  swa")
    assert "14 readings in 1 launch" in lines[4]
    assert "launching" in lines[5]


def test_what_looks_like_markup_is_text() -> None:
    shown = LookBars(make_bars(Console(file=StringIO(), width=70)))
    shown.look(replace(search_results.look(), next_cell="[red]x[/red]"))

    assert "next [red]x[/red]" in drawn(shown)
