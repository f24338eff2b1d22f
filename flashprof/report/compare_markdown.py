"""A study's report.md: the same sentences and tables as the console, for a pull request or a wiki."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashprof.contracts.comparison import Block, Comparison, StudyResult
from flashprof.report import compare_sentences as sentences
from flashprof.report.localisation_markdown import localisation_blocks
from flashprof.report.pipe_table import escape, pipe_table


def render_study_markdown(result: StudyResult) -> str:
    """The whole report as GitHub-flavoured Markdown; anything may be missing in *result*."""
    localised = localisation_blocks(result.localisation) if result.localisation else ()
    phases = () if result.localisation else _phases(result)
    tables = (_comparisons(result.comparisons), localised, _blocks(result.blocks), phases)
    sections = (_answer(result), *tables, _facts(result))
    return "\n\n".join(block for section in sections for block in section if block) + "\n"


def _answer(result: StudyResult) -> Iterator[str]:
    yield f"# {escape(sentences.arms(result))}"
    yield f"**{escape(sentences.answer(result))}**"
    shown = sentences.speaking(result)
    if shown is not None and not sentences.is_failed(result):
        facts = (shown.reason, sentences.deciding(shown), sentences.standing(result), sentences.to_resolve(result))
        yield "\n".join(f"- {escape(fact)}" for fact in facts if fact)
    yield escape(sentences.interrupted(result))
    yield "\n".join(f"> failed: {escape(failure)}" for failure in result.failures)
    yield escape(sentences.cell(result))


def _comparisons(comparisons: Sequence[Comparison]) -> Iterator[str]:
    if not comparisons:
        return
    yield "## Comparisons"
    titles = ("method", "verdict", "change %", "interval", "judged by", "launches", "blocks", "windows", "left out")
    yield pipe_table(titles, [_comparison(item) for item in comparisons], num_text=2)


def _comparison(item: Comparison) -> tuple[str, ...]:
    tolerance = item.rule.tolerance
    counts = (item.num_launches, item.num_blocks, item.num_windows, item.num_left_out)
    return (
        str(item.method),
        str(item.verdict),
        sentences.change(item.effect.estimate, sentences.num_decimals(item.effect, tolerance)),
        f"{sentences.level(item.effect)} {sentences.span(item.effect, tolerance)}",
        f"{sentences.level(item.deciding)} {sentences.span(item.deciding, tolerance)}",
        *(f"{count:,}" for count in counts),
    )


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    if blocks:
        yield "## Blocks"
        titles = ("block", "order", "launches", "site", "left out", "change %", "windows", "s")
        yield pipe_table(titles, [_block(block) for block in blocks], num_text=5)


def _block(block: Block) -> tuple[str, ...]:
    return (
        f"{block.method} {block.number}",
        block.order,
        ", ".join(f"`{launch}`" for launch in block.launches),
        block.site,
        "; ".join(dict.fromkeys(block.disturbances)),
        sentences.change(sentences.block_change(block)),
        str(block.num_windows),
        f"{block.length_s:.1f}",
    )


def _phases(result: StudyResult) -> Iterator[str]:
    compared = sentences.with_phases(result.comparisons)
    if compared is None:
        return
    yield "## Phases"
    yield f"Own time in µs a token, {compared.method} blocks. {escape(sentences.phases(compared))}."
    titles = ("role", "phase", "kind", "changed", "base", "change", "interval")
    rows = []
    for phase in sentences.by_weight(compared.phases):
        role, name, kind, *numbers = sentences.phase_cells(phase)
        rows.append((role, f"`{name}`", kind, "◀" if phase.is_changed else "", *numbers))
    yield pipe_table(titles, rows, num_text=4)


def _facts(result: StudyResult) -> Iterator[str]:
    yield "## Study" if result.study else "## Runs"
    facts = [sentences.cost(result), *sentences.notes(result)]
    facts += [f"{name}: `{path}`" for name, path in result.paths]
    yield "\n".join(f"- {escape(fact)}" for fact in (result.study, *facts) if fact)
