"""Changes of tok/s with their intervals on one axis, and the blocks that one was read from: inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flashprof.contracts.comparison import Block, Comparison, Verdict
from flashprof.contracts.results import Interval
from flashprof.report.compare_sentences import block_change, change
from flashprof.report.site_text import clip
from flashprof.report.svg_axis import Axis, axis_of

ROW_PX = 36
FOOT_PX = 20
STRIP_PX = 130
LEAST = 0.01
"""An axis is one per cent long at least: less would make noise of 0.1 % look like a cliff."""
MAX_LABEL = 44
MAX_POINTS = 400
EDGE = 5
"""Per cent of the width: a text in the middle of a mark so close to an end would be cut."""
TONES = {Verdict.REGRESSION: "var(--bad)", Verdict.NO_REGRESSION: "var(--good)", Verdict.INCONCLUSIVE: "var(--neutral)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line of the picture."""

    label: str
    text: str
    """Estimate and interval in words."""
    found: Interval
    deciding: Interval | None = None
    """The wider one that the verdict is read from."""
    verdict: Verdict = Verdict.INCONCLUSIVE


def effect_of(label: str, text: str, comparison: Comparison) -> Effect:
    """A comparison as a line."""
    return Effect(
        label=label,
        text=text,
        found=comparison.effect,
        deciding=comparison.deciding,
        verdict=comparison.verdict,
    )


def render_effects(effects: Sequence[Effect], *, tolerance: float) -> Markup:
    """
    Draw changes below one another; empty where none is a number.

    Args:
        effects: Labels may come from a run: they are escaped.
        tolerance: A slow-down up to here is none: the shaded stretch.
    """
    drawn = [effect for effect in effects if math.isfinite(effect.found.estimate)]
    if not drawn:
        return Markup()
    ends = [end for effect in drawn for end in (effect.found.low, effect.found.high)]
    wider = [end for effect in drawn if effect.deciding for end in (effect.deciding.low, effect.deciding.high)]
    axis = axis_of([0.0, -tolerance, *(effect.found.estimate for effect in drawn)], [*ends, *wider], least=LEAST)
    height = ROW_PX * len(drawn)
    return _FIGURE.format(
        height=height + FOOT_PX,
        label="change of tok/s with its interval",
        body=_tolerance_band(axis, tolerance, height) + _ticks(axis, height) + _rows(drawn, axis),
        legend="thick: stated interval; thin: the one that judges; shaded: within the tolerance",
    )


def render_blocks(blocks: Sequence[Block], comparison: Comparison) -> Markup:
    """
    Draw the blocks of a comparison in the order of their making, so that drift and outliers are seen.

    Args:
        blocks: Of its method; those that are left out are crosses.
        comparison: Gives effect and tolerance.
    """
    shown = [block for block in blocks if math.isfinite(block_change(block))][:MAX_POINTS]
    if not shown:
        return Markup()
    effect = comparison.effect
    values = [block_change(block) for block in shown if not block.disturbances] or [*map(block_change, shown)]
    # Zero is drawn where that leaves the scatter half of the picture: beside −17 % it would hide it.
    zero = [0.0] if min(map(abs, values)) <= max(max(values) - min(values), LEAST) else []
    axis = axis_of([*zero, *values], [effect.low, effect.high, *map(block_change, shown)], least=LEAST)
    points = Markup("").join(_point(block, place, len(shown), axis) for place, block in enumerate(shown))
    return _FIGURE.format(
        height=STRIP_PX,
        label="change of tok/s in each block",
        body=_levels(axis) + _effect_band(axis, effect) + points,
        legend="points: blocks; crosses: left out; shaded: the effect's interval",
    )


def _rows(effects: Sequence[Effect], axis: Axis) -> Markup:
    rows = []
    for place, effect in enumerate(effects):
        found, wide = effect.found, effect.deciding or effect.found
        y = place * ROW_PX + 24
        rows.append(
            _ROW.format(
                label=clip(effect.label, MAX_LABEL),
                text=effect.text,
                text_y=y - 11,
                y=y,
                top=y - 7,
                bottom=y + 7,
                wide_low=axis.pct(wide.low),
                wide_high=axis.pct(wide.high),
                low=axis.pct(found.low),
                high=axis.pct(found.high),
                at=axis.pct(found.estimate),
                color=TONES[effect.verdict],
            )
        )
    return Markup("").join(rows)


