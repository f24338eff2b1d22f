"""Where a change lies, as a part of report.md: the same sentences and tables as everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flashprof.contracts.localisation import Localisation
from flashprof.report import localisation_sentences as sentences
from flashprof.report.localisation_rows import (
    CLEAR,
    Table,
    frame_table,
    part_table,
    resource_table,
    suspect_table,
)
from flashprof.report.pipe_table import escape, pipe_table

TABLES: tuple[tuple[str, Callable[[Localisation], Table]], ...] = (
    ("Parts of the change, a token", part_table),
    ("Frames that changed, a token", frame_table),
    ("Resources", resource_table),
    ("The usual suspects", suspect_table),
)


def localisation_blocks(localisation: Localisation) -> Iterator[str]:
    """Blocks of GitHub-flavoured Markdown, to be joined by empty lines; empty ones are to be left out."""
    yield "## Where"
    yield f"**{_sentence(sentences.headline(localisation))}**"
    facts = (sentences.totals(localisation), sentences.explained(localisation), *sentences.facts(localisation))
    yield "\n".join(f"- {_text(fact)}" for fact in (*facts, *localisation.notes) if fact)
    for title, make in TABLES:
        yield from _table(title, make(localisation))


def _table(title: str, table: Table) -> Iterator[str]:
    if not table.rows:
        return
    yield f"### {title}"
    rows = [(*(_text(cell) for cell in row.cells), CLEAR if row.is_clear else "") for row in table.rows]
    # What is clear is marked in the last column, which is as good as text: to the left of it are numbers.
    yield pipe_table((*table.titles, ""), rows, num_text=table.num_text)
    if table.num_left_out:
        yield f"and {table.num_left_out} more that changed less"


def _sentence(text: str) -> str:
    """A headline: what it has between backquotes is code, where nothing needs an escape."""
    pieces = text.split("`")
    return "`".join(piece if place % 2 else _text(piece) for place, piece in enumerate(pieces))


def _text(text: str) -> str:
    """Text that stays text: names are a run's, and `[x](javascript:…)` would be a link."""
    for mark in "\\[]*_":
        text = text.replace(mark, f"\\{mark}")
    return escape(text.replace("`", "'").replace("\n", " "))
