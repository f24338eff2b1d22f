"""What `flashprof history` prints: what is lost first, then each series as a strip with its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashprof.contracts.history import ChangeStatus, History, HistoryGate, Series
from flashprof.report import history_sentences as sentences
from flashprof.report.compare_strip import ASCII, UNICODE, Marks
from flashprof.report.history_strip import scale, strip_rows
from flashprof.report.page import heading, make_console, plain_table, print_lines, text_of
from flashprof.report.site_text import clip

if TYPE_CHECKING:
    from rich.console import Console

STRIP_TAKES = 56
"""Columns beside the drawing: when, commit, how many, tok/s, mark."""
MAX_STRIP_WIDTH = 48
MIN_STRIP_WIDTH = 12
"""Narrower terminals show the numbers alone."""
WIDE_FROM = 96
"""Narrower terminals get changes without their runs and intervals: no number is cut."""
NARROW_CELLS = (0, 2, 4, 5)
GATES_WIDE_FROM = 144
GATE_TAKES = 51
"""Columns beside the name of the head: when, verdict, change."""
NARROW_GATE_CELLS = (0, 2, 3, 5)
STYLES = {ChangeStatus.OPEN: "bold red", ChangeStatus.FOLLOWED: "green", ChangeStatus.MENDS: "green"}


def render_history(history: History, *, color: bool, width: int) -> str:
    """
    Draw a history for a terminal.

    Args:
        history: What is kept and what it shows.
        color: Whether to write ANSI sequences; without, the drawing is ASCII.
        width: Columns; longer text wraps, longer names are cut.
    """
    console = make_console(color=color, width=width)
    print_lines(console, history.notes, style="yellow")
    print_lines(console, [sentences.nothing(history)], style="bold")
    for series in history.series:
        _print_series(console, series, UNICODE if color else ASCII)
    _print_gates(console, history.gates)
    console.print()
    print_lines(console, [sentences.store(history)], style="dim")
    return text_of(console)


def _print_series(console: Console, series: Series, marks: Marks) -> None:
    console.print()
    print_lines(console, [sentences.headline(series)], style="bold red" if series.is_lost else "bold")
    print_lines(console, [sentences.facts(series)], style="dim")
    print_lines(console, [sentences.standing(series)], style="")
    for command in sentences.remedies(series):
        # Never wrapped: a command is there to be copied.
        console.print(f"  try: {command}", soft_wrap=True)
    if series.launches:
        _print_strip(console, series, marks)
    _print_changes(console, series)


def _print_strip(console: Console, series: Series, marks: Marks) -> None:
    from rich.text import Text

    width = min(MAX_STRIP_WIDTH, console.width - STRIP_TAKES)
    shown = width >= MIN_STRIP_WIDTH
    heading(console, "Runs", f"the oldest first; {marks.zero} is the baseline, < begins another level")
    columns = [("since", "left"), ("commit", "left"), ("", "left"), ("tok/s", "right"), ("", "left")]
    table = plain_table(*columns, *([("", "left")] if shown else []))
    if shown:
        table.columns[-1].header = Text(scale(series, width=width), style="dim")
    for row in strip_rows(series, width=max(width, MIN_STRIP_WIDTH), marks=marks):
        cells = (row.when, row.commit, row.count, row.rate, "<" if row.is_change else "")
        table.add_row(*(Text(cell) for cell in (*cells, *([row.drawing] if shown else []))))
    console.print(table)


def _print_changes(console: Console, series: Series) -> None:
    if not series.changes:
        return
    heading(console, "Changes", "of tok/s, from the level before to the level after")
    is_wide = console.width >= WIDE_FROM
    places = range(len(sentences.CHANGE_TITLES)) if is_wide else NARROW_CELLS
    sides = ("left", "left", "right", "right", "left", "left")
    table = plain_table(*((sentences.CHANGE_TITLES[place], sides[place]) for place in places))
    for change in series.changes:
        cells = sentences.change_cells(change)
        table.add_row(*(cells[place] for place in places), style=STYLES.get(change.status, ""))
    console.print(table)
    print_lines(console, map(sentences.acknowledged, series.changes), style="dim")


def _print_gates(console: Console, gates: tuple[HistoryGate, ...]) -> None:
    if not gates:
        return
    heading(console, "Gates", "the newest first")
    places = range(len(sentences.GATE_TITLES)) if console.width >= GATES_WIDE_FROM else NARROW_GATE_CELLS
    sides = ("left", "left", "left", "right", "left", "left")
    table = plain_table(*((sentences.GATE_TITLES[place], sides[place]) for place in places))
    for gate in gates:
        *cells, head = sentences.gate_cells(gate)
        # What a change is called gives way; when, verdict and number do not.
        cells.append(clip(head, max(8, console.width - GATE_TAKES)))
        table.add_row(*(cells[place] for place in places))
    console.print(table)
