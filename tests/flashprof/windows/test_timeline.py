"""What is kept of a launch for its timeline: a few steps in the middle, lane by lane, and thinned gauges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.events import EventLog, Gauge, Header, Span, SpanKind, Step
from flashprof.contracts.results import Window, WindowKind
from flashprof.contracts.site import Series, Timeline
from flashprof.windows.timeline import (
    MAX_LANES,
    MAX_NAME,
    MAX_PIECES,
    MAX_POINTS,
    MAX_SERIES,
    NUM_STEPS,
    first_event_ns,
    keep_timeline,
)

WORK, WAIT = SpanKind.WORK, SpanKind.WAIT
MS = 1_000_000
STEP_NS = 10 * MS


def make_log(role: str = "drafter", rank: int = 0, *, trains: bool = True, start_ns: int = 0) -> EventLog:
    return EventLog(
        header=Header(role=role, rank=rank, host="h", pid=1, trains=trains, wall_ns=0, monotonic_ns=start_ns)
    )


def loop(
    log: EventLog, num_steps: int = 100, *, num_spans: int = 2, first_ns: int = 0, num_tokens: int = 7
) -> EventLog:
    """Steps of 10 ms: a wait, then work, in equal parts and without gaps."""
    for number in range(num_steps):
        for part in range(num_spans):
            start_ns = first_ns + number * STEP_NS + part * STEP_NS // num_spans
            kind = WORK if part else WAIT
            log.spans.append(Span(str(kind), kind, "main", start_ns, start_ns + STEP_NS // num_spans, 0, True))
        log.steps.append(Step(number, first_ns + (number + 1) * STEP_NS, num_tokens, 0, 0))
    return log


def window(start_ns: int, end_ns: int, kind: WindowKind = WindowKind.MEASURE, num_tokens: int = 1) -> Window:
    return Window(
        label="w",
        kind=kind,
        start_ns=start_ns,
        end_ns=end_ns,
        num_steps=1,
        num_tokens=num_tokens,
        num_supervised_tokens=0,
        num_padding_tokens=0,
    )


def series_of(timeline: Timeline) -> dict[str, Series]:
    return {series.name: series for series in timeline.series}


def test_eight_steps_from_the_middle_of_the_first_measure_window_are_kept() -> None:
    windows = [
        window(0, 200 * MS, WindowKind.WARMUP),
        window(200 * MS, 600 * MS, num_tokens=0),
        window(200 * MS, 600 * MS),
        window(700 * MS, 900 * MS),
    ]
    timeline = keep_timeline([loop(make_log())], windows)

    assert (0.36, NUM_STEPS * 0.01) == pytest.approx((timeline.start_s, timeline.length_s))
    assert [(0, 5000, 0), (5000, 10000, 1)] == list(timeline.lanes[0].pieces[:2])
    assert (("wait", "work"), ("wait", "work")) == (timeline.lanes[0].phases, timeline.lanes[0].kinds)
    assert 2 * NUM_STEPS == len(timeline.lanes[0].pieces)


@pytest.mark.parametrize(
    ("windows", "start_s", "length_s"),
    [
        ([], 0.46, 0.08),
        ([window(100 * MS, 140 * MS)], 0.0, 0.04),
        # A single step ends in it, and none: from the window's start.
        ([window(101 * MS, 115 * MS)], 0.0, 0.009),
        ([window(101 * MS, 105 * MS)], 0.0, 0.0),
    ],
)
def test_short_windows_and_none_give_what_there_is(windows: list[Window], start_s: float, length_s: float) -> None:
    timeline = keep_timeline([loop(make_log())], windows)

    assert (start_s, length_s) == pytest.approx((timeline.start_s, timeline.length_s))


def test_nested_spans_are_cut_to_own_times_and_to_the_stretch() -> None:
    log = loop(make_log(), 2, num_spans=0)
    log.spans += [
        Span("inner", WORK, "main", 12 * MS, 14 * MS, 1, True),
        Span("outer", WORK, "main", 5 * MS, 30 * MS, 0, True),
        Span("tiny", WORK, "main:cuda0", 12 * MS, 12 * MS + 500, 0, True),
        Span("kernel", WORK, "main:cuda0", 12 * MS, 13 * MS, 0, True),
        Span("never here", WAIT, "loader", 0, MS, 0, True),
    ]
    timeline = keep_timeline([log], [])

    assert ["drafter 0", "drafter 0/loader", "drafter 0/main:cuda0"] == [lane.name for lane in timeline.lanes]
    assert ((0, 2000, 0), (2000, 4000, 1), (4000, 10000, 0)) == timeline.lanes[0].pieces
    assert () == timeline.lanes[1].pieces
    assert (((2000, 3000, 0),), ("kernel",)) == (timeline.lanes[2].pieces, timeline.lanes[2].phases)
    assert ("outer", "inner") == timeline.lanes[0].phases


def test_more_pieces_than_fit_shorten_the_stretch() -> None:
    num_spans = MAX_PIECES // 3
    timeline = keep_timeline([loop(make_log(), 10, num_spans=num_spans)], [])

    assert 0.03 == pytest.approx(timeline.length_s)
    assert 3 * num_spans == len(timeline.lanes[0].pieces)


def test_of_one_step_with_too_many_pieces_the_longest_are_kept() -> None:
    log = make_log()
    log.steps += [Step(number, number * 1000 * MS, 1, 0, 0) for number in range(2)]
    for number in range(MAX_PIECES):
        log.spans.append(Span("long", WORK, "main", number * 100_000, number * 100_000 + 50_000, 0, True))
        log.spans.append(Span("short", WORK, "main", number * 100_000 + 60_000, number * 100_000 + 70_000, 0, True))
    lane = keep_timeline([log], []).lanes[0]

    assert MAX_PIECES == len(lane.pieces)
    assert {"long"} == {lane.phases[phase] for _, _, phase in lane.pieces}


def test_lanes_come_in_data_flow_order_and_main_threads_first_where_there_are_too_many() -> None:
    logs = [loop(make_log("drafter")), loop(make_log("target", trains=False))]
    logs[1].spans += [Span("t", WORK, f"t{number:03}", 0, MS, 0, True) for number in range(MAX_LANES)]
    names = [lane.name for lane in keep_timeline(logs, []).lanes]

    assert ["target 0", "target 0/t000"] == names[:2]
    assert ("drafter 0", MAX_LANES) == (names[-1], len(names))


def test_gauges_of_the_whole_run_are_thinned_and_keep_their_peaks() -> None:
    log = loop(make_log(start_ns=5))
    log.gauges += [Gauge("queue", n, 5 + n * MS, 40.0 if n == 1234 else n % 2) for n in range(5000)]
    log.gauges += [Gauge("loss", 0, 5, math.nan), Gauge("loss", 1, 5 + 2 * MS, 3.25)]
    series = series_of(keep_timeline([log], []))

    assert ((0.002,), (3.25,)) == (series["loss of drafter 0"].at_s, series["loss of drafter 0"].values)
    assert MAX_POINTS >= len(series["queue of drafter 0"].values) > MAX_POINTS // 2
    assert {0.0, 1.0, 40.0} == set(series["queue of drafter 0"].values)
    assert 1.234 == series["queue of drafter 0"].at_s[series["queue of drafter 0"].values.index(40.0)]


def test_where_there_are_too_many_gauges_the_lead_ranks_and_the_queues_are_kept() -> None:
    logs = [make_log(rank=rank) for rank in range(MAX_SERIES)]
    for log in logs:
        log.gauges += [Gauge(name, 0, 0, 1.0) for name in ("acc", "queue")]
    names = [series.name for series in keep_timeline(logs, []).series]

    assert MAX_SERIES == len(names)
    assert ["acc of drafter 0", "queue of drafter 0", "queue of drafter 1"] == names[:3]


def test_steps_are_told_and_the_target_s_where_each_is_the_only_one() -> None:
    target, drafter = make_log("target", trains=False), make_log()
    loop(target, 20)
    loop(drafter, 20, first_ns=25 * MS)
    drafter.steps = [Step(step.step + 300, step.end_ns, 7, 0, 0) for step in drafter.steps]
    series = series_of(keep_timeline([drafter, target], []))

    assert (305.0, 306.0) == series["step of drafter 0"].values[:2]
    assert NUM_STEPS + 1 == len(series["step of drafter 0"].values)
    # The target is 2.5 steps ahead: at the drafter's end of 305 it ends its 308th.
    assert (308.0, 0.09) == (series["step of target 0"].values[0], series["step of target 0"].at_s[0])


@pytest.mark.parametrize("why", ["two drafters", "other batches", "later"])
def test_whose_batch_a_step_trains_on_is_not_told_where_it_cannot_be(why: str) -> None:
    target = loop(make_log("target", trains=False), num_tokens=8 if why == "other batches" else 7)
    logs = [target, loop(make_log(), first_ns=-MS if why == "later" else MS)]
    logs += [loop(make_log(rank=1), first_ns=MS)] if why == "two drafters" else []

    assert ["step of drafter 0"] == [series.name for series in keep_timeline(logs, []).series]


def test_without_steps_only_gauges_are_kept() -> None:
    log = make_log()
    log.gauges.append(Gauge("queue", 0, 3 * MS, 1.0))
    timeline = keep_timeline([log], [])

    assert (0.0, ()) == (timeline.length_s, timeline.lanes)
    assert ["queue of drafter 0"] == [series.name for series in timeline.series]
    assert Timeline(start_s=0.0, length_s=0.0, lanes=()) == keep_timeline([], [])


def test_long_names_are_cut() -> None:
    log = loop(make_log("r" * 500), 5, num_spans=0)
    log.spans.append(Span("p" * 500, WORK, "main", 0, 100 * MS, 0, True))
    log.gauges.append(Gauge("g" * 500, 0, 0, 1.0))
    timeline = keep_timeline([log], [])
    names = [lane.name for lane in timeline.lanes] + list(timeline.lanes[0].phases)

    assert [MAX_NAME, MAX_NAME] == [len(name) for name in names]
    assert 300 > max(len(series.name) for series in timeline.series)


def test_time_counts_from_the_first_window_else_from_the_first_process() -> None:
    logs = [make_log(start_ns=7), make_log("target", start_ns=5)]

    assert (3, 5, 0) == (
        first_event_ns(logs, [window(9, 10), window(3, 9)]),
        first_event_ns(logs, []),
        first_event_ns([], []),
    )


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.sampled_from("abc")), max_size=40))
def test_pieces_never_overlap_and_lie_in_the_stretch(spans: list[tuple[int, int, str]]) -> None:
    log = loop(make_log(), 12, num_spans=0)
    log.spans += [
        Span(phase, WORK, "main", start * MS, (start + length) * MS, 0, True) for start, length, phase in spans
    ]
    timeline = keep_timeline([log], [])
    length_us = round(timeline.length_s * 1e6)

    for lane in timeline.lanes:
        edges = [edge for start_us, end_us, _ in lane.pieces for edge in (start_us, end_us)]
        assert sorted(edges) == edges
        assert all(0 <= edge <= length_us for edge in edges)
