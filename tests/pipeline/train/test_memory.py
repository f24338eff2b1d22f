"""The allocator's numbers come under their gauges' names, and a process without CUDA has none."""

from __future__ import annotations

import pytest
import torch

from pipeline.train.memory import memory_gauges, read_memory


def test_bytes_become_gibibytes_and_counts_stay_counts() -> None:
    stats = {
        "allocated_bytes.all.current": 3 * 2**30,
        "reserved_bytes.all.current": 2**31,
        "num_alloc_retries": 7,
        "num_ooms": 1,
    }

    assert {
        "memory_allocated_gib": 3.0,
        "memory_reserved_gib": 2.0,
        "memory_retries": 7.0,
    } == memory_gauges(stats)


def test_before_the_first_allocation_all_are_zero() -> None:
    assert {0.0} == set(memory_gauges({}).values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="another test may have used the CUDA device")
def test_a_process_that_uses_no_cuda_device_has_no_such_gauges() -> None:
    assert {} == read_memory()
