"""What `flashprof compare` prints: the verdict first, then what it was read from, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashprof.contracts.comparison import Block, Comparison, StudyResult, Verdict
from flashprof.report import compare_sentences as sentences
from flashprof.report import localisation_console
from flashprof.report.compare_strip import ASCII, UNICODE, Marks, scale, strip_rows
from flashprof.report.page import heading, make_console, plain_table, print_lines, print_paths, text_of

if TYPE_CHECKING:
    from rich.console import Console

STRIP_TAKES = 32
"""Columns beside the drawing: number, order, difference."""
MAX_STRIP_WIDTH = 48
MIN_STRIP_WIDTH = 12
"""Narrower terminals show the numbers alone."""
WIDE_FROM = 96
"""Narrower terminals get comparisons as sentences, and phases without kind and interval: no number is cut."""
MAX_PHASES = 10
STYLES = {Verdict.REGRESSION: "bold red", Verdict.NO_REGRESSION: "bold green", Verdict.INCONCLUSIVE: "bold yellow"}


def render_study(result: StudyResult, *, color: bool, width: int) -> str:
    """
    Draw a comparison for a terminal.

    Args:
        result: What was found; anything may be missing.
        color: Whether to write ANSI sequences; without, the drawing is ASCII.
        width: Columns; longer text wraps, longer names are cut.
    """
    console = make_console(color=color, width=width)
    _print_answer(console, result)
    if len(result.comparisons) > 1:
        _print_comparisons(console, result.comparisons)
    for comparison in result.comparisons:
        chosen = [block for block in result.blocks if block.method is comparison.method]
        _print_strip(console, comparison, chosen, UNICODE if color else ASCII)
    if result.localisation is not None:
        shades = localisation_console.UNICODE if color else localisation_console.ASCII
        localisation_console.print_localisation(console, result.localisation, shades)
    elif result.comparisons:
        _print_phases(console, result.comparisons)
    _print_facts(console, result)
    return text_of(console)


def _print_answer(console: Console, result: StudyResult) -> None:
    style = "bold red" if sentences.is_failed(result) else STYLES[result.verdict]
    print_lines(console, [sentences.answer(result)], style=style)
    shown = sentences.speaking(result)
    if shown is not None and not sentences.is_failed(result):
        print_lines(console, [shown.reason, sentences.deciding(shown), sentences.standing(result)], style="")
    print_lines(console, [sentences.interrupted(result), sentences.to_resolve(result)], style="bold")
    print_lines(console, (f"failed: {failure}" for failure in result.failures), style="red")
    print_lines(console, [sentences.cell(result)], style="dim")


def _print_comparisons(console: Console, comparisons: Sequence[Comparison]) -> None:
    heading(console, "Comparisons", "screening by one process first, then confirmation by launches")
    if console.width < WIDE_FROM:
        print_lines(console, map(sentences.one_line, comparisons), style="")
        return
    level = sentences.level(comparisons[-1].effect).rstrip(":")
    titles = ("change %", f"{level} interval", "judged by", "launches", "blocks")
    table = plain_table(("method", "left"), *((title, "right") for title in titles), ("verdict", "left"))
    for item in comparisons:
        tolerance = item.rule.tolerance
        table.add_row(
            str(item.method),
            sentences.change(item.effect.estimate, sentences.num_decimals(item.effect, tolerance)),
            sentences.span(item.effect, tolerance),
            sentences.span(item.deciding, tolerance),
            str(item.num_launches),
            str(item.num_blocks),
            str(item.verdict),
        )
    console.print(table)


def _print_strip(console: Console, comparison: Comparison, blocks: Sequence[Block], marks: Marks) -> None:
    from rich.text import Text

    if not blocks:
        return
    width = min(MAX_STRIP_WIDTH, console.width - STRIP_TAKES)
    shown = width >= MIN_STRIP_WIDTH
    columns = [("block", "right"), ("order", "left"), ("change", "right"), *([("", "left")] if shown else [])]
    heading(console, f"Blocks, {comparison.method}", "change of tok/s in each, in the order of their making")
    table = plain_table(*columns)
    if shown:
        table.columns[-1].header = Text(scale(blocks, width=width), style="dim")
    for row in strip_rows(blocks, width=max(width, MIN_STRIP_WIDTH), marks=marks):
        cells = (row.label, row.order, row.difference, *([row.drawing] if shown else []))
        table.add_row(*(Text(cell) for cell in cells), style="dim" if row.is_left_out else "")
    console.print(table)


def _print_phases(console: Console, comparisons: Sequence[Comparison]) -> None:
    compared = sentences.with_phases(comparisons)
    if compared is None:
        return
    heading(console, f"Phases, {compared.method}", "own time in µs a token: the base's, and what the candidate adds")
    print_lines(console, [sentences.phases(compared)], style="")
    is_wide = console.width >= WIDE_FROM
    middle, end = ([("kind", "left")], [("interval", "right")]) if is_wide else ([], [])
    table = plain_table(
        ("role", "left"), ("phase", "left"), *middle, ("base", "right"), ("change", "right"), *end, ("", "left")
    )
    shown = sentences.by_weight(compared.phases)[:MAX_PHASES]
    for phase in shown:
        role, name, kind, base, change, span = sentences.phase_cells(phase)
        cells = (role, name, kind, base, change, span) if is_wide else (role, name, base, change)
        table.add_row(*cells, "◀" if phase.is_changed else "", style="bold" if phase.is_changed else "dim")
    console.print(table)
    rest = len(compared.phases) - len(shown)
    if rest:
        console.print(f"  and {sentences.plural(rest, 'phase')} that changed less", style="dim")


def _print_facts(console: Console, result: StudyResult) -> None:
    heading(console, *(("Study", result.study) if result.study else ("Runs", "measured earlier")))
    print_lines(console, [sentences.cost(result)], style="")
    print_lines(console, sentences.left_out(result.blocks), style="yellow")
    print_lines(console, (f"note: {note}" for note in sentences.notes(result)), style="")
    print_paths(console, result.paths)
