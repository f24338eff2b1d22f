"""One run as the page shows it: the terminal's sentences, and the tables that they come from. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from flashprof.contracts.events import SpanKind
from flashprof.contracts.results import Frame, PhaseRow, RunSummary, ThreadRow, Window, WindowKind
from flashprof.contracts.site import RunView
from flashprof.report import figures, sentences
from flashprof.report.site_text import (
    Badge,
    Moment,
    bar_pct,
    clip,
    file_link,
    microseconds,
    moment,
    outcome_badge,
)

MAX_OPEN_LANES = 6
"""Of more lanes, only the limiting one shows its phases at once."""
MAX_WINDOWS = 400
MAX_FRAMES = 30
MAX_THREADS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPiece:
    """A stretch of the run."""

    label: str
    kind: str
    grow: float
    """Its length in seconds: the strip shares its width by it."""
    length: str
    num_steps: int
    rate: str
    reason: str
    """Why it is left out; empty for one that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCells:
    """One phase of a lane."""

    name: str
    kind: str
    calls: str
    p50: str
    p95: str
    per_token_us: str
    share: str
    bar: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCells:
    """One lane."""

    name: str
    is_limiting: bool
    is_open: bool
    rate: str
    capacity: str
    work: str
    wait: str
    rest: str
    work_bar: float
    wait_bar: float
    phases: tuple[PhaseCells, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """All that the template needs."""

    id: str
    name: str
    badge: Badge
    started: Moment
    folder: str
    """Address of the run's folder; empty where there is no safe one."""
    part_of: str
    part_of_href: str
    failed: tuple[str, ...]
    cell: str
    throughput: str
    details: str
    limiting: str
    said: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    windows: tuple[WindowPiece, ...]
    num_windows: int
    window_lines: tuple[str, ...]
    lanes: tuple[LaneCells, ...]
    timeline: str
    """HTML; empty where there is none."""
    flame: str
    """HTML; empty where there are no stack samples."""
    frames: tuple[Frame, ...]
    threads: tuple[tuple[str, ThreadRow, bool], ...]
    """Name, figures, whether it had to wait for a core."""
    num_threads: int
    facts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """Section, then the names and values below it."""
    files: tuple[tuple[str, str, str], ...]
    """What it is, its path, its address."""


def run_page(
    view: RunView,
    page_id: str,
    *,
    part_of_href: str,
    flame: Callable[[RunView, str], str],
    timeline: Callable[[RunView, str], str],
) -> RunPage:
    """
    Prepare the view of a run.

    Args:
        view: What is known of it.
        page_id: Of its section.
        part_of_href: Address of the comparison or bisect that it is a launch of; may be empty.
        flame: Draws stack samples, with the id that is given.
        timeline: Draws the timeline of a run that has one, with the id that is given.
    """
    summary = view.summary
    widget = page_id.replace("/", "-")
    return RunPage(
        id=page_id,
        name=clip(summary.run_id),
        badge=outcome_badge(summary.outcome),
        started=moment(view.started),
        folder=file_link(view.folder, ".", ""),
        part_of=clip(view.is_part_of),
        part_of_href=part_of_href,
        failed=_clipped(sentences.outcome(summary)),
        cell=clip(sentences.cell(summary)),
        throughput=sentences.throughput(summary),
        details=sentences.token_details(summary),
        limiting=clip(sentences.limiting(summary)),
        said=_clipped(sentences.run_facts(summary)),
        warnings=_clipped(sentences.warnings(summary)),
        notes=_clipped(summary.notes),
        windows=tuple(_window(window, view) for window in summary.windows[:MAX_WINDOWS]),
        num_windows=len(summary.windows),
        window_lines=_clipped(sentences.window_lines(summary.windows)),
        lanes=_lanes(summary),
        timeline=timeline(view, f"timeline-{widget}") if view.timeline else "",
        flame=flame(view, f"flame-{widget}") if any(item.num_samples for item in view.profiles) else "",
        frames=summary.frames[:MAX_FRAMES],
        threads=_threads(summary.threads),
        num_threads=len(summary.threads),
        facts=_facts(view),
        files=_files(view),
    )


def _clipped(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(clip(line) for line in lines)


def _window(window: Window, view: RunView) -> WindowPiece:
    length_s = max(window.length_s, 0.0)
    return WindowPiece(
        label=clip(window.label, 40),
        kind=str(window.kind),
        grow=round(length_s, 3),
        length=figures.seconds(length_s),
        num_steps=window.num_steps,
        rate=figures.rate(window.tok_per_s),
        reason=clip("; ".join(dict.fromkeys(view.disturbances.get(window.label, ())))),
    )


def _lanes(summary: RunSummary) -> tuple[LaneCells, ...]:
    measured = [window for window in summary.windows if window.kind is WindowKind.MEASURE]
    num_tokens = sum(window.num_tokens for window in measured)
    blocks = sentences.lane_blocks(summary)
    return tuple(_lane(block, num_tokens, all_open=len(blocks) <= MAX_OPEN_LANES) for block in blocks)


def _lane(block: sentences.LaneBlock, num_tokens: int, *, all_open: bool) -> LaneCells:
    row = block.row
    is_limiting = row is not None and row.is_limiting
    work, wait, rest = sentences.lane_shares(row) if row else (math.nan,) * 3
    rate, capacity = sentences.lane_rates(row)
    return LaneCells(
        name=clip(block.name, 80),
        is_limiting=is_limiting,
        is_open=all_open or is_limiting,
        rate=rate,
        capacity=capacity,
        work=figures.percent(work),
        wait=figures.percent(wait),
        rest=figures.percent(rest),
        work_bar=bar_pct(work),
        wait_bar=bar_pct(wait),
        phases=tuple(_phase(phase, num_tokens) for phase in block.phases),
    )


def _phase(phase: PhaseRow, num_tokens: int) -> PhaseCells:
    calls, p50, p95, share = sentences.phase_cells(phase)
    return PhaseCells(
        name=clip(phase.phase, 80),
        kind="wait" if phase.kind is SpanKind.WAIT else "work",
        calls=calls,
        p50=p50,
        p95=p95,
        per_token_us=microseconds(figures.ratio(phase.self_ns, num_tokens)),
        share=share,
        bar=bar_pct(phase.share),
    )


def _threads(threads: Sequence[ThreadRow]) -> tuple[tuple[str, ThreadRow, bool], ...]:
    busy = sorted(filter(sentences.is_busy, threads), key=lambda row: -(row.usr_pct + row.system_pct + row.wait_pct))
    return tuple(
        (clip(sentences.thread_name(row), 80), row, row.wait_pct >= sentences.CONTENTION_PCT)
        for row in busy[:MAX_THREADS]
    )


def _facts(view: RunView) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, value in sorted(view.facts.items()):
        section, _, rest = name.partition(".")
        sections.setdefault(clip(section, 40), []).append((clip(rest or name, 120), clip(value)))
    return tuple((section, tuple(rows)) for section, rows in sections.items())


def _files(view: RunView) -> tuple[tuple[str, str, str], ...]:
    paths = view.summary.paths
    root = paths.get("run", "")
    return tuple((clip(name, 80), clip(path), file_link(view.folder, path, root)) for name, path in paths.items())
