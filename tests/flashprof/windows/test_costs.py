"""What phases cost a token in a window: own times, summed over lanes, whatever the order of their spans."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.events import EventLog, Header, Span, SpanKind, Step
from flashprof.contracts.localisation import BETWEEN
from flashprof.windows.costs import PhaseCosts, training_phases

WORK, WAIT = SpanKind.WORK, SpanKind.WAIT
S = 1_000_000_000


def make_log(*spans: Span, role: str = "drafter", rank: int = 0) -> EventLog:
    header = Header(role=role, rank=rank, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    return EventLog(header=header, spans=list(spans))


def span(
    phase: str, start_ns: int, end_ns: int, *, kind: SpanKind = WORK, thread: str = "main", depth: int = 0
) -> Span:
    return Span(phase, kind, thread, start_ns, end_ns, depth, True)


def test_own_time_is_told_by_token_and_children_are_not_counted_twice() -> None:
    log = make_log(span("inner", 20, 50, depth=1), span("outer", 0, 100))

    assert {("drafter", "outer", "work"): 0.7, ("drafter", "inner", "work"): 0.3} == PhaseCosts([log]).between(
        0, 100, 100
    )


def test_only_what_lies_within_the_window_counts() -> None:
    log = make_log(span("a", 0, 40), span("b", 40, 70), span("c", 70, 200), span("d", 200, 300))

    assert {("drafter", "a", "work"): 10, ("drafter", "b", "work"): 30, ("drafter", "c", "work"): 20} == (
        PhaseCosts([log]).between(30, 90, 1)
    )


def test_lanes_of_a_role_are_added_and_roles_and_kinds_are_told_apart() -> None:
    logs = [
        make_log(span("step", 0, 60), span("copy", 10, 30, thread="side")),
        make_log(span("step", 0, 40), span("step", 40, 60, kind=WAIT), rank=1),
        make_log(span("step", 0, 50), role="target"),
    ]

    assert {
        ("drafter", "step", "work"): 10.0,
        ("drafter", "copy", "work"): 2.0,
        ("drafter", "step", "wait"): 2.0,
        ("target", "step", "work"): 5.0,
    } == PhaseCosts(logs).between(0, 60, 10)


def test_a_long_span_of_another_thread_that_ends_much_later_is_not_overlooked() -> None:
    log = make_log(
        *(span("step", at, at + 10) for at in range(0, 1000, 10)), span("queue", 5, 990, kind=WAIT, thread="loader")
    )

    assert 20.0 == PhaseCosts([log]).between(100, 120, 1)["drafter", "queue", "wait"]


def test_a_phase_that_a_device_records_counts_once_and_is_the_devices() -> None:
    """The host waits for the device within its own span: both would add up to more than the window."""
    host = [span("forward", 0, 20), span("clip", 20, 100), span("log", 100, 110)]
    device = [span("forward", 5, 90, thread="main:cuda3"), span("clip", 90, 95, thread="main:cuda3")]

    assert {
        ("drafter", "forward", "work"): 85.0,
        ("drafter", "clip", "work"): 5.0,
        ("drafter", "log", "work"): 10.0,
    } == (PhaseCosts([make_log(*host, *device)]).between(0, 110, 1))


def test_ranks_on_devices_of_their_own_share_a_lane() -> None:
    logs = [make_log(span("forward", 0, 95, thread=f"main:cuda{5 + rank}"), rank=rank) for rank in range(3)]
    found = PhaseCosts(logs).lanes_between(0, 100, 3, launch="a")

    assert {("drafter", "main:cuda"): {("forward", "work"): pytest.approx(95 / 3)}} == found.lanes
    assert {"forward": pytest.approx(95 / 3), BETWEEN: pytest.approx(5 / 3)} == training_phases(logs, 0, 100, 3)


def test_devices_of_one_process_are_told_apart_by_their_order() -> None:
    logs = [
        make_log(
            span("a", 0, 9, thread=f"main:cuda{first}"), span("b", 0, 7, thread=f"main:cuda{first + 2}"), rank=rank
        )
        for rank, first in enumerate((0, 9))
    ]

    assert {
        ("drafter", "main:cuda#0"): {("a", "work"): 9.0},
        ("drafter", "main:cuda#1"): {("b", "work"): 7.0},
    } == PhaseCosts(logs).lanes_between(0, 10, 1, launch="a").lanes


def test_a_step_of_twenty_seconds_is_found_behind_an_older_span_of_another_lane() -> None:
    """Spans are written by lane, step by step: an old one of a loader stands behind newer ones of the main thread."""
    log = make_log()
    for at_s in range(0, 100, 20):
        log.add(span("forward", at_s * S, (at_s + 20) * S))
        log.add(span("load", at_s * S, (at_s + 1) * S, thread="loader"))
        log.add(Step(at_s // 20, (at_s + 20) * S, 1, 0, 0))

    assert {"forward": 100e9, BETWEEN: 0.0} == training_phases([log], 0, 100 * S, 1)


def test_no_events_cost_nothing() -> None:
    assert {} == PhaseCosts([]).between(0, 10, 1) == PhaseCosts([make_log()]).between(0, 10, 1)


def test_windows_do_not_change_each_other() -> None:
    costs = PhaseCosts([make_log(span("a", 0, 50), span("b", 50, 100))])
    first = costs.between(0, 60, 1)
    costs.between(60, 100, 1)

    assert first == costs.between(0, 60, 1)


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 40), st.sampled_from(["main", "side"])), max_size=12),
    st.lists(st.integers(1, 139), min_size=1, max_size=4, unique=True),
)
def test_windows_side_by_side_add_up_to_what_the_lanes_were_busy(
    stretches: list[tuple[int, int, str]], cuts: list[int]
) -> None:
    spans = [span("p", start, start + length, thread=thread) for start, length, thread in stretches]
    edges = [0, *sorted(cuts), 140]
    costs = PhaseCosts([make_log(*spans)])
    found = sum(sum(costs.between(a, b, 1).values()) for a, b in pairwise(edges))
    covered = {(s.thread, at) for s in spans for at in range(s.start_ns, s.end_ns)}

    assert len(covered) == pytest.approx(found)
