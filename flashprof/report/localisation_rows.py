"""The tables of a localisation, row by row: the same for console, page and report.md. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from flashprof.contracts.localisation import (
    FrameChange,
    FrameStatus,
    Localisation,
    Part,
    ResourceChange,
    Ruling,
    Suspect,
)
from flashprof.contracts.results import Interval
from flashprof.report import figures
from flashprof.report.localisation_sentences import by_ruling, lane, part_name, through

MAX_PARTS = 24
MAX_FRAMES = 20
MAX_RESOURCES = 60
CLEAR = "◀"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table."""

    cells: tuple[str, ...]
    is_clear: bool
    """Whether it is more than noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Titles and rows."""

    titles: tuple[str, ...]
    num_text: int
    """So many columns from the first on are text, the others numbers."""
    rows: tuple[Row, ...]
    num_left_out: int = 0
    """Rows that are not here, the least telling ones."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One unit for a table, so that its numbers can be compared by their length."""

    ns: float
    unit: str
    num_decimals: int

    def __call__(self, ns: float) -> str:
        """A time without its unit."""
        if not math.isfinite(ns):
            return figures.DASH
        text = f"{ns / self.ns:,.{self.num_decimals}f}".replace("-", "−")
        return text.lstrip("−") if not text.strip("−0.,") else text

    def signed(self, ns: float) -> str:
        """With its sign, whichever it is; nothing is written as 0 without one."""
        text = self(ns)
        return f"+{text}" if ns > 0 and text.strip("0.,") and text != figures.DASH else text

    def span(self, interval: Interval) -> str:
        """Both ends."""
        return f"{self.signed(interval.low)} to {self.signed(interval.high)}"


def scale_of(values_ns: Iterable[float]) -> Scale:
    """The unit that suits the largest of some times, with about three digits of it."""
    largest_ns = max((abs(ns) for ns in values_ns if math.isfinite(ns)), default=0.0)
    ns, unit = figures.time_unit(largest_ns)
    value = largest_ns / ns
    # Of nanoseconds no fraction is known.
    return Scale(ns, unit, 0 if value >= 999.5 or unit == "ns" else 1 if value >= 99.95 else 2)


def part_table(localisation: Localisation) -> Table:
    """Phases: time in both arms, charge, share, how sure the first place is, along which waits."""
    shown = localisation.parts[:MAX_PARTS]
    scale = scale_of(
        ns
        for part in shown
        for ns in (part.base_ns_per_token, part.candidate_ns_per_token, part.charge.low, part.charge.high)
    )
    times = (f"before, {scale.unit}", "after", "charge", "95 % interval")
    return Table(
        titles=("phase", "kind", "through", *times, "share", "first"),
        num_text=3,
        rows=tuple(_part(part, scale) for part in shown),
        num_left_out=len(localisation.parts) - len(shown),
    )


def frame_table(localisation: Localisation) -> Table:
    """Frames: where they are, what became of them, own and inclusive change."""
    shown = localisation.frames[:MAX_FRAMES]
    scale = scale_of(
        ns
        for frame in shown
        for ns in (
            frame.base_ns_per_token,
            frame.candidate_ns_per_token,
            *(frame.own.low, frame.own.high, frame.inclusive.low, frame.inclusive.high),
        )
    )
    titles = (
        "frame",
        "where",
        "role",
        "phase",
        "status",
        f"own, {scale.unit}",
        "95 % interval",
        "inclusive",
        "interval",
    )
    return Table(
        titles=titles,
        num_text=5,
        rows=tuple(_frame(frame, scale) for frame in shown),
        num_left_out=len(localisation.frames) - len(shown),
    )


def resource_table(localisation: Localisation) -> Table:
    """Threads, devices and counters in both arms; those that changed clearly first."""
    ordered = sorted(localisation.resources, key=lambda item: not item.is_clear)
    return Table(
        titles=("where", "what", "unit", "before", "after", "change", "95 % interval"),
        num_text=3,
        rows=tuple(map(_resource, ordered[:MAX_RESOURCES])),
        num_left_out=max(0, len(ordered) - MAX_RESOURCES),
    )


def suspect_table(localisation: Localisation) -> Table:
    """The usual causes: named first, then ruled out, then what was not measured."""
    return Table(
        titles=("suspect", "ruling", "evidence", "of the change"),
        num_text=3,
        rows=tuple(map(_suspect, by_ruling(localisation.suspects))),
    )


def status(frame: FrameChange) -> str:
    """What became of a frame, with its former name; empty for one that is on both sides as it was."""
    if frame.status is FrameStatus.CHANGED:
        return ""
    return f"{frame.status}, was {frame.was}" if frame.was else str(frame.status)


def _part(part: Part, scale: Scale) -> Row:
    return Row(
        cells=(
            part_name(part),
            part.kind,
            through(part),
            scale(part.base_ns_per_token),
            scale(part.candidate_ns_per_token),
            scale.signed(part.charge.estimate),
            scale.span(part.charge),
            figures.percent(part.share),
            figures.percent(part.first_share) if part.first_share else "",
        ),
        is_clear=part.is_clear,
    )


def _frame(frame: FrameChange, scale: Scale) -> Row:
    changes = ((scale.signed(item.estimate), scale.span(item)) for item in (frame.own, frame.inclusive))
    return Row(
        cells=(
            frame.name,
            frame.where,
            lane(frame),
            frame.phase,
            status(frame),
            *(text for pair in changes for text in pair),
        ),
        is_clear=frame.is_clear,
    )


def _resource(item: ResourceChange) -> Row:
    found = item.difference
    change = item.candidate - item.base if found is None else found.estimate
    ends = "" if found is None else " to ".join(figures.signed(end, figures.amount) for end in (found.low, found.high))
    numbers = (figures.amount(item.base), figures.amount(item.candidate), figures.signed(change, figures.amount), ends)
    return Row(cells=(item.place, item.name, item.unit, *numbers), is_clear=item.is_clear)


def _suspect(item: Suspect) -> Row:
    counts = item.ruling in (Ruling.NAMED, Ruling.PART)
    share = figures.percent(item.share) if counts else ""
    return Row(cells=(item.name, str(item.ruling), item.evidence, share), is_clear=counts)
