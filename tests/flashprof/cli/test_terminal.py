"""Progress shows what the subject prints, whatever it prints, and logs stay lines."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from flashprof.cli.terminal import BarProgress, LineProgress, make_bars


@pytest.mark.parametrize("detail", ["[/opt/conda/bin/python]", "[rank0] [red]loss", "step 1/9 [/]", "100% ██"])
def test_what_the_subject_prints_is_shown_as_it_is(detail: str) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    with make_bars(console) as bars:
        progress = BarProgress(bars)
        progress.stage("starting the subject", total_s=10.0)
        progress.advance(1.0, detail)
        bars.refresh()
        progress.note(detail)
    shown = console.file.getvalue()  # type: ignore[attr-defined]

    assert 2 <= shown.count(detail)


def test_each_stage_replaces_the_bar_before_it() -> None:
    with make_bars(Console(file=StringIO())) as bars:
        progress = BarProgress(bars)
        progress.stage("one")
        progress.stage("two", total_s=3.0)
        descriptions = [task.description for task in bars.tasks]

    assert ["two"] == descriptions


def test_lines_say_when_and_up_to_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LineProgress()
    progress.stage("starting", total_s=600.0)
    progress.advance(1.0, "nothing is printed for this")
    progress.stage("summarising")
    said = capsys.readouterr()

    assert "" == said.out
    assert ["starting (up to 600 s)", "summarising"] == [line.partition("] ")[2] for line in said.err.splitlines()]
