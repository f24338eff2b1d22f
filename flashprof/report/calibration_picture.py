"""calibration.svg: what can be found in how many minutes, and where the noise comes from. Drawn without a library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from flashprof.contracts.calibration import Calibration, PowerPoint, Spread
from flashprof.contracts.comparison import Method
from flashprof.report.calibration_sentences import pct
from flashprof.stats.power import POWER

WIDTH, HEIGHT = 900, 380
TOP, BOTTOM = 64, 320
CURVE_LEFT, CURVE_RIGHT = 64, 430
BARS_LEFT, BARS_RIGHT = 640, 830
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
INK, FAINT = "#24292f", "#d0d7de"
COLORS = ((Method.HOT, "#0969da", ""), (Method.COLD, "#bc4c00", "6 4"))
"""Also told apart by the dashes, for eyes and printers without colour."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic scale from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Pixel of a value."""
        return self.start + (self.end - self.start) * math.log(value / self.low) / math.log(self.high / self.low)

    @property
    def ticks(self) -> list[float]:
        """Round values on the scale."""
        return [tick for tick in TICKS if self.low <= tick <= self.high]


def render_picture(calibration: Calibration) -> str:
    """The whole file."""
    body = "\n".join((*_curves(calibration.power), *_bars(calibration)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img">\n'
        f"<title>Calibration: power and noise</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _curves(power: Sequence[PowerPoint]) -> Iterator[str]:
    yield _text(CURVE_LEFT, 28, f"Smallest slow-down found with {100 * POWER:.0f} % power", weight="bold")
    lines = [(name, color, dash, _curve(power, name)) for name, color, dash in COLORS]
    points = [point for *_, curve in lines for point in curve]
    if not points:
        yield _text(CURVE_LEFT, TOP + 24, "no planted slow-down was found within the time tried")
        return
    minutes, effects = zip(*points, strict=True)
    x = _Axis(min(minutes) / 2, max(minutes) * 2, CURVE_LEFT, CURVE_RIGHT)
    y = _Axis(min(effects) / 2, max(effects) * 2, BOTTOM, TOP)
    yield from _grid(x, y)
    for number, (name, color, dash, curve) in enumerate(line for line in lines if line[3]):
        path = " ".join(f"{x.at(taken):.1f},{y.at(effect):.1f}" for taken, effect in curve)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>'
        for taken, effect in curve:
            yield f'<circle cx="{x.at(taken):.1f}" cy="{y.at(effect):.1f}" r="3.5" fill="{color}"/>'
        yield _text(CURVE_LEFT + 110 * number, 48, f"● {name}{' (dashed)' if dash else ''}", color=color)
    yield _text((CURVE_LEFT + CURVE_RIGHT) / 2, BOTTOM + 38, "minutes spent, start-up included", anchor="middle")


def _curve(power: Sequence[PowerPoint], method: Method) -> list[tuple[float, float]]:
    """Minutes and effect in percent, by effect."""
    chosen = sorted((point for point in power if point.method == method), key=lambda point: point.effect)
    return [(taken, 100 * p.effect) for p in chosen if (taken := p.minutes_for(POWER)) is not None]


def _grid(x: _Axis, y: _Axis) -> Iterator[str]:
    for tick in x.ticks:
        yield _line(x.at(tick), TOP, x.at(tick), BOTTOM, FAINT)
        yield _text(x.at(tick), BOTTOM + 18, f"{tick:g}", anchor="middle")
    for tick in y.ticks:
        yield _line(CURVE_LEFT, y.at(tick), CURVE_RIGHT, y.at(tick), FAINT)
        yield _text(CURVE_LEFT - 8, y.at(tick) + 4, f"{tick:g} %", anchor="end")


def _bars(calibration: Calibration) -> Iterator[str]:
    noise = calibration.noise
    sources: list[tuple[str, Spread | None]] = [
        ("step to step", noise.step),
        ("window to window", noise.window),
        ("pair, per block", noise.block),
        ("pair, per 20 s", noise.pair),
        ("launch to launch", noise.launch),
        (f"runs of {calibration.run_s:.0f} s", calibration.launch_sd),
    ]
    yield _text(BARS_LEFT - 130, 28, "Noise of tok/s by source (standard deviation)", weight="bold")
    yield _text(BARS_LEFT - 130, 48, "whiskers: 95 % interval; › goes on", color="#57606a")
    known = [(name, spread) for name, spread in sources if spread is not None]
    # A launch sd from two launches has an interval up to 30 times itself: it must not flatten all others.
    most = 1.5 * max((spread.sd for _, spread in known), default=0.0) or 1.0
    pitch = (BOTTOM - TOP) / len(known)
    for number, (name, spread) in enumerate(known):
        yield from _bar(name, spread, TOP + pitch * (number + 0.5), (BARS_RIGHT - BARS_LEFT) / most)


def _bar(name: str, spread: Spread, y: float, scale: float) -> Iterator[str]:
    value, low = (BARS_LEFT + scale * end for end in (spread.sd, spread.low))
    high = min(float(BARS_RIGHT), BARS_LEFT + scale * spread.high) if math.isfinite(spread.high) else float(BARS_RIGHT)
    yield _text(BARS_LEFT - 10, y + 4, name, anchor="end")
    length = max(1.0, value - BARS_LEFT)
    yield f'<rect x="{BARS_LEFT}" y="{y - 9:.1f}" width="{length:.1f}" height="18" fill="#54aeff"/>'
    yield _line(low, y, high, y, INK)
    ends = [low, high] if high < BARS_RIGHT else [low]
    for end in ends:
        yield _line(end, y - 5, end, y + 5, INK)
    more = "" if high < BARS_RIGHT else "› "
    yield _text(high + (8 if high < BARS_RIGHT else 1), y + 4, more + pct(spread.sd))


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", color: str = INK) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{color}"'
    return f"<text {place}>{escape(text)}</text>"
