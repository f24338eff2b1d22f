"""What `flashprof gate` prints: the verdict first, then each metric, where it lies, what it cost, what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashprof.contracts.gate import GateResult
from flashprof.report import gate_sentences as sentences
from flashprof.report import localisation_console
from flashprof.report.gate_sentences import Ending
from flashprof.report.page import heading, make_console, plain_table, print_lines, print_paths, text_of
from flashprof.report.site_text import clip

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    Ending.PASS: "bold green",
    Ending.FAIL: "bold red",
    Ending.INCONCLUSIVE: "bold yellow",
    Ending.FAILED: "bold red",
    Ending.INTERRUPTED: "bold yellow",
}
WIDE_FROM = 100
"""Narrower terminals get metrics as sentences: no number is cut."""
MAX_FAILURES = 4
MAX_NOTES = 4
MAX_METRICS = 12
"""A screen; report.md has them all."""
MAX_NAME = 24


def render_gate(result: GateResult, *, color: bool, width: int) -> str:
    """
    Draw a gate for a terminal.

    Args:
        result: What was found; anything may be missing.
        color: Whether to write ANSI sequences; without, the drawing is ASCII.
        width: Columns; longer text wraps, longer names are cut.
    """
    console = make_console(color=color, width=width)
    _print_answer(console, result)
    _print_metrics(console, result)
    if result.localisation is not None:
        shades = localisation_console.UNICODE if color else localisation_console.ASCII
        localisation_console.print_localisation(console, result.localisation, shades)
    else:
        print_lines(console, [sentences.where(result)], style="")
    _print_facts(console, result)
    return text_of(console)


def _print_answer(console: Console, result: GateResult) -> None:
    print_lines(console, [sentences.answer(result)], style=STYLES[sentences.ending(result)])
    print_lines(console, [sentences.reason(result)], style="")
    print_lines(
        console, [sentences.culprit(result), sentences.interrupted(result), sentences.to_resolve(result)], style="bold"
    )
    print_lines(console, sentences.failures(result, MAX_FAILURES), style="red")
    print_lines(console, [sentences.cell(result)], style="dim")
    command, what_for = sentences.next_step(result)
    if command:
        # Never wrapped: it is there to be copied.
        console.print(f"next: {command}   ({what_for})", soft_wrap=True)


def _print_metrics(console: Console, result: GateResult) -> None:
    shown = result.metrics[:MAX_METRICS]
    if not shown:
        return
    heading(console, "Metrics", sentences.mode(result))
    if console.width < WIDE_FROM:
        print_lines(console, (f"{sentences.one_line(item)}: {sentences.word_of(item)}" for item in shown), style="")
    else:
        _print_table(console, result)
    print_lines(console, sentences.other_reasons(result)[:MAX_METRICS], style="")
    rest = len(result.metrics) - len(shown)
    if rest:
        console.print(f"  and {rest} more, in report.md", style="dim")


def _print_table(console: Console, result: GateResult) -> None:
    from rich.text import Text

    last = len(sentences.METRIC_TITLES) - 1
    table = plain_table(
        *((title, "left" if place in (0, last) else "right") for place, title in enumerate(sentences.METRIC_TITLES))
    )
    for item in result.metrics[:MAX_METRICS]:
        name, *cells = sentences.metric_row(item)
        style = "" if item.change is None else STYLES[sentences.ENDINGS[item.verdict]].removeprefix("bold ")
        table.add_row(clip(name, MAX_NAME), *map(Text, cells[:-1]), Text(cells[-1], style=style))
    console.print(table)


def _print_facts(console: Console, result: GateResult) -> None:
    heading(console, "Gate", result.gate)
    print_lines(console, [sentences.cost(result)], style="")
    notes = sentences.notes(result)
    print_lines(console, (f"note: {note}" for note in notes[:MAX_NOTES]), style="")
    if len(notes) > MAX_NOTES:
        console.print(f"and {len(notes) - MAX_NOTES} more notes, in report.md", style="")
    print_paths(console, result.paths)
