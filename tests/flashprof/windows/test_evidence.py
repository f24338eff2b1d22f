"""What a launch says besides phases: only what lies in the windows counts, and pooling keeps the sums."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.events import EventLog, Gauge, Header, Mark, Span, SpanKind, Step
from flashprof.contracts.machine import GpuReading, MachineReading
from flashprof.contracts.profiles import FrameId, ProfiledWindow, StackView
from flashprof.contracts.results import ThreadRow, Window, WindowKind
from flashprof.windows.evidence import ArmEvidence, gather, pool

MS = 1_000_000
STEP_MS = 10


def launch(*, num_steps: int = 30, wait_ms: int = 3, rank: int = 0) -> EventLog:
    """Steps of 10 ms and 100 tokens from 0 on: waiting, then `forward`."""
    log = EventLog(header=Header(role="drafter", rank=rank, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0))
    for step in range(num_steps):
        begin, end = step * STEP_MS * MS, (step + 1) * STEP_MS * MS
        log.add(Span("wait_hidden", SpanKind.WAIT, "main", begin, begin + wait_ms * MS, 0, True))
        log.add(Span("forward", SpanKind.WORK, "main", begin + wait_ms * MS, end, 0, True))
        log.add(Step(step, end, 100, 100, 0))
    return log


def window(start_ms: int, end_ms: int) -> Window:
    num_steps = (end_ms - start_ms) // STEP_MS
    return Window(
        label="m",
        kind=WindowKind.MEASURE,
        start_ns=start_ms * MS,
        end_ns=end_ms * MS,
        num_steps=num_steps,
        num_tokens=100 * num_steps,
        num_supervised_tokens=0,
        num_padding_tokens=0,
    )


WINDOWS = (window(100, 150), window(200, 250))


def reading(at_ms: int, **fields: float) -> MachineReading:
    counters = dict.fromkeys(
        ("busy_cpu_s", "stolen_cpu_s", "subject_cpu_s", "own_cpu_s", "subject_delay_s", "num_swapped_pages"), 0.0
    )
    gpu = GpuReading(
        index=0,
        sm_clock_mhz=round(fields.pop("clock", 1980)),
        throttle_reasons=("hw slowdown",) if fields.pop("throttled", 0) else (),
        temperature_c=60,
        power_w=500.0,
        utilization_pct=90,
        num_foreign_processes=0,
    )
    return MachineReading(at_ns=at_ms * MS, governor="", gpus=(gpu,), **{**counters, **fields})


def thread(name: str = "drafter-0", usr_pct: float = 90.0) -> ThreadRow:
    return ThreadRow(
        role="drafter",
        rank=0,
        thread=name,
        usr_pct=usr_pct,
        system_pct=0.0,
        wait_pct=0.0,
        voluntary_switches_per_s=1.0,
        involuntary_switches_per_s=1.0,
    )


def test_time_tokens_and_phases_are_those_of_the_windows() -> None:
    found = gather([launch()], WINDOWS)

    assert found.ns_per_token == 100 * MS / 1000
    assert found.phases == {("drafter", "main", "wait_hidden"): 30 * MS, ("drafter", "main", "forward"): 70 * MS}
    assert [row.work_ns for row in found.lanes] == [70 * MS]
    assert found.trains == {"drafter"}


def test_gauges_outside_the_windows_and_those_that_are_no_number_are_left_out() -> None:
    log = launch()
    values = [(50, 9.0), (110, 1.0), (120, math.nan), (130, 2.0), (140, 6.0), (150, 7.0), (151, 9.0)]
    log.gauges += [Gauge("queue", 0, at_ms * MS, value) for at_ms, value in values]

    use = gather([log], WINDOWS).gauges["drafter", "queue"]

    assert (use.num_values, use.mean, use.median) == (4, 4.0, 4.0)


def test_compilations_count_behind_the_warm_up_only() -> None:
    log = launch()
    log.marks += [
        Mark("compile", 10 * MS, {"what": "f", "seconds": 9.0}),
        Mark("compile", 210 * MS, {"what": "recompile f", "seconds": 2.5, "reason": "size"}),
        Mark("autotune", 220 * MS, {"what": "f", "seconds": "long"}),
    ]

    found = gather([log], WINDOWS)

    assert [(item.what, item.seconds, item.reason) for item in found.compilations] == [
        ("recompile f", 2.5, "size"),
        ("f", 0.0, ""),
    ]
    assert [item.is_again for item in found.compilations] == [True, False]
    assert found.per_1000_steps(len(found.compilations)) == 200
    assert found.tells_compilations
    assert not gather([launch()], WINDOWS).tells_compilations


def test_an_allocator_that_was_calm_in_the_windows_has_no_retries() -> None:
    log = launch()
    log.marks.append(Mark("allocator", 5 * MS, {"gib": 3.0, "retries": 2}))

    use = gather([log], WINDOWS).allocators["drafter"]

    assert (use.num_retries, use.grown_gib, use.excess_ns) == (0, 0, 0)
    assert gather([launch()], WINDOWS).allocators == {}


def test_machine_readings_are_those_of_each_window() -> None:
    readings = [
        reading(50, clock=100),
        reading(110),
        reading(140, clock=1780, throttled=1, subject_delay_s=0.02, subject_cpu_s=0.02),
        reading(260, subject_delay_s=0.02, subject_cpu_s=0.02, clock=100),
    ]

    found = gather([launch()], WINDOWS, machine=readings)

    assert [use.delay_share for use in found.uses] == pytest.approx([0.5, 0.0])
    assert [(gpu.num_readings, gpu.sm_clock_mhz, gpu.reasons) for gpu in found.gpus] == [
        (2, 1880, {"hw slowdown": 0.5})
    ]


def profile(view: StackView, thread_name: str, num_samples: int) -> ProfiledWindow:
    return ProfiledWindow(
        launch="r",
        label="p",
        role="drafter",
        thread=thread_name,
        view=view,
        num_ranks=1,
        ns_per_token=1.0,
        stacks={(FrameId("f", "f.py"),): num_samples},
    )


def test_the_gil_of_others_is_a_share_of_the_main_threads_samples() -> None:
    held = [
        profile(StackView.GIL, "main", 60),
        profile(StackView.GIL, "reader", 20),
        profile(StackView.ALL, "main", 80),
    ]

    assert gather([launch()], WINDOWS, profiles=held).gil_shares == {"drafter": 0.25}
    assert gather([launch()], WINDOWS, profiles=held[2:]).gil_shares == {}


def test_launches_add_up() -> None:
    first = gather([launch()], WINDOWS, threads=[thread(usr_pct=90), thread(usr_pct=10)], facts={"a": "1", "b": "1"})
    second = gather([launch()], WINDOWS[:1], threads=[thread(usr_pct=70)], facts={"a": "1", "b": "2"})

    both = pool([first, second])

    assert both.num_launches == 2
    assert both.ns_per_token == first.ns_per_token
    assert both.phases["drafter", "main", "forward"] == 105 * MS
    assert [(row.num_tokens, row.capacity_tok_per_s, row.is_limiting) for row in both.lanes] == [
        (1500, pytest.approx(first.lanes[0].capacity_tok_per_s), True)
    ]
    assert [row.usr_pct for row in both.threads] == [80, 10]
    assert both.facts == {"a": "1", "b": "1 or 2"}


def test_the_role_that_limits_every_launch_limits_the_arm_whichever_of_its_ranks_was_the_slowest() -> None:
    waits_ms = ((1, 3, 3), (1, 3, 3), (3, 1, 3), (3, 1, 3))
    launches = [
        gather([launch(wait_ms=wait_ms, rank=rank) for rank, wait_ms in enumerate(of)], WINDOWS) for of in waits_ms
    ]

    assert [1] == [sum(row.is_limiting for row in one.lanes) for one in launches[:1]]
    assert ["drafter"] == [row.lane.role for row in pool(launches).lanes if row.is_limiting]


def test_an_arm_without_launches_or_windows_says_nothing() -> None:
    assert pool([]) == ArmEvidence()
    assert gather([launch()], ()).ns_per_token == 0
    assert gather([], WINDOWS).phases == {}


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_the_order_of_launches_does_not_matter(waits_ms: list[int]) -> None:
    launches = [gather([launch(num_steps=20, wait_ms=wait_ms % STEP_MS)], WINDOWS[:1]) for wait_ms in waits_ms]

    forth, back = pool(launches), pool(launches[::-1])

    assert forth.phases == pytest.approx(back.phases)
    assert forth.lanes[0].capacity_tok_per_s == pytest.approx(back.lanes[0].capacity_tok_per_s)
    assert forth.steps["drafter"].mean_ns == pytest.approx(back.steps["drafter"].mean_ns)
