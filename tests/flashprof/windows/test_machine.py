"""What happened during a window: counters on the line between readings, states of all readings around it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.machine import GpuReading, MachineReading
from flashprof.windows.machine import machine_use, uses_before

S = 10**9
QUIET = MachineReading(
    at_ns=0,
    busy_cpu_s=100.0,
    stolen_cpu_s=5.0,
    subject_cpu_s=50.0,
    own_cpu_s=2.0,
    subject_delay_s=1.0,
    num_swapped_pages=7,
    governor="performance",
)
GPU = GpuReading(
    index=0,
    sm_clock_mhz=1980,
    throttle_reasons=(),
    temperature_c=50,
    power_w=400.0,
    utilization_pct=90,
    num_foreign_processes=0,
)


def reading(at_s: float, *, subject: float = 1.5, other: float = 0.25, own: float = 0.05) -> MachineReading:
    """A reading of a machine on which each used so many cores since second 0."""
    return replace(
        QUIET,
        at_ns=round(at_s * S),
        busy_cpu_s=100.0 + (subject + other + own) * at_s,
        stolen_cpu_s=5.0 + 0.1 * at_s,
        subject_cpu_s=50.0 + subject * at_s,
        own_cpu_s=2.0 + own * at_s,
        subject_delay_s=1.0 + 0.5 * at_s,
    )


def test_constant_use_is_found_wherever_the_window_lies_between_the_readings() -> None:
    use = machine_use([reading(at_s) for at_s in range(6)], round(1.3 * S), round(3.7 * S))

    assert use is not None
    assert (2.4, 0.25, 0.1, 0.25) == pytest.approx((use.length_s, use.other_cores, use.stolen_cores, use.delay_share))
    assert (0, ("performance",), (), 0, True) == (
        use.num_swapped_pages,
        use.governors,
        use.throttle_reasons,
        use.num_foreign_gpu_processes,
        use.is_foreign_gpu_steady,
    )


def test_a_burst_counts_by_the_part_of_it_that_the_line_puts_into_the_window() -> None:
    before, during = reading(0), replace(reading(1), busy_cpu_s=reading(1).busy_cpu_s + 1.0)
    after = replace(reading(2), busy_cpu_s=reading(2).busy_cpu_s + 1.0)
    uses = [machine_use([before, during, after], start, end) for start, end in ((0, S), (S // 2, S), (S, 2 * S))]

    assert [1.25, 1.25, 0.25] == pytest.approx([use.other_cores for use in uses if use is not None])


@pytest.mark.parametrize(("start_s", "end_s"), [(0.5, 2.0), (1.5, 4.5), (2.0, 2.0), (3.0, 2.0)])
def test_a_window_that_the_readings_do_not_span_has_no_use(start_s: float, end_s: float) -> None:
    assert machine_use([reading(1), reading(2), reading(4)], round(start_s * S), round(end_s * S)) is None


def test_no_readings_span_nothing() -> None:
    assert machine_use([], 0, S) is None


def test_a_window_that_ends_on_readings_needs_no_others() -> None:
    use = machine_use([reading(1), reading(2)], S, 2 * S)

    assert use is not None
    assert 0.25 == pytest.approx(use.other_cores)


def test_states_are_those_of_the_readings_within_and_at_the_ends_and_of_no_other() -> None:
    def state(at_s: int, governor: str, reason: str, foreign: int) -> MachineReading:
        gpu = replace(GPU, throttle_reasons=(reason,), num_foreign_processes=foreign)
        return replace(reading(at_s), governor=governor, gpus=(gpu, replace(GPU, index=1, num_foreign_processes=1)))

    readings = [
        state(0, "ondemand", "hw slowdown", 5),
        state(1, "performance", "sw power cap", 0),
        state(2, "performance", "sw power cap", 2),
        state(3, "powersave", "sw thermal slowdown", 0),
        state(4, "userspace", "sync boost", 7),
    ]
    use = machine_use(readings, round(1.5 * S), round(2.5 * S))

    assert use is not None
    assert ("performance", "powersave") == use.governors
    assert ("gpu 0: sw power cap", "gpu 0: sw thermal slowdown") == use.throttle_reasons
    assert (3, False) == (use.num_foreign_gpu_processes, use.is_foreign_gpu_steady)


def test_swapping_is_never_rounded_away() -> None:
    use = machine_use([reading(0), replace(reading(1), num_swapped_pages=8)], 0, S // 10)

    assert use is not None
    assert 1 == use.num_swapped_pages


def test_a_machine_without_governors_has_none() -> None:
    use = machine_use([replace(reading(at_s), governor="") for at_s in range(2)], 0, S)

    assert use is not None
    assert () == use.governors


def test_what_the_meter_cannot_read_gives_no_use_of_others() -> None:
    blind = replace(QUIET, busy_cpu_s=0.0)
    use = machine_use([blind, replace(blind, at_ns=S, subject_cpu_s=51.0)], 0, S)

    assert use is not None
    assert 0.0 == use.other_cores


@given(cut_s=st.floats(min_value=0.6, max_value=4.4), bursts=st.lists(st.floats(0, 3), min_size=5, max_size=5))
def test_two_halves_of_a_window_used_what_the_whole_did(cut_s: float, bursts: list[float]) -> None:
    readings = [
        replace(reading(at_s), busy_cpu_s=reading(at_s).busy_cpu_s + sum(bursts[:at_s]))
        for at_s in range(len(bursts) + 1)
    ]
    edges = (S // 2, round(cut_s * S), round(4.5 * S))
    whole = machine_use(readings, edges[0], edges[2])
    halves = [machine_use(readings, *part) for part in (edges[:2], edges[1:])]

    assert whole is not None
    assert whole.other_cores * whole.length_s == pytest.approx(
        sum(half.other_cores * half.length_s for half in halves if half is not None)
    )


def test_the_time_before_the_first_window_is_cut_into_whole_stretches() -> None:
    readings = [reading(at_s) for at_s in range(1, 8)]
    uses = uses_before(readings, round(6.5 * S), 2.0)

    assert [2.0, 2.0] == [use.length_s for use in uses]
    assert [0.25, 0.25] == pytest.approx([use.other_cores for use in uses])


def test_stretches_come_in_the_order_of_time() -> None:
    readings = [replace(reading(at_s), busy_cpu_s=150.0 + at_s**2) for at_s in range(9)]
    cores = [use.other_cores for use in uses_before(readings, 8 * S, 2.0)]

    assert 4 == len(cores)
    assert sorted(cores) == cores


@pytest.mark.parametrize(("until_s", "length_s"), [(0.5, 2.0), (3.0, 2.5), (6.5, 0.0), (0.0, 1.0)])
def test_there_may_be_no_time_before_the_first_window(until_s: float, length_s: float) -> None:
    assert () == uses_before([reading(1), reading(3)], round(until_s * S), length_s)
    assert () == uses_before([], round(until_s * S), length_s)
