"""Pieces of evidence pool by what they are means of."""

from __future__ import annotations

import pytest

from flashprof.contracts.events import EventLog, Header, Mark
from flashprof.windows.evidence_items import (
    AllocatorUse,
    GaugeUse,
    GpuUse,
    pool_allocators,
    pool_gauges,
    pool_gpus,
    read_allocators,
    weighted,
)


def gpu(clock: float, num_readings: int, **reasons: float) -> GpuUse:
    return GpuUse(
        index=0,
        num_readings=num_readings,
        busy_pct=50,
        sm_clock_mhz=clock,
        power_w=0.0,
        temperature_c=60,
        reasons=reasons,
    )


def test_gauges_pool_by_their_number_of_values() -> None:
    key = ("drafter", "queue")
    launches = [
        {key: GaugeUse(num_values=3, mean=1.0, median=1.0)},
        {key: GaugeUse(num_values=1, mean=5.0, median=3.0)},
    ]

    assert pool_gauges(launches) == {key: GaugeUse(num_values=4, mean=2.0, median=2.0)}


def test_gpus_pool_by_their_readings_and_a_clock_that_was_not_told_does_not_count() -> None:
    (pooled,) = pool_gpus([(gpu(2000, 3, slow=1.0),), (gpu(0, 9),), (gpu(1000, 1),)])

    assert pooled.sm_clock_mhz == pytest.approx(1750)
    assert pooled.reasons == {"slow": pytest.approx(3 / 13)}
    assert (pooled.num_readings, pooled.busy_pct, pooled.power_w) == (13, 50, 0)


def test_allocators_add_up() -> None:
    use = AllocatorUse(num_retries=1, grown_gib=0.5, excess_ns=10)

    assert pool_allocators([{"drafter": use}, {"drafter": use}, {}]) == {
        "drafter": AllocatorUse(num_retries=2, grown_gib=1.0, excess_ns=20)
    }


def test_the_rank_that_lost_most_by_its_allocator_counts() -> None:
    logs = []
    for rank in range(2):
        header = Header(role="drafter", rank=rank, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
        logs.append(EventLog(header=header, marks=[Mark("allocator", 5, {"gib": 1.0, "retries": 1 + rank})]))

    found = read_allocators(logs, lambda _: True, {("drafter", 0): 70.0, ("drafter", 1): 30.0})

    assert found == {"drafter": AllocatorUse(num_retries=1, grown_gib=1.0, excess_ns=70.0)}


def test_a_mean_without_weight_is_zero() -> None:
    assert weighted([(5.0, 0.0)]) == 0
