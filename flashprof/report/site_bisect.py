"""The view of a bisect: the culprit, what proves it, what else is possible, every cell, where it costs its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.search import CellInfo, SearchKind, SearchResult
from flashprof.contracts.site import BisectView
from flashprof.report import bisect_rows as rows
from flashprof.report import bisect_sentences as sentences
from flashprof.report import figures
from flashprof.report import localisation_sentences as where
from flashprof.report.compare_sentences import change, num_decimals, span
from flashprof.report.effect_axis import Effect, effect_of, render_effects
from flashprof.report.localisation_rows import Row, Table
from flashprof.report.site_compare import clipped_lines, files
from flashprof.report.site_localisation import LocalisationView, clipped, localisation_view
from flashprof.report.site_template import environment
from flashprof.report.site_text import Badge, Moment, bar_pct, clip, moment, verdict_badge

MAX_CELLS = 200
MAX_COMMITS = 400
MAX_LABEL = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefBar:
    """A hypothesis."""

    title: str
    probability: str
    pct: float
    effects: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLine:
    """A cell that was looked at, or a commit that was not."""

    label: str
    launches: str
    readings: str
    rate: str
    at: float | None
    """Between the slowest cell and the fastest, 0 to 100; None without a number."""
    outcome: str
    role: str
    """`good`, `bad`, `culprit`; empty for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectPage:
    """All that the template needs."""

    id: str
    title: str
    badge: Badge
    search: str
    started: Moment
    answer: str
    said: tuple[str, ...]
    going_on: tuple[str, ...]
    next_command: str
    next_for: str
    failures: tuple[str, ...]
    cell: str
    headline: str
    focus: str
    causes_title: str
    causes: Table
    beliefs: tuple[BeliefBar, ...]
    proofs_drawn: Markup
    proofs: Table
    cells: tuple[CellLine, ...]
    ends: tuple[float, ...]
    """Where good and bad lie, 0 to 100."""
    commits: tuple[CellLine, ...]
    """In their order; empty for toggles."""
    localisation: LocalisationView | None
    cost: tuple[str, ...]
    notes: tuple[str, ...]
    files: tuple[tuple[str, str, str], ...]


def render_bisect(view: BisectView, id: str) -> str:  # noqa: A002 (the attribute's name, as for all widgets)
    """
    Draw a bisect as a section of the page.

    Args:
        view: Everything in it may be hostile.
        id: Of the section.
    """
    return environment().get_template("bisect.html").render(page=bisect_page(view, id))


def bisect_page(view: BisectView, page_id: str) -> BisectPage:
    """Prepare the view of a bisect; anything may be missing in it."""
    result = view.result
    is_failed = sentences.is_failed(result)
    badge = verdict_badge(result.verdict, is_failed=is_failed)
    reasons = () if is_failed else (sentences.shorten_ids(result.reason), sentences.standing(result))
    command, what_for = sentences.next_step(result)
    return BisectPage(
        id=page_id,
        title=clip(" → ".join(sentences.ends(result))),
        badge=badge,
        search=clip(result.search),
        started=moment(view.started),
        answer=clip(sentences.answer(result).removeprefix(f"{badge.word}: ")),
        said=clipped_lines((sentences.gains(result), *reasons)),
        going_on=clipped_lines((sentences.interrupted(result), sentences.to_resolve(result))),
        next_command=clip(command),
        next_for=what_for,
        failures=clipped_lines(map(sentences.shorten_ids, result.failures)),
        cell=clip(sentences.cell(result)),
        headline=_headline(view),
        focus=clip(where.focus(result.focus)),
        causes_title=sentences.causes_heading(result),
        causes=clipped(_causes(result)),
        beliefs=_beliefs(result),
        proofs_drawn=render_effects(proof_effects(result), tolerance=sentences.tolerance(result)),
        proofs=clipped(_proofs(result)),
        cells=tuple(_cell(info, result) for info in rows.in_order(result)[:MAX_CELLS]),
        ends=_ends(result),
        commits=_commits(result),
        localisation=localisation_view(
            view.localisation, page_id, base=view.base_profiles, candidate=view.candidate_profiles
        ),
        cost=clipped_lines((sentences.cost(result), sentences.one_at_a_time(result))),
        notes=clipped_lines(map(sentences.shorten_ids, result.notes)),
        files=files(view.folder, result.paths),
    )


def _headline(view: BisectView) -> str:
    if view.localisation is not None:
        return where.headline(view.localisation)
    return where.missing(is_shown=True) if view.result.verdict is Verdict.REGRESSION else ""


