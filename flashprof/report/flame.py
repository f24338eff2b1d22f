"""
Flamegraphs, plain and differential: a widget for pages, and a page of its own that needs nothing else.

An icicle: the outermost frame on top, widths are time a token, the costliest first. In a differential one a box is
coloured by how much more or less it costs in the candidate, callees included, and grey where that is within noise. The
boxes are prepared in flame_data.py and drawn by flame.js; without a script the largest ones are there as a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType

from markupsafe import Markup

from flashprof.contracts.profiles import PHASE_FILE, FrameId, ProfiledWindow, StackView
from flashprof.report import figures
from flashprof.report.flame_data import embed, flame_data, place_of, shown, shown_frame
from flashprof.stats.flame_tree import FlameLane, FlameNode, flame_tree

VIEW_TITLES = MappingProxyType(
    {StackView.ALL: "wall time", StackView.GIL: "holding the GIL", StackView.IDLE: "not running"}
)
TOP_ROWS = 30
WRAPPER_SHARE = 0.95
"""A box that hands on this much of its change to one callee explains nothing by itself: no row in the table."""
PHASE_MARK = "▸ "
_LABEL = re.compile(r"(?P<name>.+) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)", re.DOTALL)


def render_flame(
    lanes: Sequence[FlameLane],
    *,
    id: str,  # noqa: A002 (the attribute's name, as for all widgets)
    base: str = "base",
    candidate: str = "candidate",
    focus: str = "",
) -> str:
    """
    Draw the lanes of one run, or of two arms.

    Args:
        lanes: From `flame_tree`.
        id: Of the element; unique on its page, which includes flame.js and flame.css once.
        base: How the base is called.
        candidate: How the candidate is called.
        focus: Name or role of the lane that is shown first: where the change lies.

    Returns:
        An HTML fragment in which all that comes from a run is escaped.
    """
    views: dict[str, list[FlameLane]] = {}
    for lane in lanes:
        views.setdefault(VIEW_TITLES[lane.view], []).append(lane)
    return _figure(views, id=id, names=(base, candidate), focus=focus)


def render_flame_page(
    views: Mapping[str, Mapping[str, Mapping[tuple[str, ...], int]]], *, title: str, subtitle: str
) -> str:
    """
    Draw the samples of one run as a page of its own.

    Args:
        views: `all`, `gil` or `idle` → lane ("drafter 0") → labels, outermost first → samples. A label is
            `name (file)`, or `▸ mask` for a phase.
        title: Heading and window title.
        subtitle: One line below it: the cell, the sampling rate.

    Returns:
        A complete HTML document.
    """
    titles = {str(view): text for view, text in VIEW_TITLES.items()}
    lanes = {
        titles.get(view, view): [lane for name in sorted(by_lane, key=_rank) for lane in _counted(name, by_lane[name])]
        for view, by_lane in views.items()
    }
    return _PAGE.format(
        title=shown(title),
        subtitle=shown(subtitle),
        style=Markup(_resource("theme.css") + _resource("flame.css")),  # noqa: S704 (our own files)
        script=Markup(_resource("flame.js")),  # noqa: S704
        figure=Markup(_figure(lanes, id="flame", names=("", ""), focus="")),  # noqa: S704 (escaped there)
    )


def _rank(lane: str) -> bool:
    """Drafters first, as in `flame_tree`: they are who trains."""
    return not lane.startswith("drafter")


def _counted(name: str, stacks: Mapping[tuple[str, ...], int]) -> tuple[FlameLane, ...]:
    frames: dict[tuple[FrameId, ...], int] = {}
    for labels, num_samples in stacks.items():
        stack = tuple(_frame(label) for label in labels)
        frames[stack] = frames.get(stack, 0) + num_samples
    # Without tokens: what is not known to be time is drawn as shares.
    return flame_tree([ProfiledWindow(launch="", label="", role=name, num_ranks=1, ns_per_token=0.0, stacks=frames)])


def _frame(label: str) -> FrameId:
    if label.startswith(PHASE_MARK):
        return FrameId(label.removeprefix(PHASE_MARK), PHASE_FILE)
    found = _LABEL.fullmatch(label)
    return FrameId(found["name"], found["file"]) if found else FrameId(label, "")


def _figure(
    views: Mapping[str, Sequence[FlameLane]],
    *,
    id: str,  # noqa: A002
    names: tuple[str, str],
    focus: str,
) -> str:
    sampled = {view: [lane for lane in lanes if any(lane.nodes[0].num_samples)] for view, lanes in views.items()}
    lanes = [lane for of_view in sampled.values() for lane in of_view]
    if not lanes:
        return Markup('<figure class="flame" id="{}"><p class="flame-empty">{}</p></figure>').format(id, _EMPTY)
    data, encoding = embed(flame_data(sampled, names=names, focus=focus))
    is_diff = any(lane.is_differential for lane in lanes)
    return _FIGURE.format(
        id=id,
        kind="differential" if is_diff else "plain",
        legend=_DIFF_LEGEND if is_diff else "",
        widths=_WIDTHS.format(id=id, base=shown(names[0]), candidate=shown(names[1])) if is_diff else "",
        table=_diff_table(lanes, names) if is_diff else _plain_table(lanes),
        encoding=encoding,
        # The text is JSON with `<` escaped, or base64.
        data=Markup(data),  # noqa: S704
    )


def _plain_table(lanes: Sequence[FlameLane]) -> Markup:
    found = [(node.base_own / lane.nodes[0].base, lane, node) for lane in lanes for node in lane.nodes if node.base_own]
    found.sort(key=lambda row: -row[0])
    rows = [
        (*_whose(lane, node), figures.percent(share), figures.percent(node.base / lane.nodes[0].base))
        for share, lane, node in found[:TOP_ROWS]
    ]
    return _table("Boxes with the most time of their own", ("own time", "with callees"), rows)


def _diff_table(lanes: Sequence[FlameLane], names: tuple[str, str]) -> Markup:
    """Clear changes first, then the largest; shares of its lane where a view does not count time."""
    found = [(lane, node) for lane in lanes for node in _telling(lane.nodes) if node.difference]
    found.sort(key=lambda row: (not row[1].is_clear, not row[0].is_time, -abs(row[1].candidate - row[1].base)))
    rows = []
    for lane, node in found[:TOP_ROWS]:
        amount = figures.time_text if lane.is_time else figures.percent
        assert node.difference is not None
        interval = f"{figures.signed(node.difference.low, amount)} to {figures.signed(node.difference.high, amount)}"
        change = figures.signed(node.difference.estimate, amount)
        noise = "" if node.is_clear else "within noise"
        rows.append((*_whose(lane, node), amount(node.base), amount(node.candidate), change, interval, noise))
    titles = (shown(names[0]), shown(names[1]), "difference", "95 % interval", "")
    return _table("Boxes that changed most, callees included, a token", titles, rows)


def _telling(nodes: Sequence[FlameNode]) -> list[FlameNode]:
    """Without those that hand nearly all of their change to one callee."""
    largest = [0.0] * len(nodes)
    for node in nodes[1:]:
        largest[node.parent] = max(largest[node.parent], abs(node.candidate - node.base))
    return [
        node
        for node, handed_on in zip(nodes, largest, strict=True)
        if handed_on < WRAPPER_SHARE * abs(node.candidate - node.base)
    ]


def _whose(lane: FlameLane, node: FlameNode) -> tuple[str, str, str]:
    where = place_of(node.frame, node.line)
    name = f"{shown_frame(node.frame)} (was {shown(node.was.name)})" if node.was else shown_frame(node.frame)
    return (
        f"{shown(lane.name)}, {VIEW_TITLES[lane.view]}" if lane.view is not StackView.ALL else shown(lane.name),
        name,
        where,
    )


def _table(caption: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    head = Markup("").join(
        Markup('<th scope="col">{}</th>').format(title) for title in ("lane", "frame", "file", *titles)
    )
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td><bdi>{}</bdi></td>").format(cell) for cell in row))
        for row in rows
    )
    return Markup("<table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
        caption, head, body
    )


def _resource(name: str) -> str:
    return resources.files("flashprof.report").joinpath(name).read_text(encoding="utf-8")


_EMPTY = "No stack samples: nothing was sampled in the profile windows."

_DIFF_LEGEND = Markup(
    '<li class="slower" data-step="6"><i></i>+ slower</li><li class="slower" data-step="2"><i></i>+ a little</li>'
    '<li class="same"><i></i>within noise</li>'
    '<li class="faster" data-step="2"><i></i>− a little</li><li class="faster" data-step="6"><i></i>− faster</li>'
)

_WIDTHS = Markup(
    '<fieldset class="flame-widths"><legend>Widths of</legend>'
    '<label><input type="radio" name="{id}-widths" value="base" data-testid="flame-widths-base">'
    "<bdi>{base}</bdi></label>"
    '<label><input type="radio" name="{id}-widths" value="candidate" checked data-testid="flame-widths-candidate">'
    "<bdi>{candidate}</bdi></label></fieldset>"
)

_FIGURE = Markup("""\
<figure class="flame {kind}" id="{id}">
<div class="flame-tools" hidden>
<div class="flame-views" role="group" aria-label="What the samples are of"></div>
<div class="flame-lanes" role="group" aria-label="Lanes"></div>
{widths}
<input class="flame-search" type="search" placeholder="Search text or regex  ( / )" aria-label="Search frames"
  spellcheck="false" data-testid="flame-search">
