"""
The timeline of a launch: some steps lane by lane as in a trace viewer, and below them the whole run on one time axis.

Python says what is to be drawn, `timeline.js` draws it: widths and zoom are the browser's. All that comes from a run is
in the data, compressed; none of it is in the markup.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from flashprof.contracts.results import Window
from flashprof.contracts.site import Series, Timeline, TimelineLane
from flashprof.windows.timeline import KEY_GAUGES, STEP_SERIES, first_event_ns

ROLE_OF_TARGET = "target"
LEAST_S = 1e-6
"""A run shows at least as much: an axis needs a length."""
MAX_DIGITS = 12
"""Of a step's number, whatever a damaged file says."""


def render_timeline(
    timeline: Timeline,
    windows: Sequence[Window],
    *,
    disturbances: Mapping[str, tuple[str, ...]],
    id: str,  # noqa: A002 (what it is in HTML)
) -> str:
    """
    Draw a launch over time.

    Args:
        timeline: Lanes and gauges, counted in seconds from the first window's start.
        windows: All of the launch: bands, and a step line of tok/s.
        disturbances: Label of a window → why it is left out.
        id: Of the element; unique on the page.

    Returns:
        An HTML fragment. The page must hold `timeline.css` and `timeline.js`.
    """
    name = escape(id)
    data = {**_lanes(timeline), **_run(timeline, windows, disturbances)}
    return _FRAGMENT.format(id=name, data=_packed(data))


def _lanes(timeline: Timeline) -> dict[str, Any]:
    """Lanes with their pieces as gap, length, phase, one after the other: half as long as start and end."""
    keys = _by_total_time(timeline.lanes)
    length_us = round(timeline.length_s * 1e6)
    steps = {series.name.removeprefix(STEP_SERIES): series for series in timeline.series if _is_step(series)}
    return {
        "startS": timeline.start_s,
        "lengthUs": length_us,
        "phases": [{"name": phase, "wait": kind == "wait"} for phase, kind in keys],
        "lanes": [
            {"name": lane.name, "pieces": _packed_pieces(lane, {key: index for index, key in enumerate(keys)})}
            for lane in (timeline.lanes if length_us else ())
        ],
        "steps": _steps(timeline, steps),
        "flows": _flows(timeline, steps),
    }


def _by_total_time(lanes: Iterable[TimelineLane]) -> list[tuple[str, str]]:
    """Phase and kind, the longest together first: the first ones get the colours that differ most."""
    total_us: Counter[tuple[str, str]] = Counter()
    for lane in lanes:
        for start_us, end_us, phase in lane.pieces:
            total_us[lane.phases[phase], lane.kinds[phase]] += end_us - start_us
    return sorted(total_us, key=lambda key: (-total_us[key], key))


def _packed_pieces(lane: TimelineLane, index_of: Mapping[tuple[str, str], int]) -> list[int]:
    packed: list[int] = []
    at_us = 0
    for start_us, end_us, phase in lane.pieces:
        packed += (start_us - at_us, end_us - start_us, index_of[lane.phases[phase], lane.kinds[phase]])
        at_us = end_us
    return packed


def _is_step(series: Series) -> bool:
    return series.name.startswith(STEP_SERIES)


def _steps(timeline: Timeline, steps: Mapping[str, Series]) -> list[tuple[int, str]]:
    """End of each step of the lanes' stretch in µs, and its number."""
    led = next((series for process, series in steps.items() if not process.startswith(ROLE_OF_TARGET)), None)
    return [] if led is None else [(_us(at_s, timeline), str(number)[:MAX_DIGITS]) for at_s, number in _numbered(led)]


def _flows(timeline: Timeline, steps: Mapping[str, Series]) -> list[tuple[int, int, int, int]]:
    """From the target's lane to the drafter's, when a batch was sent and when the step that trains on it began."""
    lane_of = {lane.name: index for index, lane in enumerate(timeline.lanes)}
    made = next((process for process in steps if process.startswith(ROLE_OF_TARGET)), None)
    led = next((process for process in steps if process != made), None)
    if made is None or led is None or made not in lane_of or led not in lane_of:
        return []
    sent_us = {number: _us(at_s, timeline) for at_s, number in _numbered(steps[made])}
    trained = _numbered(steps[led])
    flows = []
    for (begins_s, _), (_, number) in pairwise(trained):
        if number in sent_us:
            begins_us = max(_us(begins_s, timeline), sent_us[number])
            flows.append((lane_of[made], lane_of[led], sent_us[number], begins_us))
    return flows


