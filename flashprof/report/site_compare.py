"""The view of a comparison: verdict with its evidence, where the difference lies, every block. Escaped by Jinja."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flashprof.contracts.comparison import Block, Comparison, DecisionRule, StudyResult, Verdict
from flashprof.contracts.site import CompareView
from flashprof.report import compare_sentences as sentences
from flashprof.report import localisation_sentences as where
from flashprof.report.effect_axis import Effect, effect_of, render_blocks, render_effects
from flashprof.report.localisation_rows import Row, Table
from flashprof.report.site_localisation import LocalisationView, clipped, localisation_view
from flashprof.report.site_template import environment
from flashprof.report.site_text import Badge, Moment, clip, file_link, moment, verdict_badge

MAX_BLOCKS = 200
MAX_PHASES = 40
MAX_NOTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePage:
    """All that the template needs."""

    id: str
    title: str
    badge: Badge
    study: str
    started: Moment
    answer: str
    said: tuple[str, ...]
    going_on: tuple[str, ...]
    failures: tuple[str, ...]
    cell: str
    headline: str
    """Where the difference lies, or why that is not known."""
    effects: Markup
    comparisons: Table
    strips: tuple[tuple[str, Markup], ...]
    """Method, its blocks as a picture."""
    left_out: tuple[str, ...]
    localisation: LocalisationView | None
    phases: Table
    phases_said: str
    blocks: Table
    cost: str
    notes: tuple[str, ...]
    files: tuple[tuple[str, str, str], ...]
    """What it is, its path, its address."""


def render_compare(view: CompareView, id: str) -> str:  # noqa: A002 (the attribute's name, as for all widgets)
    """
    Draw a comparison as a section of the page.

    Args:
        view: Everything in it may be hostile.
        id: Of the section.
    """
    return environment().get_template("compare.html").render(page=compare_page(view, id))


def compare_page(view: CompareView, page_id: str) -> ComparePage:
    """Prepare the view of a comparison; anything may be missing in it."""
    result, shown = view.result, sentences.speaking(view.result)
    is_failed = sentences.is_failed(result)
    said = (shown.reason, sentences.deciding(shown), sentences.standing(result)) if shown and not is_failed else ()
    return ComparePage(
        id=page_id,
        title=clip(sentences.arms(result)),
        badge=verdict_badge(result.verdict, is_failed=is_failed),
        study=clip(result.study),
        started=moment(view.started),
        answer=clip(sentences.answer(result).split("  ", 1)[-1]),
        said=clipped_lines(said),
        going_on=clipped_lines((sentences.interrupted(result), sentences.to_resolve(result))),
        failures=clipped_lines(result.failures),
        cell=clip(sentences.cell(result)),
        headline=_headline(view),
        effects=render_effects(comparison_effects(result.comparisons), tolerance=tolerance_of(result.comparisons)),
        comparisons=clipped(_comparisons(result.comparisons)),
        strips=tuple(_strips(result)),
        left_out=clipped_lines(sentences.left_out(result.blocks)),
        localisation=localisation_view(
            view.localisation, page_id, base=view.base_profiles, candidate=view.candidate_profiles
        ),
        phases=clipped(_phases(result)),
        phases_said=_phases_said(result),
        blocks=clipped(_blocks(result.blocks)),
        cost=sentences.cost(result),
        notes=clipped_lines(sentences.notes(result)),
        files=files(view.folder, result.paths),
    )


def clipped_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Those that say something, cut; no more than a person reads."""
    return tuple(clip(line) for line in lines if line)[:MAX_NOTES]


def files(folder: str, paths: Sequence[tuple[str, str]]) -> tuple[tuple[str, str, str], ...]:
    """What each file is, its path as it was written down, and its address beside the page; the folder comes first."""
    root = paths[0][1] if paths else ""
    return tuple((clip(name, 80), clip(path), file_link(folder, path, root)) for name, path in paths[:MAX_NOTES])


def _headline(view: CompareView) -> str:
    if view.localisation is not None:
        return where.headline(view.localisation)
    return where.missing(is_shown=view.result.verdict is Verdict.REGRESSION)


def comparison_effects(comparisons: Sequence[Comparison]) -> list[Effect]:
    """Each comparison as a line of a picture."""
    return [effect_of(str(item.method), _change(item), item) for item in comparisons]


def tolerance_of(comparisons: Sequence[Comparison]) -> float:
    """What the last one is held against."""
    return comparisons[-1].rule.tolerance if comparisons else DecisionRule().tolerance


def _change(item: Comparison) -> str:
    tolerance = item.rule.tolerance
    estimate = sentences.change(item.effect.estimate, sentences.num_decimals(item.effect, tolerance))
    return f"{estimate} % ({sentences.span(item.effect, tolerance)})"


def _comparisons(comparisons: Sequence[Comparison]) -> Table:
    titles = ("method", "verdict", "change %", "interval", "judged by", "launches", "blocks", "windows", "left out")
    return Table(titles=titles, num_text=2, rows=tuple(map(_comparison, comparisons)))


def _comparison(item: Comparison) -> Row:
    tolerance = item.rule.tolerance
    counts = (item.num_launches, item.num_blocks, item.num_windows, item.num_left_out)
    cells = (
        str(item.method),
        str(item.verdict),
        sentences.change(item.effect.estimate, sentences.num_decimals(item.effect, tolerance)),
        f"{sentences.level(item.effect)} {sentences.span(item.effect, tolerance)}",
        f"{sentences.level(item.deciding)} {sentences.span(item.deciding, tolerance)}",
        *(f"{count:,}" for count in counts),
    )
    return Row(cells=cells, is_clear=item.verdict is not Verdict.INCONCLUSIVE)


def _strips(result: StudyResult) -> Iterable[tuple[str, Markup]]:
    for item in result.comparisons:
        drawn = render_blocks([block for block in result.blocks if block.method is item.method], item)
        if drawn:
            yield str(item.method), drawn


def _blocks(blocks: Sequence[Block]) -> Table:
    return Table(
        titles=("block", "order", "launches", "site", "left out", "change %", "windows", "s"),
        num_text=5,
        rows=tuple(map(_block, blocks[:MAX_BLOCKS])),
        num_left_out=max(0, len(blocks) - MAX_BLOCKS),
    )


def _block(block: Block) -> Row:
    cells = (
        f"{block.method} {block.number}",
        block.order,
        ", ".join(block.launches),
        block.site,
        "; ".join(dict.fromkeys(block.disturbances)),
        sentences.change(sentences.block_change(block)),
        f"{block.num_windows:,}",
        f"{block.length_s:.1f}",
    )
    return Row(cells=cells, is_clear=False)


def _phases(result: StudyResult) -> Table:
    compared = sentences.with_phases(result.comparisons)
    changes = sentences.by_weight(compared.phases) if compared else []
    return Table(
        titles=("role", "phase", "kind", "base, µs", "change", "interval"),
        num_text=3,
        rows=tuple(Row(cells=sentences.phase_cells(it), is_clear=it.is_changed) for it in changes[:MAX_PHASES]),
        num_left_out=max(0, len(changes) - MAX_PHASES),
    )


def _phases_said(result: StudyResult) -> str:
    compared = sentences.with_phases(result.comparisons)
    return f"{compared.method}: {sentences.phases(compared)}" if compared else ""
