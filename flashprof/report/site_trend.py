"""Tok/s of one cell over time, laid out for an SVG: points with intervals, levels, and the steps between. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flashprof.contracts.site import Trend, TrendPoint
from flashprof.report import figures
from flashprof.report.compare_sentences import change, plural
from flashprof.report.site_text import SHORT_COMMIT, clip, moment

WIDTH, HEIGHT = 720, 236
LEFT, RIGHT, TOP, BOTTOM = 62, 706, 44, 184
COMMIT_ROOM, DATE_ROOM = 60, 84
"""Labels closer than this would touch."""
COMMIT_DIGITS = 7
NUM_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One run."""

    x: float
    y: float
    y_low: float
    y_high: float
    href: str
    """Empty where the run has no page."""
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text, or a line with its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Where another level begins."""

    x: float
    text: str
    text_y: float
    anchor: str
    is_fall: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The mean between two steps."""

    x_from: float
    x_to: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPicture:
    """All that the template draws, in units of the picture."""

    cell: str
    said: str
    marks: tuple[Mark, ...]
    ticks: tuple[Label, ...]
    commits: tuple[Label, ...]
    dates: tuple[Label, ...]
    steps: tuple[Step, ...]
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    num_points: int

    def x(self, index: float) -> float:
        # Evenly spaced: on a true axis of time, ten runs of one afternoon are one blot.
        return round(LEFT + (RIGHT - LEFT) * (index + 0.5) / self.num_points, 1)

    def y(self, rate: float) -> float:
        share = (rate - self.low) / (self.high - self.low)
        return round(BOTTOM - (BOTTOM - TOP) * min(max(share, 0.0), 1.0), 1)


def trend_picture(trend: Trend, pages: Mapping[str, str]) -> TrendPicture | None:
    """
    Lay out a trend; None where it has no point.

    Args:
        trend: Points whose rate is no finite number above 0 are left out.
        pages: Run id → address of its page.
    """
    kept = [(index, point) for index, point in enumerate(trend.points) if _is_drawn(point)]
    if not kept:
        return None
    points = [point for _, point in kept]
    # Of the points that are left; two changes at one place are one.
    changes = sorted({sum(index < start for index, _ in kept) for start in trend.change_points} - {0, len(kept)})
    bounds = [0, *changes, len(points)]
    rates = [_mean(points[start:end]) for start, end in pairwise(bounds)]
    scale = _scale(points)
    return TrendPicture(
        cell=clip(trend.cell),
        said=_said(points, changes, rates),
        marks=tuple(_mark(point, scale.x(index), scale, pages) for index, point in enumerate(points)),
        ticks=tuple(Label(at=scale.y(rate), text=figures.rate(rate)) for rate in _ticks(scale.low, scale.high)),
        commits=_spaced(((scale.x(index), text) for index, text in _new_commits(points)), room=COMMIT_ROOM),
        dates=_spaced(
            ((scale.x(index), moment(point.started).text[:10]) for index, point in enumerate(points)), room=DATE_ROOM
        ),
        steps=tuple(_step(scale, row, at, rates) for row, at in enumerate(changes)),
        levels=tuple(
            Level(x_from=scale.x(start - 0.5), x_to=scale.x(end - 0.5), y=scale.y(rate))
            for (start, end), rate in zip(pairwise(bounds), rates, strict=True)
        ),
    )


def _is_drawn(point: TrendPoint) -> bool:
    return math.isfinite(point.tok_per_s.estimate) and point.tok_per_s.estimate > 0


def _mean(points: Sequence[TrendPoint]) -> float:
    """Geometric: a fall and the rise that undoes it are then of one size."""
    return math.exp(sum(math.log(point.tok_per_s.estimate) for point in points) / len(points))


def _ends(point: TrendPoint) -> tuple[float, float]:
    rate = point.tok_per_s
    return min(_finite(rate.low, rate.estimate), rate.estimate), max(_finite(rate.high, rate.estimate), rate.estimate)


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise


def _scale(points: Sequence[TrendPoint]) -> _Scale:
    """From the lowest estimate to the highest, with room: an interval of 2 windows may be ten times as wide."""
    rates = [point.tok_per_s.estimate for point in points]
    ends = [end for point in points for end in _ends(point)]
    reach = max(max(rates) - min(rates), 0.02 * max(rates))
    low, high = max(min(ends), min(rates) - reach), min(max(ends), max(rates) + reach)
    room = max(0.06 * (high - low), 0.005 * high)
    return _Scale(max(low - room, 0.0), high + room, len(points))


def _ticks(low: float, high: float) -> Iterator[float]:
    """About four round numbers within the axis."""
    raw = (high - low) / NUM_TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield number * step


def _mark(point: TrendPoint, x: float, scale: _Scale, pages: Mapping[str, str]) -> Mark:
    rate, (low, high) = point.tok_per_s, _ends(point)
    commit = f", commit {point.commit[:SHORT_COMMIT]}" if point.commit else ""
    span = f"{100 * rate.level:.0f} %: {figures.rate(rate.low)} to {figures.rate(rate.high)}"
    return Mark(
        x=x,
        y=scale.y(rate.estimate),
        y_low=scale.y(low),
        y_high=scale.y(high),
        href=pages.get(point.run_id, ""),
        title=f"{clip(point.run_id)}: {figures.rate(rate.estimate)} tok/s ({span}), {_when(point)}{commit}",
    )


def _when(point: TrendPoint) -> str:
    return clip(moment(point.started).text) or "time unknown"


def _new_commits(points: Sequence[TrendPoint]) -> Iterator[tuple[int, str]]:
    before = ""
    for index, point in enumerate(points):
        if point.commit and point.commit != before:
            yield index, point.commit[:COMMIT_DIGITS]
        before = point.commit


def _spaced(labels: Iterator[tuple[float, str]], *, room: float) -> tuple[Label, ...]:
    """Those that do not touch the one before, nor say the same again."""
    kept: list[Label] = []
    for at, text in labels:
        if text and (not kept or (at - kept[-1].at >= room and text != kept[-1].text)):
            kept.append(Label(at=at, text=text))
    return tuple(kept)


def _step(scale: _Scale, row: int, at: int, rates: Sequence[float]) -> Step:
    share = rates[row + 1] / rates[row] - 1
    x = scale.x(at - 0.5)
    return Step(
        x=x,
        text=f"{'▼' if share < 0 else '▲'} {change(share)} %",
        # Steps that follow each other closely would write over each other.
        text_y=14 + 16 * (row % 2),
        anchor="start" if x < WIDTH / 2 else "end",
        is_fall=share < 0,
    )


def _said(points: Sequence[TrendPoint], changes: Sequence[int], rates: Sequence[float]) -> str:
    if not changes:
        return f"{plural(len(points), 'run')}, no change point"
    first = points[changes[-1]]
    share = rates[-1] / rates[-2] - 1
    commit = f", commit {first.commit[:SHORT_COMMIT]}" if first.commit else ""
    moved = f"tok/s {'fell' if share < 0 else 'rose'} by {change(abs(share)).lstrip('+')} %"
    counted = f"{plural(len(points), 'run')}, {plural(len(changes), 'change point')}"
    return f"{counted}; the last: {moved} with {clip(first.run_id)}{commit}"
