"""What `flashprof run` prints: the answer first, then the tables that it came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashprof.contracts.events import SpanKind
from flashprof.contracts.results import Frame, LaneRow, PhaseRow, RunSummary, ThreadRow
from flashprof.report import figures, sentences
from flashprof.report.page import heading, make_console, plain_table, print_lines, print_paths, text_of
from flashprof.report.sentences import LaneBlock

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BAR_WIDTH = 20
BAR_FROM_WIDTH = 84
"""Narrower terminals show the share without its bar."""
SMALL_SHARE = 0.005
"""Phases below this share of their lane are shown as one line, so that 20 spans do not hide the one that matters."""
FRAMES_PER_ROLE = 5
MIN_WHERE_WIDTH = 24
MAX_THREADS = 10


def render_summary(summary: RunSummary, *, color: bool, width: int) -> str:
    """
    Draw a run for a terminal.

    Args:
        summary: What was measured; anything may be missing.
        color: Whether to write ANSI sequences; without, the bars are ASCII.
        width: Columns; longer text wraps, longer names are cut.
    """
    console = make_console(color=color, width=width)
    _print_answer(console, summary)
    _print_phases(console, summary, bars="" if width < BAR_FROM_WIDTH else "█" if color else "#")
    _print_frames(console, summary.frames)
    _print_threads(console, summary.threads)
    _print_facts(console, summary)
    return text_of(console)


def _print_answer(console: Console, summary: RunSummary) -> None:
    print_lines(console, sentences.outcome(summary), style="bold red")
    print_lines(console, [sentences.cell(summary)], style="dim")
    console.print()
    print_lines(console, [sentences.throughput(summary)], style="bold")
    print_lines(console, [sentences.token_details(summary)], style="dim")
    print_lines(console, [sentences.limiting(summary)], style="bold yellow")


def _print_phases(console: Console, summary: RunSummary, *, bars: str) -> None:
    blocks = sentences.lane_blocks(summary)
    if not blocks:
        return
    heading(console, "Phases", "own time in the measure windows; ms and calls a step of the lane")
    names = [phase.phase for block in blocks for phase in block.phases]
    name_width = max(map(len, names), default=0)
    for index, block in enumerate(blocks):
        table = _phase_table(name_width, show_header=index == 0, bars=bool(bars))
        shown, small = _split_small(block.phases)
        for phase in shown:
            _add_phase(table, phase, bars=bars)
        _print_lane_line(console, block)
        if shown:
            console.print(table)
        if small:
            share = figures.percent(sum(phase.share for phase in small))
            console.print(f"  and {len(small)} below {figures.percent(SMALL_SHARE)}, together {share}", style="dim")


def _print_lane_line(console: Console, block: LaneBlock) -> None:
    from rich.text import Text

    if block.row is None:
        console.print(Text(block.name, style="bold"))
        return
    style = "bold yellow" if block.row.is_limiting else "bold"
    line = Text.assemble((block.name, style), "  ", _lane_numbers(block.row))
    if block.row.is_limiting:
        line.append("  ◀ limiting", style=style)
    console.print(line)


def _lane_numbers(row: LaneRow) -> str:
    parts = []
    if row.num_tokens:
        rate, capacity = sentences.lane_rates(row)
        parts.append(f"{rate} tok/s of capacity {capacity}")
    shares = zip(sentences.lane_shares(row), ("work", "wait", "no phase"), strict=True)
    parts += [f"{figures.percent(share)} {word}" for share, word in shares if share > 0]
    return ", ".join(parts)


def _phase_table(name_width: int, *, show_header: bool, bars: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=show_header, header_style="dim", padding=(0, 0, 0, 2), pad_edge=True)
    table.add_column("phase", no_wrap=True, min_width=min(name_width, 24), max_width=max(name_width, 5))
    table.add_column("kind", no_wrap=True, min_width=4)
    for title in ("calls", "p50 ms", "p95 ms", "of lane"):
        table.add_column(title, no_wrap=True, justify="right", min_width=8)
    if bars:
        table.add_column("", no_wrap=True, min_width=BAR_WIDTH)
    return table


def _add_phase(table: Table, phase: PhaseRow, *, bars: str) -> None:
    from rich.text import Text

    style = "cyan" if phase.kind is SpanKind.WAIT else ""
    cells = [phase.phase, str(phase.kind), *sentences.phase_cells(phase)]
    if bars:
        cells.append(bars * _bar_length(phase.share))
    table.add_row(*(Text(cell, style=style) for cell in cells))


def _bar_length(share: float) -> int:
    return round(BAR_WIDTH * min(max(share, 0.0), 1.0)) if share == share else 0  # noqa: PLR0124  not for NaN


def _split_small(phases: Sequence[PhaseRow]) -> tuple[list[PhaseRow], list[PhaseRow]]:
    small = [phase for phase in phases if phase.share < SMALL_SHARE]
    if len(small) < 2:
        return list(phases), []
    return [phase for phase in phases if phase not in small], small


def _print_frames(console: Console, frames: Sequence[Frame]) -> None:
    if not frames:
        return
    heading(console, "Hottest frames", "stack samples of the profile windows")
    table = plain_table(("role", "left"), ("self", "right"), ("total", "right"), ("frame", "left"), ("where", "left"))
    where_width = max(MIN_WHERE_WIDTH, console.width // 2 - 8)
    for role in dict.fromkeys(frame.role for frame in frames):
        for frame in [frame for frame in frames if frame.role == role][:FRAMES_PER_ROLE]:
            shares = figures.percent(frame.self_share), figures.percent(frame.total_share)
            table.add_row(frame.role, *shares, frame.name, _tail(frame.where, where_width))
    table.columns[0].min_width = max(len(frame.role) for frame in frames)
    table.columns[4].min_width = min(where_width, max(len(frame.where) for frame in frames))
    console.print(table)


def _tail(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return text if len(text) <= width else f"…{text[-(width - 1) :]}"


def _print_threads(console: Console, threads: Sequence[ThreadRow]) -> None:
    if not threads:
        return
    heading(console, "Threads", "% of one core in the profile windows; wait: runnable, but not running")
    columns = ("usr", "sys", "wait", "switches/s", "forced/s")
    table = plain_table(("thread", "left"), *((name, "right") for name in columns), ("", "left"))
    busy = [row for row in threads if sentences.is_busy(row)]
    shown = sorted(busy, key=lambda row: -(row.usr_pct + row.system_pct + row.wait_pct))[:MAX_THREADS]
    for row in shown:
        contended = row.wait_pct >= sentences.CONTENTION_PCT
        numbers = (row.usr_pct, row.system_pct, row.wait_pct)
        switches = (row.voluntary_switches_per_s, row.involuntary_switches_per_s)
        table.add_row(
            sentences.thread_name(row),
            *(f"{number:.1f}" for number in numbers),
            *(f"{number:,.0f}" for number in switches),
            "◀ contention" if contended else "",
            style="yellow" if contended else "",
        )
    console.print(table)
    if len(threads) > len(shown):
        console.print(f"  and {len(threads) - len(shown)} quieter threads", style="dim")


def _print_facts(console: Console, summary: RunSummary) -> None:
    heading(console, "Run", summary.run_id)
    print_lines(console, sentences.run_facts(summary), style="")
    print_lines(console, sentences.window_lines(summary.windows), style="dim")
    print_lines(console, sentences.warnings(summary), style="yellow")
    print_lines(console, (f"note: {note}" for note in summary.notes), style="")
    print_paths(console, summary.paths.items())