def _causes(result: SearchResult) -> Table:
    gains = {sentences.cause_title(result, cause) for cause in result.gains}
    found = tuple(Row(cells=cells, is_clear=cells[0] not in gains) for cells in rows.cause_rows(result))
    return Table(titles=rows.CAUSE_TITLES, num_text=1, rows=found)


def _beliefs(result: SearchResult) -> tuple[BeliefBar, ...]:
    return tuple(
        BeliefBar(
            title=clip(sentences.belief_title(result, belief)),
            probability=figures.percent(belief.probability),
            pct=bar_pct(belief.probability),
            effects=", ".join(f"{change(found.estimate)} %" for found in belief.effects),
        )
        for belief in result.beliefs
    )


def proof_effects(result: SearchResult) -> list[Effect]:
    """Each proof that was measured as a line of a picture."""
    measured = [(proof, proof.comparison) for proof in result.proofs if proof.comparison is not None]
    has_methods = len({item.method for _, item in measured}) > 1
    has_causes = len({proof.cause for proof, _ in measured}) > 1
    effects = []
    for proof, item in measured:
        cause = f"{sentences.shorten_ids(proof.cause.name)}: " if has_causes and proof.cause.members else ""
        how = f", {sentences.method(item.method)}" if has_methods else ""
        least = item.rule.tolerance
        text = f"{change(item.effect.estimate, num_decimals(item.effect, least))} % ({span(item.effect, least)})"
        effects.append(effect_of(f"{cause}{sentences.proof_place(proof)}{how}", text, item))
    return effects


def _proofs(result: SearchResult) -> Table:
    found = tuple(
        Row(cells=(sentences.proof_heading(result, proof), *rows.proof_row(proof)), is_clear=proof.is_shown)
        for proof in result.proofs
    )
    return Table(titles=("cause", *rows.PROOF_TITLES), num_text=3, rows=found)


def _cell(info: CellInfo, result: SearchResult) -> CellLine:
    label, launches, readings, rate = rows.cell_row(info)
    return CellLine(
        label=clip(label, MAX_LABEL),
        launches=launches,
        readings=readings,
        rate=rate,
        at=_place(info.tok_per_s, result),
        outcome=clip(info.outcome, MAX_LABEL),
        role=_role(info.cell, info, result),
    )


def _commits(result: SearchResult) -> tuple[CellLine, ...]:
    """All commits in question, the oldest first, with what was measured at each."""
    if result.kind is not SearchKind.COMMITS:
        return ()
    looked_at = {info.cell: info for info in result.cells}
    # Good is no member of the commits that may have done it, and comes first where it is left out.
    ordered = dict.fromkeys([*(info.cell for info in _good(result)), *(result.labels or {})])
    return tuple(_commit(commit, looked_at.get(commit), result) for commit in list(ordered)[:MAX_COMMITS])


def _commit(commit: str, info: CellInfo | None, result: SearchResult) -> CellLine:
    if info is not None:
        return _cell(info, result)
    label = sentences.title_of(result, commit)
    return CellLine(
        label=clip(label, MAX_LABEL),
        launches="",
        readings="",
        rate="",
        at=None,
        outcome="",
        role=_role(commit, None, result),
    )


def _role(cell: str, info: CellInfo | None, result: SearchResult) -> str:
    if any(cause.members == (cell,) for cause in result.culprits) and result.kind is SearchKind.COMMITS:
        return "culprit" if result.verdict is Verdict.REGRESSION else "suspect"
    good, bad = sentences.end_cells(result)
    return "" if info is None else "good" if info is good else "bad" if info is bad else ""


def _good(result: SearchResult) -> list[CellInfo]:
    good, _ = sentences.end_cells(result)
    return [good] if good is not None else []


def _place(rate: float | None, result: SearchResult) -> float | None:
    rates = _rates(result.cells)
    if not sentences.is_number(rate) or not rates:
        return None
    reach = max(rates) - min(rates)
    return bar_pct(figures.ratio(rate - min(rates), reach)) if reach > 0 else 50.0


def _ends(result: SearchResult) -> tuple[float, ...]:
    places = (_place(info.tok_per_s, result) for info in sentences.end_cells(result) if info is not None)
    return tuple(place for place in places if place is not None)


def _rates(cells: Sequence[CellInfo]) -> list[float]:
    return [info.tok_per_s for info in cells if sentences.is_number(info.tok_per_s)]
