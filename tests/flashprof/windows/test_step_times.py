"""Step times: the slowest rank, the long steps, and those with allocator retries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashprof.contracts.events import EventLog, Header, Mark, Span, SpanKind, Step
from flashprof.contracts.results import Window, WindowKind
from flashprof.windows.step_times import pool_step_times, read_lanes

WINDOW = Window(
    label="m",
    kind=WindowKind.MEASURE,
    start_ns=0,
    end_ns=10_000,
    num_steps=10,
    num_tokens=1,
    num_supervised_tokens=0,
    num_padding_tokens=0,
)


def rank_log(work_ns: list[int], *, rank: int = 0, thread: str = "main", step_ns: int = 1000) -> EventLog:
    """One span of work a step, which all ranks end together."""
    header = Header(role="drafter", rank=rank, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    log = EventLog(header=header)
    for step, work in enumerate(work_ns):
        log.add(Span("forward", SpanKind.WORK, thread, step * step_ns, step * step_ns + work, 0, True))
        log.add(Step(step, (step + 1) * step_ns, 1, 1, 0))
    return log


def steps_of(*logs: EventLog):
    return read_lanes(logs, [WINDOW], lambda _: True).steps["drafter"]


def test_a_rank_that_works_longer_is_what_the_others_wait_for() -> None:
    times = steps_of(rank_log([200] * 10), rank_log([600] * 10, rank=1))

    assert times.slowest_share == pytest.approx(1.5)
    assert times.spread_ns == pytest.approx(200)
    assert times.num_steps == 18


def test_ranks_that_take_turns_being_slow_spread_too() -> None:
    times = steps_of(rank_log([200, 600] * 5), rank_log([600, 200] * 5, rank=1))

    assert times.slowest_share == pytest.approx(1.0, abs=0.06)
    assert times.spread_ns == pytest.approx(200)


def test_two_processes_that_call_themselves_the_same_rank_are_two() -> None:
    times = steps_of(rank_log([200] * 10), rank_log([600] * 7))

    assert 15 == times.num_steps
    assert times.slowest_share == pytest.approx(1.5)


def test_ranks_that_work_alike_do_not_spread_where_one_ends_its_steps_later() -> None:
    """At each window's edge the later rank has a step less: pairs by place would be of unlike steps from then on."""
    work_ns = [100 * (1 + number % 5) for number in range(30)]
    late = rank_log(work_ns, rank=1)
    late.steps[:] = [replace(step, end_ns=step.end_ns + 20) for step in late.steps]
    windows = [replace(WINDOW, start_ns=at_ns, end_ns=at_ns + 9_010) for at_ns in (0, 10_000, 20_000)]
    times = read_lanes([rank_log(work_ns), late], windows, lambda _: True).steps["drafter"]

    assert 0 == times.spread_ns


def test_one_long_step_lifts_the_mean_and_not_the_median() -> None:
    times = steps_of(rank_log([100] * 9 + [1000]))

    assert times.mean_ns == pytest.approx(200)
    assert times.p50_ns == 100


def test_a_device_that_works_longer_than_its_host_thread_tells_the_step() -> None:
    log = rank_log([100] * 10)
    log.spans += rank_log([700] * 10, thread="main:cuda0").spans

    assert steps_of(log).p50_ns == 700


def test_spans_and_steps_outside_the_window_count_for_nothing() -> None:
    inside = rank_log([100] * 10)
    longer = rank_log([100] * 10 + [900] * 10)

    found = read_lanes([longer], [WINDOW], lambda _: True)

    assert found.steps == read_lanes([inside], [WINDOW], lambda _: True).steps
    assert len(found.held[0].spans) == 10
    assert found.phases == {("drafter", "main", "forward"): 1000.0}


def test_the_longest_step_before_a_retry_is_longer_by_it_and_counts_once() -> None:
    log = rank_log([100] * 10)
    ends_ns = np.cumsum([500] * 6 + [3500] + [500] * 3).tolist()
    log.steps[:] = [Step(step, end_ns, 1, 1, 0) for step, end_ns in enumerate(ends_ns)]
    log.marks += [Mark("allocator", at_ns, {"gib": 0.0, "retries": 1}) for at_ns in (ends_ns[6] + 1, ends_ns[8] + 1)]
    log.marks.append(Mark("allocator", ends_ns[2] + 1, {"gib": 1.0, "retries": 0}))

    found = read_lanes([log], [WINDOW], lambda _: True)
    outside = read_lanes([log], [WINDOW], lambda _: False)

    assert found.excess_ns == {("drafter", 0): 3000.0}
    assert outside.excess_ns == {("drafter", 0): 0.0}


def test_launches_pool_by_their_steps() -> None:
    short, long = (steps_of(rank_log([work] * num)) for work, num in ((100, 2), (400, 4)))

    pooled = pool_step_times([{"drafter": short}, {"drafter": long}])["drafter"]

    assert pooled.num_steps == 4
    assert pooled.mean_ns == pytest.approx(325)
