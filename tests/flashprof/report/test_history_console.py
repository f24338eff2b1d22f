"""The history on a terminal: the answer first, every width readable, names of others never markup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gate_results
import pytest
from histories import launch, steps, stored

from flashprof.app.history import accept, show
from flashprof.contracts.history import History
from flashprof.report.history_console import render_history
from flashprof.report.history_markdown import render_history_markdown
from flashprof.store.history import record_gate


@pytest.fixture
def lost(tmp_path: Path) -> History:
    path = stored(tmp_path / "history.sqlite", steps((20, 0.0), (12, -0.06), (12, -0.12)))
    accept(path, "run-020", why="exact | masks\n<b>", who="ann", at="2026-11-30T10:00:00+00:00")
    record_gate(path, gate_results.failed(), [launch(0)], at="2026-11-30T11:00:00+00:00")
    return show(path)


def test_the_answer_comes_first_then_runs_changes_and_gates(lost: History) -> None:
    text = render_history(lost, color=False, width=100)
    places = [text.index(word) for word in ("LOSS −6", "cell ", "baseline", "try:", "Runs ", "Changes ", "Gates ")]

    assert sorted(places) == places
    assert "run-020 accepted by ann, 2026-11-30 10:00: exact | masks <b>" in text
    assert "44 launches in" in text


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_number_is_cut_on_any_terminal(lost: History, width: int) -> None:
    text = render_history(lost, color=False, width=width)
    runs_and_changes, _, gates = text.partition("Gates ")

    assert "…" not in runs_and_changes
    assert "\x1b" not in text
    assert gates.splitlines()[2].split()[:3] == ["2026-11-30", "11:00", "regression"] or width >= 144
    assert "−17.2" in gates


def test_colours_add_nothing_but_colours(lost: History) -> None:
    import re

    plain = re.sub(r"\x1b\[[0-9;]*m", "", render_history(lost, color=True, width=100))

    assert "\x1b" in render_history(lost, color=True, width=100)
    assert plain.split()[:4] == render_history(lost, color=False, width=100).split()[:4]


def test_what_is_not_lost_has_no_command(tmp_path: Path) -> None:
    text = render_history(show(stored(tmp_path / "h.sqlite", steps((20, 0.0)))), color=False, width=100)

    assert "no loss seen  tiny · 1+1 · none" in text
    assert "try:" not in text
    assert "Changes" not in text


def test_a_store_without_measured_launches_says_so() -> None:
    empty = History(path="h.sqlite", notes=("the history was broken",))

    assert "no launch has been measured" in render_history(empty, color=False, width=100)
    assert "> the history was broken" in render_history_markdown(empty)


def test_titles_and_branches_of_others_are_text(lost: History) -> None:
    nasty = replace(lost.series[0], title="[bold]a|b<script>\n# x", cell="c")
    history = replace(lost, series=(nasty,))

    assert "[bold]a|b<script>" in render_history(history, color=False, width=200)
    assert "\n# x" not in render_history_markdown(history)
    assert "<script>" not in render_history_markdown(history)


def test_markdown_has_the_sentences_and_tables_of_the_console(lost: History) -> None:
    text = render_history_markdown(lost)

    assert text.startswith("# History\n\n## LOSS −6")
    assert "```\n" in text
    assert "| 2026-11-06 00:00 | run-020 | −6" in text
    assert "exact \\| masks &lt;b>" in text
    assert "## Gates" in text
