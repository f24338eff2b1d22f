"""What `flashprof bisect` prints: the verdict first, then what proves it, what else is possible, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.search import SearchResult
from flashprof.report import bisect_rows as rows
from flashprof.report import bisect_sentences as sentences
from flashprof.report import localisation_console
from flashprof.report.compare_sentences import plural
from flashprof.report.localisation_sentences import focus
from flashprof.report.page import heading, make_console, plain_table, print_lines, print_paths, text_of

if TYPE_CHECKING:
    from rich.console import Console

WIDE_FROM = 96
"""Narrower terminals get causes and proofs as sentences: no number is cut."""
MAX_BELIEFS = 5
MAX_FAILURES = 6
MAX_CELLS = 24
"""A screenful; report.md has them all."""
BAR_WIDTH = 20
NUMBERS_FROM = 72
"""Narrower terminals get of a cell only its tok/s."""
MIN_LABEL_WIDTH = 12
MAX_LABEL_WIDTH = 44
MAX_STRIP_WIDTH = 40
MIN_STRIP_WIDTH = 12
STYLES = {Verdict.REGRESSION: "bold red", Verdict.NO_REGRESSION: "bold green", Verdict.INCONCLUSIVE: "bold yellow"}


def render_search(result: SearchResult, *, color: bool, width: int) -> str:
    """
    Draw a bisection for a terminal.

    Args:
        result: What was found; anything may be missing.
        color: Whether to write ANSI sequences; without, the drawing is ASCII.
        width: Columns; longer text wraps, longer names are cut.
    """
    console = make_console(color=color, width=width)
    marks = rows.UNICODE if color else rows.ASCII
    _print_answer(console, result)
    _print_causes(console, result)
    _print_proofs(console, result)
    if result.localisation is not None:
        shades = localisation_console.UNICODE if color else localisation_console.ASCII
        localisation_console.print_localisation(console, result.localisation, shades)
    _print_beliefs(console, result, marks)
    _print_cells(console, result, marks)
    _print_facts(console, result)
    return text_of(console)


def _print_answer(console: Console, result: SearchResult) -> None:
    is_failed = sentences.is_failed(result)
    print_lines(console, [sentences.answer(result)], style="bold red" if is_failed else STYLES[result.verdict])
    print_lines(console, [sentences.gains(result)], style="bold")
    if not is_failed:
        print_lines(console, [result.reason, sentences.standing(result), focus(result.focus)], style="")
    print_lines(console, [sentences.interrupted(result), sentences.to_resolve(result)], style="bold")
    _print_failures(console, result.failures)
    print_lines(console, [sentences.between(result), sentences.cell(result)], style="dim")
    command, what_for = sentences.next_step(result)
    if command:
        # Never wrapped: it is there to be copied.
        console.print(f"next: {command}   ({what_for})", soft_wrap=True)


def _print_failures(console: Console, failures: Sequence[str]) -> None:
    shown = failures[:MAX_FAILURES]
    print_lines(console, (f"failed: {sentences.shorten_ids(item)}" for item in shown), style="red")
    rest = len(failures) - len(shown)
    if rest:
        console.print(f"and {plural(rest, 'more failure')}, in report.md", style="red")


def _print_causes(console: Console, result: SearchResult) -> None:
    found = rows.cause_rows(result)
    if not found:
        return
    what = "what each brings, if these and no others matter"
    heading(console, sentences.causes_heading(result), what)
    if console.width < WIDE_FROM:
        lines = (f"{title}: {change} % ({span}), {share} of the drop" for title, change, span, share in found)
        print_lines(console, lines, style="")
        return
    _print_table(console, rows.CAUSE_TITLES, found, num_left=1)


def _print_proofs(console: Console, result: SearchResult) -> None:
    if not result.proofs:
        return
    heading(console, "Proof", "each culprit alone in the good cell, and switched back in the bad one")
    if console.width < WIDE_FROM:
        print_lines(console, (sentences.proof_line(result, proof) for proof in result.proofs), style="")
        return
    headings = [sentences.proof_heading(result, proof) for proof in result.proofs]
    for text in dict.fromkeys(headings):
        if text:
            print_lines(console, [text], style="")
        found = [rows.proof_row(proof) for proof, own in zip(result.proofs, headings, strict=True) if own == text]
        _print_table(console, rows.PROOF_TITLES, found, num_left=2)


def _print_beliefs(console: Console, result: SearchResult, marks: rows.Marks) -> None:
    from rich.text import Text

    found = rows.belief_rows(result, width=BAR_WIDTH, marks=marks)[:MAX_BELIEFS]
    if not found:
        return
    heading(console, "Hypotheses", "exactly these matter, and nothing else")
    table = plain_table(("", "right"), ("", "left"), ("", "left"))
    table.show_header = False
    for probability, bar, title, _ in found:
        table.add_row(probability, bar, Text(title))
    console.print(table)


def _print_cells(console: Console, result: SearchResult, marks: rows.Marks) -> None:
    from rich.text import Text

    cells = rows.in_order(result)
    if not cells:
        return
    shown = cells[:MAX_CELLS]
    is_narrow = console.width < NUMBERS_FROM
    titles = rows.CELL_TITLES[3:] if is_narrow else rows.CELL_TITLES[1:]
    outcome_width = max(len(info.outcome) for info in shown)
    # Two columns between neighbours; no number is wider than a title.
    room = console.width - sum(2 + max(len(title), 7) for title in titles) - 4
    longest = max(len(rows.cell_row(info)[0]) for info in shown)
    label_width = min(longest, MAX_LABEL_WIDTH, max(MIN_LABEL_WIDTH, room - max(outcome_width, MIN_STRIP_WIDTH)))
    width = min(MAX_STRIP_WIDTH, room - label_width)
    drawn = rows.strips(result, width=width, marks=marks) if width >= MIN_STRIP_WIDTH else {}
    heading(console, "Cells", "both ends, then from fast to slow" + (f"; {marks.end} the ends" if drawn else ""))
    table = plain_table(("cell", "left"), *((title, "right") for title in titles), ("", "left"))
    table.columns[0].max_width = label_width
    for info in shown:
        label, *numbers = rows.cell_row(info)
        row = (label, *numbers[-len(titles) :], info.outcome or drawn.get(info.cell, ""))
        table.add_row(*map(Text, row), style="dim" if info.tok_per_s is None else "")
    console.print(table)
    rest = len(cells) - MAX_CELLS
    if rest > 0:
        console.print(f"  and {plural(rest, 'more cell')}, in report.md", style="dim")


def _print_facts(console: Console, result: SearchResult) -> None:
    heading(console, "Search", result.search)
    print_lines(console, [sentences.cost(result), sentences.one_at_a_time(result)], style="")
    print_lines(console, (f"note: {sentences.shorten_ids(note)}" for note in result.notes), style="")
    print_paths(console, result.paths)


def _print_table(console: Console, titles: Sequence[str], found: Sequence[Sequence[str]], *, num_left: int) -> None:
    from rich.text import Text

    sides = ("left" if place < num_left else "right" for place in range(len(titles)))
    table = plain_table(*zip(titles, sides, strict=True))
    table.columns[0].max_width = MAX_LABEL_WIDTH
    for row in found:
        table.add_row(*map(Text, row))
    console.print(table)
