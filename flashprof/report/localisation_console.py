"""Where a change lies, for a terminal: what `flashprof compare` and `bisect` print under their verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashprof.contracts.localisation import FrameChange, Localisation, Ruling
from flashprof.report import figures
from flashprof.report import localisation_sentences as sentences
from flashprof.report.compare_sentences import plural
from flashprof.report.localisation_rows import CLEAR, scale_of, status
from flashprof.report.page import heading, plain_table, print_lines
from flashprof.report.site_text import clip
from flashprof.report.waterfall_steps import Step, Waterfall, waterfall

if TYPE_CHECKING:
    from rich.console import Console

MAX_STEPS = 4
MAX_FRAMES = 3
MAX_SUSPECTS = 2
BAR_WIDTH = 24
BAR_FROM = 80
"""Narrower terminals get the numbers alone."""
INTERVAL_FROM = 64
MAX_NAME_WIDTH = 34
MAX_FRAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Characters of the bars."""

    clear: str
    wait: str
    noise: str
    zero: str


ASCII = Marks(clear="#", wait="=", noise=".", zero="|")
UNICODE = Marks(clear="█", wait="▒", noise="░", zero="│")


def print_localisation(console: Console, localisation: Localisation, marks: Marks = ASCII) -> None:
    """
    Print where a change lies, as a part of a longer report: a heading, one sentence, the waterfall, frames, suspects.

    Args:
        console: Of the report; longer text wraps at its width, longer names are cut.
        localisation: What was found; anything may be missing.
        marks: Of the bars.
    """
    heading(console, "Where", sentences.totals(localisation))
    print_lines(console, [sentences.headline(localisation)], style="bold")
    print_lines(console, sentences.facts(localisation)[:1], style="")
    steps = waterfall(localisation, max_steps=MAX_STEPS)
    if steps is not None and localisation.parts:
        _print_steps(console, steps, marks)
    _print_frames(console, localisation)
    _print_suspects(console, localisation)


def _print_steps(console: Console, found: Waterfall, marks: Marks) -> None:
    from rich.text import Text

    scale = scale_of(ns for step in found.steps for ns in (step.change_ns, found.total_ns))
    is_wide, has_bar = console.width >= INTERVAL_FROM, console.width >= BAR_FROM
    interval = [("interval", "right")] if is_wide else []
    table = plain_table(
        ("phase", "left"), (f"{scale.unit} a token", "right"), *interval, ("share", "right"), ("", "left")
    )
    table.columns[0].max_width = MAX_NAME_WIDTH
    for step in found.steps:
        low_ns, high_ns = step.low_ns - step.start_ns, step.high_ns - step.start_ns
        span = f"{scale.signed(low_ns)} to {scale.signed(high_ns)}" if math.isfinite(low_ns) else ""
        numbers = (scale.signed(step.change_ns), *([span] if is_wide else []), figures.percent(step.share))
        last = _bar(step, found, marks) if has_bar else CLEAR if step.is_clear else ""
        table.add_row(*map(Text, (step.name, *numbers, last)), style="" if step.is_clear else "dim")
    console.print(table)


def _bar(step: Step, found: Waterfall, marks: Marks) -> str:
    cells = [" "] * BAR_WIDTH
    cells[round((BAR_WIDTH - 1) * found.place(0.0))] = marks.zero
    ends = sorted(round((BAR_WIDTH - 1) * found.place(ns)) for ns in (step.start_ns, step.end_ns))
    mark = marks.noise if not step.is_clear else marks.wait if step.is_wait else marks.clear
    cells[ends[0] : ends[1] + 1] = mark * (ends[1] + 1 - ends[0])
    return "".join(cells).rstrip()


def _print_frames(console: Console, localisation: Localisation) -> None:
    clear = [frame for frame in localisation.frames if frame.is_clear][:MAX_FRAMES]
    print_lines(console, map(_frame_line, clear), style="")


def _frame_line(frame: FrameChange) -> str:
    what = f", {status(frame)}" if status(frame) else ""
    where = f" ({_tail(frame.where)})" if frame.where else ""
    change = figures.signed(frame.own.estimate, figures.time_text)
    return f"in {clip(frame.name, MAX_FRAME)}{where}: {change} a token{what}"


def _tail(where: str) -> str:
    """The end of a path tells more than its beginning."""
    return where if len(where) <= MAX_FRAME else f"…{where[1 - MAX_FRAME :]}"


def _print_suspects(console: Console, localisation: Localisation) -> None:
    named = [it for it in sentences.by_ruling(localisation.suspects) if it.ruling is Ruling.NAMED]
    lines = [f"suspect {it.name}, {figures.percent(it.share)} of it: {it.evidence}" for it in named[:MAX_SUSPECTS]]
    rest = len(named) - len(lines)
    if rest:
        lines.append(f"and {plural(rest, 'more suspect')}, in report.md")
    if localisation.suspects and not named:
        lines.append(f"no usual suspect covers most of it: {sentences.suspect_counts(localisation.suspects)}")
    print_lines(console, lines, style="")
