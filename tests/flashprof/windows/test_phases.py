"""Phases and lanes: own times, complete cycles, capacity, and who limits."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.events import EventLog, Header, Span, SpanKind, Step
from flashprof.contracts.results import LaneRow, PhaseRow, Window, WindowKind
from flashprof.windows.phases import lane_rows, phase_rows

WORK, WAIT = SpanKind.WORK, SpanKind.WAIT


def make_log(role: str = "drafter", rank: int = 0) -> EventLog:
    return EventLog(
        header=Header(role=role, rank=rank, host="h", pid=1, trains=role == "drafter", wall_ns=0, monotonic_ns=0)
    )


def window(start_ns: int, end_ns: int) -> Window:
    return Window(
        label="m",
        kind=WindowKind.MEASURE,
        start_ns=start_ns,
        end_ns=end_ns,
        num_steps=0,
        num_tokens=0,
        num_supervised_tokens=0,
        num_padding_tokens=0,
    )


def loop(log: EventLog, *, num_steps: int, wait_ns: int, work_ns: int, num_tokens: int = 100) -> EventLog:
    """Cycles of one wait and one piece of work, without gaps, from 0 on."""
    at_ns = 0
    for step in range(num_steps):
        middle_ns, end_ns = at_ns + wait_ns, at_ns + wait_ns + work_ns
        log.spans.append(Span("wait", WAIT, "main", at_ns, middle_ns, 0, True))
        log.spans.append(Span("work", WORK, "main", middle_ns, end_ns, 0, True))
        log.steps.append(Step(step, end_ns, num_tokens, num_tokens, 0))
        at_ns = end_ns
    return log


def by_phase(rows: tuple[PhaseRow, ...]) -> dict[str, PhaseRow]:
    return {row.phase: row for row in rows}


def test_own_time_is_length_less_children() -> None:
    log = make_log()
    log.spans += [
        Span("leaf", WORK, "main", 20, 30, 2, True),
        Span("inner", WORK, "main", 10, 50, 1, True),
        Span("outer", WORK, "main", 0, 100, 0, True),
    ]

    own = {row.phase: row.self_ns for row in phase_rows([log], [window(0, 100)])}

    assert own == {"outer": 60, "inner": 30, "leaf": 10}


def test_a_device_lane_nests_by_time_where_its_depths_have_holes() -> None:
    log = make_log()
    log.spans += [
        Span("kernel", WORK, "main:cuda0", 20, 30, 4, True),
        Span("forward", WORK, "main:cuda0", 10, 50, 1, True),
    ]

    own = {row.phase: row.self_ns for row in phase_rows([log], [window(0, 100)])}

    assert own == {"forward": 30, "kernel": 10}


def test_spans_are_clipped_to_windows() -> None:
    log = make_log()
    log.spans.append(Span("long", WORK, "main", 0, 100, 0, True))

    (row,) = phase_rows([log], [window(10, 20), window(60, 90)])

    assert (row.self_ns, row.share) == (40, 1.0)


def test_cycle_statistics_come_from_complete_cycles_only() -> None:
    log = loop(make_log(), num_steps=10, wait_ns=40, work_ns=60)

    rows = by_phase(phase_rows([log], [window(150, 520), window(600, 800)]))

    # Complete: 200–500 (three) and 600–800 (two).
    assert (rows["work"].num_steps, rows["work"].num_calls) == (5, 5)
    assert (rows["work"].step_p50_ns, rows["wait"].step_p95_ns) == (60.0, 40.0)


def test_a_cycle_that_began_just_before_the_acknowledgement_is_complete() -> None:
    log = loop(make_log(), num_steps=4, wait_ns=400, work_ns=600)

    (lane,) = lane_rows([log], [window(1_005, 3_005)])

    assert lane.num_steps == 2


def test_a_phase_that_runs_in_few_cycles_counts_zero_in_the_others() -> None:
    log = loop(make_log(), num_steps=11, wait_ns=0, work_ns=100)
    log.spans.append(Span("save", WORK, "main", 510, 530, 1, True))

    save = by_phase(phase_rows([log], [window(100, 1_100)]))["save"]

    assert (save.num_calls, save.num_steps, save.step_p50_ns) == (1, 10, 0.0)


def test_capacity_is_tokens_over_work_time() -> None:
    log = loop(make_log(), num_steps=10, wait_ns=75, work_ns=25, num_tokens=50)

    (lane,) = lane_rows([log], [window(100, 900)])

    assert (lane.num_tokens, lane.num_steps) == (400, 8)
    assert lane.tok_per_s == pytest.approx(0.5e9)
    assert lane.capacity_tok_per_s == pytest.approx(2e9)
    assert lane.covered_share == 1.0


def test_the_role_with_least_summed_capacity_limits_and_its_slowest_lane_is_marked() -> None:
    logs = [
        loop(make_log("drafter", 0), num_steps=20, wait_ns=10, work_ns=90),
        loop(make_log("drafter", 1), num_steps=20, wait_ns=20, work_ns=80),
        loop(make_log("target", 0), num_steps=20, wait_ns=0, work_ns=100),
        loop(make_log("dispatcher", 0), num_steps=20, wait_ns=0, work_ns=200, num_tokens=0),
    ]

    rows = lane_rows(logs, [window(0, 2_000)])

    # One target at 1.0 limits, though both drafters, 1.1 and 1.25, are together far faster.
    assert [str(row.lane) for row in rows if row.is_limiting] == ["target 0"]
    assert [str(row.lane) for row in rows] == ["dispatcher 0", "target 0", "drafter 0", "drafter 1"]


def test_within_the_limiting_role_the_slowest_lane_is_marked() -> None:
    logs = [loop(make_log("drafter", rank), num_steps=20, wait_ns=0, work_ns=100 + rank) for rank in range(3)]

    limiting = [str(row.lane) for row in lane_rows(logs, [window(0, 2_000)]) if row.is_limiting]

    assert limiting == ["drafter 2"]


@pytest.mark.parametrize(
    ("stream", "busy_ns", "capacity"),
    [("main:cuda0", 95, 1 / 95), ("main:cuda0", 25, 1 / 40), ("loader:cuda0", 95, 1 / 40)],
    ids=["the GPU works longer", "the host works longer", "a stream of another thread"],
)
def test_a_host_is_no_faster_than_the_gpu_that_it_feeds(stream: str, busy_ns: int, capacity: float) -> None:
    log = loop(make_log(), num_steps=20, wait_ns=60, work_ns=40, num_tokens=100)
    for step in range(20):
        start_ns = 100 * step
        log.spans.append(Span("wait_states", WAIT, stream, start_ns, start_ns + 100 - busy_ns, 0, True))
        log.spans.append(Span("forward", WORK, stream, start_ns + 100 - busy_ns, start_ns + 100, 0, True))
    other = loop(make_log("target"), num_steps=20, wait_ns=0, work_ns=100)

    lanes = {str(row.lane): row for row in lane_rows([log, other], [window(0, 2_000)])}

    assert lanes["drafter 0"].capacity_tok_per_s == pytest.approx(100 * capacity * 1e9)
    assert lanes["target 0"].capacity_tok_per_s == pytest.approx(1e9)


def test_only_the_main_lane_has_tokens() -> None:
    log = loop(make_log(), num_steps=5, wait_ns=50, work_ns=50)
    log.spans.append(Span("forward", WORK, "main:cuda0", 120, 180, 0, True))
    log.spans.append(Span("load", WORK, "loader", 150, 420, 0, True))

    lanes = {row.lane.thread: row for row in lane_rows([log], [window(0, 500)])}

    assert list(lanes) == ["main", "loader", "main:cuda0"]
    assert (lanes["main:cuda0"].num_tokens, lanes["main:cuda0"].capacity_tok_per_s) == (0, 0.0)
    assert lanes["loader"].work_ns == 270


def test_a_span_longer_than_a_cycle_is_shared_among_its_cycles() -> None:
    log = loop(make_log(), num_steps=6, wait_ns=0, work_ns=100)
    log.spans.append(Span("load", WORK, "loader", 150, 420, 0, True))

    load = by_phase(phase_rows([log], [window(100, 600)]))["load"]

    # Own time by cycle: 50, 100, 100, 20, 0.
    assert load.step_p50_ns == 50.0
    assert load.num_calls == 1


def test_phases_stand_in_order_of_first_appearance_in_a_cycle() -> None:
    log = make_log()
    log.spans.append(Span("setup", WORK, "main", 0, 5, 0, True))
    for start_ns in (10, 110, 210):
        for offset, phase in enumerate(("fetch", "mask", "forward")):
            at_ns = start_ns + 30 * offset
            log.spans.append(Span(phase, WORK, "main", at_ns, at_ns + 20, 0, True))
        log.steps.append(Step(0, start_ns + 100, 1, 1, 0))
    log.spans.reverse()

    phases = [row.phase for row in phase_rows([log], [window(0, 310)])]

    assert phases == ["fetch", "mask", "forward", "setup"]


def test_a_process_that_finished_no_step_still_shows_where_its_time_went() -> None:
    log = make_log("trainer")
    log.spans.append(Span("load", WORK, "main", 0, 60, 0, True))

    (phase,) = phase_rows([log], [window(0, 100)])
    (lane,) = lane_rows([log], [window(0, 100)])

    assert (phase.share, phase.num_steps, phase.step_p50_ns) == (0.6, 0, 0.0)
    assert not lane.is_limiting


def test_no_windows_give_no_rows() -> None:
    log = loop(make_log(), num_steps=3, wait_ns=1, work_ns=1)

    assert (phase_rows([log], []), lane_rows([log], [])) == ((), ())


@st.composite
def nested_spans(draw: st.DrawFn) -> list[Span]:
    """Properly nested spans in file order: inner ones first."""
    spans: list[Span] = []

    def grow(start_ns: int, end_ns: int, depth: int) -> None:
        edges = sorted(draw(st.lists(st.integers(start_ns, end_ns), max_size=6)))
        for left, right in zip(edges[::2], edges[1::2], strict=False):
            if depth < 3:
                grow(left, right, depth + 1)
            kind = draw(st.sampled_from(SpanKind))
            spans.append(Span(f"{kind}{draw(st.integers(0, 2))}", kind, "main", left, right, depth, True))

    grow(0, 400, 0)
    return spans


@given(spans=nested_spans(), edges=st.lists(st.integers(0, 400), min_size=2, max_size=6, unique=True).map(sorted))
def test_own_times_add_up_to_the_time_that_spans_cover(spans: list[Span], edges: list[int]) -> None:
    log = make_log()
    log.spans += spans
    windows = [window(left, right) for left, right in zip(edges[::2], edges[1::2], strict=False)]
    covered = {ns for span in spans for ns in range(span.start_ns, span.end_ns)}
    inside = sum(ns in covered for w in windows for ns in range(w.start_ns, w.end_ns))

    total: tuple[LaneRow, ...] = lane_rows([log], windows)

    assert sum(row.self_ns for row in phase_rows([log], windows)) == inside
    assert sum(row.work_ns + row.wait_ns for row in total) == inside


def test_a_hundred_thousand_spans_take_a_second_at_most() -> None:
    log = loop(make_log(), num_steps=50_000, wait_ns=40, work_ns=60)
    phase_rows([log], [window(0, 1_000)])  # numpy is loaded by now
    started = time.process_time()

    phase_rows([log], [window(0, 5_000_000)])

    assert time.process_time() - started < 1.0
