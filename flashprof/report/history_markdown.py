"""The history as Markdown: the same sentences and tables as the console, for an issue or a job's summary."""

from __future__ import annotations

from collections.abc import Iterator

from flashprof.contracts.history import History, Series
from flashprof.report import history_sentences as sentences
from flashprof.report.compare_strip import ASCII
from flashprof.report.history_strip import scale, strip_rows
from flashprof.report.pipe_table import escape, pipe_table

STRIP_WIDTH = 48


def render_history_markdown(history: History) -> str:
    """All series, what is lost first, then the gates, as GitHub-flavoured Markdown."""
    parts = [part for series in history.series for part in _series(series)]
    gates = pipe_table(sentences.GATE_TITLES, map(sentences.gate_cells, history.gates), num_text=3)
    head = ("# History", *(f"> {escape(note)}" for note in history.notes), escape(sentences.nothing(history)))
    tail = ("## Gates" if gates else "", gates, escape(sentences.store(history)))
    return "\n\n".join(part for part in (*head, *parts, *tail) if part) + "\n"


def _series(series: Series) -> Iterator[str]:
    yield f"## {escape(sentences.headline(series))}"
    lines = (sentences.facts(series), sentences.standing(series))
    yield "\n".join(
        [*(f"- {escape(line)}" for line in lines), *(f"- `{command}`" for command in sentences.remedies(series))]
    )
    if series.launches:
        rows = strip_rows(series, width=STRIP_WIDTH, marks=ASCII)
        table = [
            f"{row.when:16}  {row.commit:7}  {row.count:4} {row.rate:>10} {'<' if row.is_change else ' '} {row.drawing}"
            for row in rows
        ]
        whole = (f"{'':43}{scale(series, width=STRIP_WIDTH)}", *table)
        yield "\n".join(("```", *(line.rstrip() for line in whole), "```"))
    yield pipe_table(sentences.CHANGE_TITLES, map(sentences.change_cells, series.changes), num_text=2)
    yield "\n".join(f"- {escape(line)}" for line in map(sentences.acknowledged, series.changes) if line)
