"""A search's report.md: the same sentences and tables as the console, for a pull request or a wiki."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashprof.contracts.search import SearchResult
from flashprof.report import bisect_rows as rows
from flashprof.report import bisect_sentences as sentences
from flashprof.report.localisation_markdown import localisation_blocks
from flashprof.report.localisation_sentences import focus
from flashprof.report.pipe_table import escape, pipe_table

BAR_WIDTH = 20


def render_search_markdown(result: SearchResult) -> str:
    """The whole report as GitHub-flavoured Markdown; anything may be missing in *result*."""
    localised = localisation_blocks(result.localisation) if result.localisation else ()
    tables = (_causes(result), _proofs(result), localised, _beliefs(result), _cells(result))
    sections = (_answer(result), *tables, _facts(result))
    return "\n\n".join(block for section in sections for block in section if block) + "\n"


def _answer(result: SearchResult) -> Iterator[str]:
    yield f"# {escape(' → '.join(sentences.ends(result)))}"
    yield f"**{escape(sentences.answer(result))}**"
    reasons = () if sentences.is_failed(result) else (result.reason, sentences.standing(result), focus(result.focus))
    command, what_for = sentences.next_step(result)
    facts = (sentences.gains(result), *reasons, sentences.interrupted(result), sentences.to_resolve(result))
    yield _list((*facts, f"next: `{command}` {what_for}" if command else ""))
    yield "\n".join(f"> failed: {escape(sentences.shorten_ids(failure))}" for failure in result.failures)
    yield escape(sentences.between(result))
    yield escape(sentences.cell(result))


def _causes(result: SearchResult) -> Iterator[str]:
    yield from _table(sentences.causes_heading(result), rows.CAUSE_TITLES, rows.cause_rows(result))


def _proofs(result: SearchResult) -> Iterator[str]:
    titles = ("cause", *rows.PROOF_TITLES)
    found = [(sentences.proof_heading(result, proof), *rows.proof_row(proof)) for proof in result.proofs]
    yield from _table("Proof", titles, found, num_text=3)


def _beliefs(result: SearchResult) -> Iterator[str]:
    found = rows.belief_rows(result, width=BAR_WIDTH, marks=rows.UNICODE)
    yield from _table("Hypotheses", rows.BELIEF_TITLES, found, num_text=3)


def _cells(result: SearchResult) -> Iterator[str]:
    found = [(*rows.cell_row(info), info.outcome) for info in rows.in_order(result)]
    yield from _table("Cells", (*rows.CELL_TITLES, "outcome"), found)


def _facts(result: SearchResult) -> Iterator[str]:
    yield "## Search"
    told = (result.search, sentences.cost(result), sentences.one_at_a_time(result))
    notes = (sentences.shorten_ids(note) for note in result.notes)
    yield _list((*told, *notes, *(f"{name}: `{path}`" for name, path in result.paths)))


def _table(title: str, titles: Sequence[str], found: Sequence[Sequence[str]], *, num_text: int = 1) -> Iterator[str]:
    if found:
        yield f"## {title}"
        yield pipe_table(titles, found, num_text=num_text)


def _list(facts: Sequence[str]) -> str:
    return "\n".join(f"- {escape(fact)}" for fact in facts if fact)
