"""The widget's markup holds nothing of the run, its data hold all of it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from importlib import resources
from typing import Any

from run_summaries import windows

from flashprof.contracts.results import WindowKind
from flashprof.contracts.site import Series, Timeline, TimelineLane
from flashprof.report.timeline import render_timeline

EVIL = "<script>alert(1)</script>\"'&"
TARGET = TimelineLane(name="target 0", phases=("forward",), kinds=("work",), pieces=((0, 900, 0), (1000, 1900, 0)))
DRAFTER = TimelineLane(
    name="drafter 0",
    phases=("wait_hidden", EVIL, "forward"),
    kinds=("wait", "work", "work"),
    pieces=((0, 1000, 0), (1000, 1400, 1), (1400, 2000, 2)),
)
TIMELINE = Timeline(
    start_s=7.0,
    length_s=0.002,
    lanes=(TARGET, DRAFTER),
    series=(
        Series(name="acc of drafter 0", at_s=(1.0,), values=(0.5,)),
        Series(name="loss of drafter 0", at_s=(1.0, 9.5), values=(4.0, 3.0)),
        Series(name="queue of drafter 0", at_s=(1.0, 2.0), values=(1.0, 2.0)),
        Series(name="queue of drafter 1", at_s=(1.0, 2.0), values=(3.0, 4.0)),
        Series(name="step of target 0", at_s=(7.0009, 7.0019), values=(51.0, 52.0)),
        Series(name="step of drafter 0", at_s=(7.0, 7.001, 7.002), values=(49.0, 50.0, 51.0)),
    ),
)
WINDOWS = windows(WindowKind.WARMUP, WindowKind.MEASURE, WindowKind.PROFILE)


def render(timeline: Timeline = TIMELINE, **reasons: tuple[str, ...]) -> str:
    return render_timeline(timeline, WINDOWS, disturbances=reasons, id="run-1")


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" data-widget="timeline"[^>]*>([^<]*)</script>', html)

    assert found is not None
    return dict(json.loads(zlib.decompress(base64.b64decode(found[1]))))


def test_nothing_of_the_run_is_in_the_markup() -> None:
    html = render()
    bare = re.sub(r">[A-Za-z0-9+/=]{100,}<", "><", html)
    plain = re.sub(r">[A-Za-z0-9+/=]{100,}<", "><", render(Timeline(start_s=0, length_s=0, lanes=())))

    assert plain == bare
    assert EVIL in json.dumps(data_of(html), ensure_ascii=False).replace('\\"', '"')


def test_the_id_is_escaped_and_the_same_run_gives_the_same_page() -> None:
    html = render_timeline(TIMELINE, WINDOWS, disturbances={}, id='"><b>')

    assert '"><b>' not in html
    assert render() == render()
    assert {"timeline", "timeline-reset", "timeline-hover"} == set(re.findall(r'data-testid="([^"]*)"', html))


def test_pieces_are_packed_and_the_longest_phases_come_first() -> None:
    data = data_of(render())
    names = [phase["name"] for phase in data["phases"]]

    assert ["forward", "wait_hidden", EVIL] == names
    assert [False, True, False] == [phase["wait"] for phase in data["phases"]]
    assert [0, 900, 0, 100, 900, 0] == data["lanes"][0]["pieces"]
    assert [0, 1000, 1, 0, 400, 2, 0, 600, 0] == data["lanes"][1]["pieces"]
    assert 2000 == data["lengthUs"]


def test_a_flow_leads_from_the_batch_s_end_to_the_step_that_trains_on_it() -> None:
    data = data_of(render())

    assert [[0, "49"], [1000, "50"], [2000, "51"]] == data["steps"]
    assert [[0, 1, 900, 1000]] == data["flows"]


def test_without_the_target_s_steps_there_is_no_flow() -> None:
    told = tuple(series for series in TIMELINE.series if series.name != "step of target 0")
    data = data_of(render(replace(TIMELINE, series=told)))

    assert ([], 3) == (data["flows"], len(data["steps"]))


def test_windows_are_bands_with_their_rate_and_why_they_are_left_out() -> None:
    data = data_of(render(**{"measure-1": (EVIL,)}))

    assert ["warmup", "measure", "profile"] == [band["kind"] for band in data["bands"]]
    assert [[], [EVIL], []] == [band["reasons"] for band in data["bands"]]
    assert (5.0, 10.0) == (data["bands"][1]["startS"], data["bands"][1]["endS"])
    assert WINDOWS[1].tok_per_s == data["bands"][1]["tokPerS"]
    assert (0.0, 15.0) == (data["fromS"], data["toS"])


def test_a_gauge_is_one_chart_with_a_line_a_process_the_queue_first() -> None:
    data = data_of(render())

    assert ["queue", "loss"] == [chart["title"] for chart in data["charts"]]
    assert ["drafter 0", "drafter 1"] == [line["name"] for line in data["charts"][0]["lines"]]
    assert {"name": "drafter 0", "atS": [1.0, 9.5], "values": [4.0, 3.0]} == data["charts"][1]["lines"][0]
    assert ["acc"] == [chart["title"] for chart in data["more"]]


def test_a_stretch_without_length_has_no_lanes() -> None:
    data = data_of(render(replace(TIMELINE, length_s=0.0)))

    assert [] == data["lanes"]


def test_the_script_takes_data_as_text_only() -> None:
    script = resources.files("flashprof.report").joinpath("timeline.js").read_text(encoding="utf-8")

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|fetch\(|document\.write|https?://(?!www\.w3\.org)", script
    )
