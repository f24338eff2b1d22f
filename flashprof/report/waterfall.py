"""
A change as a staircase from base to candidate: inline SVG in a page's colours, as wide as there is room.

Places are per cent of the width and texts keep their size, so that it is read on a telephone and on paper alike. Colour
says faster or slower, and so does the sign; waits are hatched, and what is within noise is grey.
"""

from __future__ import annotations

import math

from markupsafe import Markup

from flashprof.contracts.localisation import Localisation
from flashprof.report import figures
from flashprof.report.site_text import clip
from flashprof.report.svg_axis import EDGE_PCT
from flashprof.report.waterfall_steps import Step, Waterfall, waterfall

ROW_PX = 38
BAR_TOP_PX, BAR_PX = 19, 13
MAX_NAME = 60
MIN_BAR_PCT = 0.3
"""What is next to nothing is drawn all the same."""


def render_waterfall(localisation: Localisation, *, id: str) -> Markup:  # noqa: A002 (the attribute's name)
    """
    Draw the parts of a change.

    Args:
        localisation: Its parts sum to the change.
        id: Of the element; unique on its page.

    Returns:
        An HTML figure with everything from a run escaped; empty where the change is no number, or has no parts.
    """
    found = waterfall(localisation)
    if found is None or not localisation.parts:
        return Markup()
    name = id.replace("/", "-")
    rows = [_row(step, found, place + 1, name) for place, step in enumerate(found.steps)]
    height = ROW_PX * (len(rows) + 2)
    ends = _end(found.base, found.base_ns, 0.0, found, 0) + _end(
        found.candidate, found.base_ns + found.total_ns, found.total_ns, found, len(rows) + 1
    )
    return _FIGURE.format(
        id=name,
        height=height,
        label=f"from {clip(found.base, MAX_NAME)} to {clip(found.candidate, MAX_NAME)}, time a token, part by part",
        guides=_guides(found, height),
        rows=Markup("").join(rows),
        ends=ends,
    )


def _guides(found: Waterfall, height: int) -> Markup:
    lines = (
        _GUIDE.format(x=_x(found, ns), top=ROW_PX - 4, bottom=height - ROW_PX + BAR_TOP_PX)
        for ns in (0.0, found.total_ns)
    )
    return Markup("").join(lines)


def _end(name: str, ns: float, at_ns: float, found: Waterfall, place: int) -> Markup:
    x = _x(found, at_ns)
    # A text keeps to the side that has more room.
    is_right = x > 50
    return _END.format(
        x=x,
        tick=place * ROW_PX + BAR_TOP_PX,
        tick_end=place * ROW_PX + BAR_TOP_PX + BAR_PX,
        y=place * ROW_PX + 13,
        text_x=100 - EDGE_PCT if is_right else EDGE_PCT,
        anchor="end" if is_right else "start",
        name=clip(name, MAX_NAME),
        amount=f"{figures.time_text(ns)} a token",
    )


def _row(step: Step, found: Waterfall, place: int, name: str) -> Markup:
    left, right = sorted((_x(found, step.start_ns), _x(found, step.end_ns)))
    top = place * ROW_PX
    kind = "slower" if step.change_ns > 0 else "faster"
    color = "var(--bad)" if step.change_ns > 0 else "var(--good)"
    fill = f"url(#{name}-{kind})" if step.is_wait and step.is_clear else color if step.is_clear else "var(--neutral)"
    change = figures.signed(step.change_ns, figures.time_text)
    return _ROW.format(
        title=_title(step),
        name=clip(step.name, MAX_NAME),
        through=f" through {clip(step.through, MAX_NAME)}" if step.through else "",
        weight=600 if step.is_clear else 400,
        ink="var(--ink)" if step.is_clear else "var(--muted)",
        amount=f"{change}  {figures.percent(step.share)}",
        y=top + 13,
        bar_y=top + BAR_TOP_PX,
        bar_x=left,
        bar_width=max(round(right - left, 2), MIN_BAR_PCT),
        fill=fill,
        opacity=1 if step.is_clear else 0.45,
        stroke=color if step.is_clear else "none",
        whisker=_whisker(step, found, top),
    )


def _whisker(step: Step, found: Waterfall, top: int) -> Markup:
    if math.isnan(step.low_ns):
        return Markup("")
    return _WHISKER.format(low=_x(found, step.low_ns), high=_x(found, step.high_ns), y=top + BAR_TOP_PX + BAR_PX / 2)


def _title(step: Step) -> str:
    change = figures.signed(step.change_ns, figures.time_text)
    if math.isnan(step.low_ns):
        return f"{clip(step.name)}: {change} a token"
    low, high = (figures.signed(ns - step.start_ns, figures.time_text) for ns in (step.low_ns, step.high_ns))
    noise = "" if step.is_clear else "; within noise"
    return f"{clip(step.name)}: {change} a token, 95 %: {low} to {high}{noise}"


def _x(found: Waterfall, ns: float) -> float:
    return round(EDGE_PCT + (100 - 2 * EDGE_PCT) * found.place(ns), 2)


_FIGURE = Markup("""\
<figure class="waterfall" id="{id}" style="margin:8px 0;max-width:900px">
<svg width="100%" height="{height}" role="img" aria-label="{label}" font-size="13" style="display:block">
<defs>
<pattern id="{id}-slower" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<path d="M0 0V6" stroke="var(--bad)" stroke-width="6"/></pattern>
<pattern id="{id}-faster" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<path d="M0 0V6" stroke="var(--good)" stroke-width="6"/></pattern>
</defs>
{guides}
{rows}
{ends}
</svg>
<ul class="legend"><li><i style="background:var(--bad)"></i>slower</li><li><i style="background:var(--good)"></i>\
faster</li><li><i style="background:repeating-linear-gradient(45deg,var(--bad) 0 3px,transparent 3px 6px)"></i>a wait\
</li><li><i style="background:var(--neutral);opacity:.45"></i>within noise: unexplained</li><li>lines: 95 % intervals\
</li></ul>
</figure>
""")
_GUIDE = Markup(
    '<line x1="{x}%" x2="{x}%" y1="{top}" y2="{bottom}" stroke="var(--line)" stroke-dasharray="3 3"></line>'
)
_END = Markup(
    '<g><line x1="{x}%" x2="{x}%" y1="{tick}" y2="{tick_end}" stroke="var(--ink)" stroke-width="2"></line>'
    '<text x="{text_x}%" y="{y}" text-anchor="{anchor}" fill="var(--ink)"><tspan font-weight="600">{name}</tspan> '
    "{amount}</text></g>"
)
_ROW = Markup(
    '<g><title>{title}</title><text x="1%" y="{y}" fill="{ink}"><tspan font-weight="{weight}">{name}</tspan>'
    '<tspan fill="var(--muted)">{through}</tspan></text>'
    '<text x="99%" y="{y}" text-anchor="end" fill="{ink}" style="font-variant-numeric:tabular-nums;white-space:pre">'
    "{amount}</text>"
    '<rect x="{bar_x}%" y="{bar_y}" width="{bar_width}%" height="13" fill="{fill}" fill-opacity="{opacity}" '
    'stroke="{stroke}"></rect>{whisker}</g>\n'
)
_WHISKER = Markup('<line x1="{low}%" x2="{high}%" y1="{y}" y2="{y}" stroke="var(--ink)" stroke-width="1.5"></line>')