def _tolerance_band(axis: Axis, tolerance: float, height: int) -> Markup:
    left, right = axis.pct(-tolerance), axis.pct(0.0)
    return _BAND.format(x=left, width=round(right - left, 2), y=0, height=height)


def _ticks(axis: Axis, height: int) -> Markup:
    return Markup("").join(
        _TICK.format(
            x=axis.pct(value),
            bottom=height,
            text_y=height + 14,
            anchor="start" if axis.pct(value) < EDGE else "end" if axis.pct(value) > 100 - EDGE else "middle",
            text=f"{change(value, _num_decimals(axis))} %",
            color="var(--muted)" if abs(value) < 1e-12 else "var(--line)",
        )
        for value in axis.ticks()
    )


def _levels(axis: Axis) -> Markup:
    return Markup("").join(
        _LEVEL.format(
            y=_y(axis, value),
            text_y=_y(axis, value) - 3,
            text=f"{change(value, _num_decimals(axis))} %",
            color="var(--muted)" if abs(value) < 1e-12 else "var(--line)",
        )
        for value in axis.ticks()
    )


def _effect_band(axis: Axis, effect: Interval) -> Markup:
    if not (math.isfinite(effect.low) and math.isfinite(effect.high)):
        return Markup("")
    top, bottom = _y(axis, effect.high), _y(axis, effect.low)
    return _BAND.format(x=0, width=100, y=top, height=round(bottom - top, 1))


def _point(block: Block, place: int, num_blocks: int, axis: Axis) -> Markup:
    value = block_change(block)
    reasons = "; ".join(dict.fromkeys(block.disturbances))
    title = f"block {block.number}, {block.order}: {change(value)} %" + (f"; left out: {reasons}" if reasons else "")
    # The labels of the levels have the first tenth.
    x = round(10 + 89 * (place + 0.5) / num_blocks, 2)
    template = _CROSS if block.disturbances else _POINT
    return template.format(title=clip(title), x=x, y=_y(axis, value))


def _y(axis: Axis, value: float) -> float:
    return round(STRIP_PX - 8 - (STRIP_PX - 24) * axis.share(value), 1)


def _num_decimals(axis: Axis) -> int:
    return 0 if axis.high - axis.low >= 0.05 else 1 if axis.high - axis.low >= 0.005 else 2


_FIGURE = Markup(
    '<figure style="margin:8px 0;max-width:900px"><svg width="100%" height="{height}" role="img" aria-label="{label}" '
    'font-size="12.5" style="display:block;font-variant-numeric:tabular-nums">{body}</svg>'
    '<figcaption class="muted"><small>{legend}</small></figcaption></figure>\n'
)
_BAND = Markup('<rect x="{x}%" y="{y}" width="{width}%" height="{height}" fill="var(--c4)" fill-opacity="0.22"></rect>')
_TICK = Markup(
    '<line x1="{x}%" x2="{x}%" y1="0" y2="{bottom}" stroke="{color}"></line>'
    '<text x="{x}%" y="{text_y}" text-anchor="{anchor}" fill="var(--muted)">{text}</text>'
)
_LEVEL = Markup(
    '<line x1="0" x2="100%" y1="{y}" y2="{y}" stroke="{color}"></line>'
    '<text x="0" y="{text_y}" fill="var(--muted)">{text}</text>'
)
_ROW = Markup(
    '<g fill="var(--ink)" paint-order="stroke" stroke-linejoin="round">'
    '<text x="1%" y="{text_y}" stroke="var(--bg)" stroke-width="4">{label}</text>'
    '<text x="99%" y="{text_y}" text-anchor="end" stroke="var(--bg)" stroke-width="4">{text}</text>'
    '<line x1="{wide_low}%" x2="{wide_high}%" y1="{y}" y2="{y}" stroke="var(--ink)"></line>'
    '<line x1="{low}%" x2="{high}%" y1="{y}" y2="{y}" stroke="{color}" stroke-width="7" stroke-opacity="0.75"></line>'
    '<line x1="{at}%" x2="{at}%" y1="{top}" y2="{bottom}" stroke="var(--ink)" stroke-width="2.5"></line></g>\n'
)
_POINT = Markup('<circle cx="{x}%" cy="{y}" r="4" fill="var(--c0)"><title>{title}</title></circle>')
_CROSS = Markup('<text x="{x}%" y="{y}" dy="4" text-anchor="middle" fill="var(--muted)">×<title>{title}</title></text>')
