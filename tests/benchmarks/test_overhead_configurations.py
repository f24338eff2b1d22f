"""Which samplers are compared, and a meter that is attached like one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import FakeSampler, World

from benchmarks.overhead_configurations import DEFAULT, Readings, configurations
from flashprof.contracts.ports import SampleTarget

TARGETS = [SampleTarget(role="drafter", rank=0, pid=42)]


def test_all_samplers_of_the_issue_have_a_configuration_of_their_own(tmp_path: Path) -> None:
    names = [one.name for one in configurations(World(tmp_path).ports)]

    assert len(set(names)) == len(names)
    assert 9 == sum(name.startswith("pyspy_") for name in names)
    assert {"pyspy_nonblocking_10_hz", "pyspy_blocking_20_hz", "pyspy_native_100_hz"} < set(names)
    assert {"pidstat", "schedstat", "meter_1_hz", "meter_10_hz", "nvml_1_hz", "nvml_10_hz", DEFAULT} < set(names)


def test_the_default_is_what_was_wired_and_says_what_is_missing(tmp_path: Path) -> None:
    sampler = FakeSampler([])
    ports = replace(World(tmp_path).ports, samplers=(sampler,), notes=("no stacks",))
    (default,) = (one for one in configurations(ports) if one.name == DEFAULT)

    assert (sampler,) == default.samplers
    assert "sampler, no stacks" == default.note


@pytest.mark.parametrize("num_uses", [1, 2])
def test_readings_begin_when_attached_and_end_when_detached(num_uses: int, tmp_path: Path) -> None:
    several = threading.Semaphore(0)
    pids_read: list[Sequence[int]] = []

    def read(pids: Sequence[int]) -> None:
        pids_read.append(pids)
        several.release()

    readings = Readings("meter", read, rate_hz=1000)
    for _ in range(num_uses):
        readings.start(TARGETS, tmp_path)
        for _ in range(3):
            assert several.acquire(timeout=10)
        assert [] == readings.stop() == readings.stop()
        num_read = len(pids_read)

    assert [42] == pids_read[-1]
    assert num_read == len(pids_read)
    assert "meter" not in {thread.name for thread in threading.enumerate()}
