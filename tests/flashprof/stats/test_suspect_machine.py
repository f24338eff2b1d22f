"""Suspects outside the code: other threads, cores, clocks, versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flashprof.contracts.localisation import Ruling
from flashprof.windows.evidence import ArmEvidence
from tests.support.suspect_cases import CPU_FACTS, arm, gpu, lane, part, ruled, thread, use

PARTS = (part("drafter forward", 180.0), part("drafter mask", 20.0))


def crowded(
    *, others: float, main: float = 90.0, switches: float = 50.0, name: str = "drafter-0", **fields: Any
) -> ArmEvidence:
    """The drafter works 900 ns of 1,000 ns a token, its main thread is on a core *main* % of the time."""
    return arm(threads=(thread(usr=main, switches=switches), thread(name, usr=others)), **fields)


def test_another_busy_thread_while_the_main_one_stands_still_is_gil_contention() -> None:
    candidate = crowded(others=80.0, main=70.0, switches=2000.0, lanes=(lane(work_ns=1080),), wall_ns=1200.0)

    found = ruled("GIL contention", crowded(others=1.0), candidate, PARTS)

    assert found.ruling is Ruling.NAMED
    assert "ran 1.0 → 80.0 % of the time" in found.evidence
    assert "stood still 0 ns → 0.24 µs a token" in found.evidence


def test_another_busy_thread_beside_a_main_one_that_never_stands_still_is_not_known() -> None:
    found = ruled("GIL contention", crowded(others=1.0), crowded(others=80.0, switches=2000.0), PARTS)

    assert found.ruling is Ruling.UNKNOWN


@pytest.mark.parametrize("name", ["drafter-0", "pt_autograd_0"])
def test_threads_that_run_no_more_python_are_ruled_out(name: str) -> None:
    others = 80.0 if name == "pt_autograd_0" else 2.0
    candidate = crowded(others=others, main=70.0, switches=2000.0, name=name, lanes=(lane(work_ns=1080),))

    assert ruled("GIL contention", crowded(others=2.0, name=name), candidate, PARTS).ruling is Ruling.RULED_OUT


def test_samples_of_who_holds_the_gil_go_before_what_threads_ran() -> None:
    base, candidate = arm(gil_shares={"drafter": 0.01}, threads=()), arm(gil_shares={"drafter": 0.16}, threads=())

    found = ruled("GIL contention", base, candidate, PARTS)

    assert found.ruling is Ruling.NAMED
    assert "held the GIL 1.0 → 16.0 % of the time" in found.evidence


def test_without_threads_the_gil_is_not_known() -> None:
    found = ruled("GIL contention", arm(threads=()), arm(threads=()), PARTS)

    assert found.ruling is Ruling.UNKNOWN
    assert "sampling.resources=schedstat" in found.evidence


def waiting(pct: float) -> ArmEvidence:
    return arm(threads=(thread(wait=pct),), uses=(use(delay=pct / 100, others=pct / 50),))


def test_a_main_thread_that_waits_for_a_core_is_oversubscription() -> None:
    found = ruled("CPU oversubscription", waiting(1.0), waiting(17.0), PARTS)

    assert found.ruling is Ruling.NAMED
    # 16 % of 1,000 ns by the main thread, 16 % of 900 ns of work by all threads: the smaller one counts.
    assert found.share == pytest.approx(0.72)
    assert "waited for a core 1.0 → 17.0 % of the time" in found.evidence
    assert "others used 0.02 → 0.34 cores" in found.evidence
    assert "1 → 1 busy threads on 2 cores" in found.evidence


def test_threads_that_always_had_a_core_rule_it_out() -> None:
    assert ruled("CPU oversubscription", waiting(1.0), waiting(1.2), PARTS).ruling is Ruling.RULED_OUT


def test_profile_windows_that_waited_while_measure_windows_did_not_name_nobody() -> None:
    base = arm(threads=(thread(wait=1.0),), uses=(use(delay=0.05), use(delay=0.06), use(delay=0.04)))
    busy = arm(threads=(thread(wait=30.0),), uses=(use(delay=0.04), use(delay=0.07), use(delay=0.05)))

    found = ruled("CPU oversubscription", base, busy, PARTS)

    assert found.ruling is Ruling.UNKNOWN
    assert found.share < 0.05


def test_measure_windows_that_waited_are_not_ruled_out_by_calm_profile_windows() -> None:
    delays = [(0.01, 0.01, 0.02), (0.14, 0.15, 0.16)]
    base, held_up = (arm(threads=(thread(wait=5.0),), uses=tuple(use(delay=d) for d in of)) for of in delays)
    calmer = replace(held_up, threads=(thread(wait=1.0),))

    assert ruled("CPU oversubscription", base, held_up, PARTS).ruling is Ruling.UNKNOWN
    assert ruled("CPU oversubscription", base, calmer, PARTS).ruling is Ruling.UNKNOWN
    assert ruled("CPU oversubscription", base, calmer, PARTS).share == 0


def test_contradicting_windows_have_no_part_of_a_faster_candidate() -> None:
    faster = (part("drafter forward", -180.0),)
    base = arm(threads=(thread(wait=20.0),), uses=(use(delay=0.01),) * 3)
    candidate = arm(threads=(thread(wait=1.0),), uses=(use(delay=0.02),) * 3)

    found = ruled("CPU oversubscription", base, candidate, faster, difference_ns=-200.0)

    assert (found.ruling, found.share) == (Ruling.UNKNOWN, 0)


def test_one_window_that_was_held_up_is_not_clear() -> None:
    calm = arm(threads=(), uses=(use(delay=0.01),) * 4)
    burst = arm(threads=(), uses=(*(use(delay=0.01),) * 3, use(delay=0.6)))
    steady = arm(threads=(), uses=tuple(use(delay=delay) for delay in (0.14, 0.15, 0.16, 0.15)))

    assert ruled("CPU oversubscription", calm, burst, PARTS).ruling is Ruling.UNKNOWN
    assert ruled("CPU oversubscription", calm, steady, PARTS).ruling is Ruling.NAMED


def test_the_machine_tells_where_no_threads_were_read() -> None:
    arms = [arm(threads=(), uses=(use(delay=delay),)) for delay in (0.0, 0.15)]
    unread = arm(threads=())

    assert ruled("CPU oversubscription", arms[0], arms[1], PARTS).ruling is Ruling.NAMED
    assert ruled("CPU oversubscription", arms[0], arms[0], PARTS).ruling is Ruling.RULED_OUT
    assert ruled("CPU oversubscription", unread, unread, PARTS).ruling is Ruling.UNKNOWN


def test_lower_clocks_of_a_busy_gpu_are_throttling() -> None:
    hot = gpu(clock=1700.0, reasons={"hw thermal slowdown": 0.8})

    found = ruled("throttling", arm(gpus=(gpu(),)), arm(gpus=(hot,)), PARTS)

    assert found.ruling is Ruling.NAMED
    assert found.share == pytest.approx(0.78, abs=0.01)
    assert "1,980 → 1,700 MHz" in found.evidence
    assert "hw thermal slowdown" in found.evidence


def test_a_gpu_at_the_same_clock_and_an_idle_one_are_ruled_out() -> None:
    idle = [arm(gpus=(gpu(clock=clock, busy=2.0),)) for clock in (1980.0, 1700.0)]

    assert ruled("throttling", arm(gpus=(gpu(),)), arm(gpus=(gpu(),)), PARTS).ruling is Ruling.RULED_OUT
    assert ruled("throttling", idle[0], idle[1], PARTS).ruling is Ruling.RULED_OUT


def test_clocks_that_nobody_read_are_not_known() -> None:
    found = ruled("throttling", arm(), arm(), PARTS)

    assert found.ruling is Ruling.UNKNOWN
    assert "turbostat" in found.evidence


def facts(**changed: str) -> ArmEvidence:
    return arm(facts={**CPU_FACTS, **{name.replace("__", "."): text for name, text in changed.items()}})


def test_a_version_that_alone_differs_is_the_cause_by_elimination() -> None:
    found = ruled("clock or library changes", facts(), facts(versions__torch="2.14.0"), PARTS)

    assert found.ruling is Ruling.NAMED
    assert "versions.torch 2.13.0 → 2.14.0" in found.evidence


def test_a_version_that_differs_beside_a_toggle_is_not_known() -> None:
    found = ruled("clock or library changes", facts(), facts(versions__torch="2.14.0", toggles__swa="on"), PARTS)

    assert found.ruling is Ruling.UNKNOWN
    assert "so do 1 other facts" in found.evidence


def test_equal_versions_are_ruled_out_and_unknown_ones_are_not() -> None:
    name = "clock or library changes"

    assert ruled(name, facts(), facts(toggles__swa="on"), PARTS).ruling is Ruling.RULED_OUT
    assert ruled(name, arm(facts={}), facts(), PARTS).ruling is Ruling.UNKNOWN