def _numbered(series: Series) -> list[tuple[float, int]]:
    return [(at_s, int(number)) for at_s, number in zip(series.at_s, series.values, strict=True)]


def _us(at_s: float, timeline: Timeline) -> int:
    return round((at_s - timeline.start_s) * 1e6)


def _run(timeline: Timeline, windows: Sequence[Window], disturbances: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    first_ns = first_event_ns((), windows)
    ends_s = [(window.end_ns - first_ns) / 1e9 for window in windows]
    gauges = [series for series in timeline.series if series.at_s and not _is_step(series)]
    charts = _charts(gauges)
    times_s = (timeline.start_s, *ends_s, *(at_s for series in gauges for at_s in series.at_s))
    return {
        "fromS": min(0.0, *times_s),
        "toS": max(timeline.start_s + timeline.length_s, LEAST_S, *times_s),
        "bands": [
            {
                "label": window.label,
                "kind": str(window.kind),
                "startS": (window.start_ns - first_ns) / 1e9,
                "endS": (window.end_ns - first_ns) / 1e9,
                "tokPerS": _finite(window.tok_per_s),
                "steps": window.num_steps,
                "reasons": list(disturbances.get(window.label, ())),
            }
            for window in windows
        ],
        "charts": [chart for chart in charts if chart["title"].startswith(KEY_GAUGES)],
        "more": [chart for chart in charts if not chart["title"].startswith(KEY_GAUGES)],
    }


def _charts(gauges: Iterable[Series]) -> list[dict[str, Any]]:
    """One a gauge, with a line a process; in the order of `KEY_GAUGES`, then by name."""
    by_title: dict[str, list[dict[str, Any]]] = {}
    for series in gauges:
        title, _, process = series.name.rpartition(" of ")
        # A pixel is 10 ms or more, and gauges of a step lie closer: with equal times they compress twice as well.
        at_s = [round(at_s, 2) for at_s in series.at_s]
        line = {"name": process, "atS": at_s, "values": [float(f"{value:.4g}") for value in series.values]}
        by_title.setdefault(title or process, []).append(line)
    order = [
        next((n for n, key in enumerate(KEY_GAUGES) if title.startswith(key)), len(KEY_GAUGES)) for title in by_title
    ]
    places = dict(zip(by_title, order, strict=True))
    return [{"title": title, "lines": by_title[title]} for title in sorted(by_title, key=lambda t: (places[t], t))]


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _packed(data: Mapping[str, Any]) -> str:
    """JSON, zlib, base64: a fifth as long, and no character that HTML could misread."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


_FRAGMENT = """\
<figure class="timeline" id="{id}" data-testid="timeline">
<div class="timeline-tools" role="group" aria-label="Zoom and pan">
<button type="button" data-do="in" title="Zoom in ( + )">+</button>
<button type="button" data-do="out" title="Zoom out ( − )">−</button>
<button type="button" data-do="left" title="Earlier ( ← )">←</button>
<button type="button" data-do="right" title="Later ( → )">→</button>
<button type="button" data-do="reset" data-testid="timeline-reset" title="All of it ( 0 )">Reset</button>
<span class="timeline-note"></span>
</div>
<div class="timeline-lanes" tabindex="0" role="application" aria-label="Lanes over time: plus and minus zoom, left and \
right pan, up and down choose a lane, n and p go to the next and the previous piece, 0 or Escape shows all"></div>
<ul class="timeline-legend" title="share of the time of all lanes" aria-label="Phases"></ul>
<div class="timeline-run" tabindex="0" role="application" \
aria-label="The whole run: left and right move the cursor"></div>
<details class="timeline-more" hidden><summary></summary><div class="timeline-rest"></div></details>
<div class="timeline-hover" data-testid="timeline-hover" role="status" hidden></div>
<noscript><p>The timeline draws itself with JavaScript, all of it inside this page.</p></noscript>
<script type="application/json" data-widget="timeline" data-encoding="zlib" id="{id}-data">{data}</script>
</figure>
"""
