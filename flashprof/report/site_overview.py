"""The first view: the latest verdict, all verdicts, all runs, and what could not be read. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flashprof.contracts.localisation import Localisation
from flashprof.contracts.results import Interval
from flashprof.contracts.site import BisectView, CompareView, RunView, Site
from flashprof.report import bisect_sentences, compare_sentences, figures
from flashprof.report.compare_sentences import plural
from flashprof.report.site_text import (
    SHORT_COMMIT,
    Badge,
    Moment,
    bar_pct,
    clip,
    moment,
    outcome_badge,
    verdict_badge,
)

Headline = Callable[[Localisation], str]
MAX_CELL = 80
"""Characters in a cell of the table of runs; a command line is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whisker:
    """An interval on an axis that runs alike share, in per cent of its length."""

    low: float
    at: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run in the table."""

    href: str
    name: str
    started: Moment
    what: str
    """Toggles, or the command of a foreign trainer."""
    commit: str
    topology: str
    machine: str
    tok_per_s: float
    """NaN where there is none."""
    is_comparable: bool
    """Whether the launch was completed: a failed run is no slow run, whatever it measured before."""
    rate: str
    span: str
    whisker: Whisker | None
    limiting: str
    startup_s: float
    outcome: Badge
    reason: str
    part_of: str
    """Name of the comparison or bisect; empty for a run of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """A comparison or a bisect in the table."""

    href: str
    kind: str
    name: str
    badge: Badge
    answer: str
    """The terminal's first line, without the verdict, which the badge says."""
    where: str
    """Where the change lies, in a sentence; empty where that was not looked for."""
    standing: str
    started: Moment


def run_rows(runs: Sequence[RunView], hrefs: Sequence[str]) -> tuple[RunRow, ...]:
    """One row a run, in their order."""
    axes = _axes(runs)
    return tuple(_run_row(view, href, axes[_alike(view)]) for view, href in zip(runs, hrefs, strict=True))


def verdict_rows(site: Site, compares: Sequence[str], bisects: Sequence[str], headline: Headline) -> list[VerdictRow]:
    """
    Comparisons and bisects, the newest first.

    Args:
        site: What there is.
        compares: Addresses of the comparisons' pages.
        bisects: Addresses of the bisects' pages.
        headline: Says where a change lies.
    """
    rows = [_compare_row(view, href, headline) for view, href in zip(site.compares, compares, strict=True)]
    rows += [_bisect_row(view, href, headline) for view, href in zip(site.bisects, bisects, strict=True)]
    return sorted(rows, key=lambda row: -row.started.order)


def counts(site: Site) -> str:
    """What the folder holds, in one line."""
    own = [view for view in site.runs if not view.is_part_of]
    num_failed = sum(not view.summary.outcome.is_measurement for view in own)
    failed = f" ({num_failed} not completed)" if num_failed else ""
    parts = [f"{plural(len(own), 'run')}{failed}"]
    named = (
        (len(site.compares), "comparison"),
        (len(site.bisects), "bisect"),
        (len(site.runs) - len(own), "launch"),
        (len(site.broken), "unreadable folder"),
    )
    return ", ".join(parts + [plural(count, noun) for count, noun in named if count])


def _compare_row(view: CompareView, href: str, headline: Headline) -> VerdictRow:
    result = view.result
    return VerdictRow(
        href=href,
        kind="compare",
        name=clip(result.study, MAX_CELL),
        badge=verdict_badge(result.verdict, is_failed=compare_sentences.is_failed(result)),
        answer=clip(compare_sentences.answer(result).split("  ", 1)[-1]),
        where=clip(headline(view.localisation)) if view.localisation else "",
        standing=str(result.standing) if result.comparisons else "",
        started=moment(view.started),
    )


def _bisect_row(view: BisectView, href: str, headline: Headline) -> VerdictRow:
    result = view.result
    badge = verdict_badge(result.verdict, is_failed=bisect_sentences.is_failed(result))
    return VerdictRow(
        href=href,
        kind="bisect",
        name=clip(result.search, MAX_CELL),
        badge=badge,
        answer=clip(bisect_sentences.answer(result).removeprefix(f"{badge.word}: ")),
        where=clip(headline(view.localisation)) if view.localisation else "",
        standing=str(result.standing) if result.proofs else "",
        started=moment(view.started),
    )


def _run_row(view: RunView, href: str, axis: tuple[float, float]) -> RunRow:
    summary, rate = view.summary, view.summary.tok_per_s
    limiting = next((str(row.lane) for row in summary.lanes if row.is_limiting), "")
    return RunRow(
        href=href,
        name=clip(summary.run_id, MAX_CELL),
        started=moment(view.started),
        what=_cell_text(summary.cell, "toggles", "command"),
        commit=view.facts.get("source.commit", "")[:SHORT_COMMIT],
        topology=_cell_text(summary.cell, "topology"),
        machine=_cell_text(summary.cell, "machine") or clip(view.facts.get("machine.host", ""), MAX_CELL),
        tok_per_s=rate.estimate if rate else math.nan,
        is_comparable=summary.outcome.is_measurement,
        rate=figures.rate(rate.estimate) if rate else figures.DASH,
        span=f"{100 * rate.level:.0f} %: {figures.rate(rate.low)} to {figures.rate(rate.high)}" if rate else "",
        whisker=_whisker(rate, axis) if rate and summary.outcome.is_measurement else None,
        limiting=clip(limiting, MAX_CELL),
        startup_s=math.nan if summary.startup_s is None else summary.startup_s,
        outcome=outcome_badge(summary.outcome),
        reason=clip(summary.reason),
        part_of=view.is_part_of,
    )


def _cell_text(cell: Mapping[str, object], *names: str) -> str:
    return next((clip(cell[name], MAX_CELL) for name in names if cell.get(name)), "")


def _alike(view: RunView) -> tuple[str, ...]:
    """What makes rates of one size: a tiny model on a laptop would press all runs of a server into a dot."""
    return tuple(str(view.summary.cell.get(name, "")) for name in ("preset", "command", "topology", "machine"))


def _axes(runs: Sequence[RunView]) -> dict[tuple[str, ...], tuple[float, float]]:
    ends: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for view in runs:
        rate = view.summary.tok_per_s
        # An interval of two windows may be endless; the estimates alone then make the axis.
        found = ends[_alike(view)]
        if rate and view.summary.outcome.is_measurement:
            found += [value for value in (rate.estimate, rate.low, rate.high) if _is_near(value, rate)]
    return {key: (min(values), max(values)) if values else (0.0, 0.0) for key, values in ends.items()}


def _is_near(value: float, rate: Interval) -> bool:
    return math.isfinite(value) and abs(value - rate.estimate) <= abs(rate.estimate)


def _whisker(rate: Interval, axis: tuple[float, float]) -> Whisker | None:
    low, high = axis
    if not math.isfinite(rate.estimate) or high <= low:
        return None

    def place(value: float, otherwise: float) -> float:
        return bar_pct(figures.ratio(value - low, high - low)) if math.isfinite(value) else otherwise

    return Whisker(low=place(rate.low, 0.0), at=place(rate.estimate, 0.0), high=place(rate.high, 100.0))