<output class="flame-matched" data-testid="flame-matched"></output>
<button class="flame-reset" type="button" disabled data-testid="flame-reset">Reset zoom <kbd>Esc</kbd></button>
</div>
<ul class="flame-legend">{legend}</ul>
<p class="flame-facts" data-testid="flame-facts"></p>
<div class="flame-graph" role="tree" tabindex="0" aria-label="Stacks; arrow keys move, Enter zooms, Backspace goes out"
  data-testid="flame-graph" hidden></div>
<div class="flame-hover" role="status" data-testid="flame-hover" hidden></div>
<p class="flame-notes"><span class="flame-pruned"></span>
<span class="flame-keys">Click or Enter: zoom; arrows: move; Backspace: out; Esc: reset; /: search.</span></p>
<details><summary>As a table</summary><div class="flame-table">{table}</div></details>
<script type="application/json" data-widget="flame" data-encoding="{encoding}" id="{id}-data">{data}</script>
</figure>
""")

_PAGE = Markup("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body class="flame-page">
<header><h1><bdi>{title}</bdi></h1><p><bdi>{subtitle}</bdi></p></header>
<noscript><p>The graph draws itself with JavaScript, all of it in this file; the table does not need it.</p></noscript>
<main>{figure}</main>
<script>
{script}</script>
</body>
</html>
""")
