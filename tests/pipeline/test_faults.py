"""Each planted bug does what it did, in every run alike, and the sanity guard sees it; faults are found by name."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from torch import Tensor

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.events import EventLog, Gauge, Header
from flashprof.contracts.toggles import parse_toggles
from flashprof.stats.sanity import check_numbers
from pipeline.faults import (
    FAULTS,
    METRICS_UNORDERED,
    NO_FAULT,
    PACK_UNORDERED,
    find_fault,
    make_async_metrics,
    make_pack,
    planted_toggles,
)
from pipeline.model.taps import pack
from pipeline.toggles import REGISTRY
from pipeline.train.metrics import Reading

CPU = torch.device("cpu")
ASYNC = parse_toggles("async-metrics", REGISTRY)


def read(fault: str, num_steps: int, device: torch.device = CPU) -> list[Reading]:
    reader = make_async_metrics(fault, device)
    readings = []
    for step in range(num_steps):
        readings += reader.push(
            step, {"loss": torch.tensor(5.0 - step, device=device), "grad_norm": torch.ones((), device=device)}
        )
    return readings + reader.drain()


def judge(readings: list[Reading]) -> str | None:
    header = Header(role="drafter", rank=0, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    gauges = [Gauge(name, reading.step, 0, value) for reading in readings for name, value in reading.values.items()]
    return check_numbers([EventLog(header=header, gauges=gauges)])


def states(step: int, num_rows: int = 2) -> list[Tensor]:
    return [torch.full((num_rows, 4, 3), 10.0 * step + tap) for tap in (1, 2)]


def row(value: float, num_tokens: int, padded_length: int) -> Tensor:
    """What `pack` gives for `states(value / 10)`."""
    packed = torch.zeros(padded_length, 6)
    packed[:num_tokens] = torch.tensor([value + 1] * 3 + [value + 2] * 3)
    return packed


def test_metrics_read_before_their_copy_are_those_of_an_earlier_step() -> None:
    readings = read(METRICS_UNORDERED, 5)

    assert list(range(5)) == [reading.step for reading in readings]
    assert [0.0, 0.0, 5.0, 4.0, 3.0] == [reading.values["loss"] for reading in readings]


def test_the_guard_sees_metrics_that_were_read_too_early_and_passes_ordered_ones() -> None:
    reason = judge(read(METRICS_UNORDERED, 6))

    assert reason is not None
    assert "the metrics of step 1 were made in step 0: they were read before their copy was ordered" in reason
    assert judge(read(NO_FAULT, 6)) is None
    assert judge(read(PACK_UNORDERED, 6)) is None


def test_metrics_whose_number_changes_are_read_too_early_as_well() -> None:
    reader = make_async_metrics(METRICS_UNORDERED, CPU)
    for step in range(3):
        reader.push(step, {"loss": torch.tensor(1.0)})

    readings = reader.push(3, {"loss": torch.tensor(7.0), "acc": torch.tensor(0.5)}) + reader.drain()

    assert {"loss": 0.0, "acc": 0.0, "metrics_stamp": 0.0} == readings[-1].values


def test_a_row_that_is_sent_before_it_is_packed_holds_what_was_there_before() -> None:
    unordered = make_pack(PACK_UNORDERED, CPU)
    keep_T = torch.tensor([0, 1, 4])

    first, second, third = (unordered(states(step), keep_T, 4) for step in range(3))

    assert bool(first.isnan().all())
    assert torch.equal(row(0, 3, 4), second)
    assert torch.equal(row(10, 3, 4), third)


def test_a_row_that_was_sent_does_not_change_any_more() -> None:
    unordered = make_pack(PACK_UNORDERED, CPU)
    keep_T = torch.tensor([0, 1])
    unordered(states(0), keep_T, 2)
    sent = unordered(states(1), keep_T, 2)

    unordered(states(2), keep_T, 2)

    assert torch.equal(row(0, 2, 2), sent)


def test_rows_of_all_lengths_keep_their_shape_and_dtype_and_are_wrong() -> None:
    unordered = make_pack(PACK_UNORDERED, CPU)
    for step, (num_rows, padded_length) in enumerate([(1, 4), (2, 16), (1, 4), (2, 8), (4, 32)]):
        taps = [tap.bfloat16() for tap in states(step, num_rows)]
        keep_T = torch.arange(num_rows * 4)

        expected, found = pack(taps, keep_T, padded_length), unordered(taps, keep_T, padded_length)

        assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
        assert not torch.equal(expected, found)


def test_without_the_fault_the_healthy_code_runs() -> None:
    assert make_pack(NO_FAULT, CPU) is pack
    assert make_pack(METRICS_UNORDERED, CPU) is pack


def test_faults_leave_no_thread_behind() -> None:
    before = threading.active_count()

    read(METRICS_UNORDERED, 3)
    make_pack(PACK_UNORDERED, CPU)(states(0), torch.tensor([0]), 1)

    assert before == threading.active_count()


def test_faults_are_found_by_name_and_explain_themselves() -> None:
    assert list(FAULTS) == [find_fault(name, ASYNC) for name in FAULTS]
    assert all(text and "\n" not in text for text in FAULTS.values())
    with pytest.raises(UnknownNameError, match="did you mean 'pack-unordered'"):
        find_fault("pack-unorderd", ASYNC)


@pytest.mark.parametrize(("fault", "expected"), [("brake", {"brake": 0}), ("brake=170", {"brake": 170}), ("none", {})])
def test_a_brake_is_a_hidden_toggle_with_the_value_that_the_run_begins_with(
    fault: str, expected: dict[str, int]
) -> None:
    assert expected == planted_toggles(find_fault(fault, ASYNC))


@pytest.mark.parametrize("fault", ["brake=901", "brake=-1", "brake=fast", "brake="])
def test_a_brake_that_cannot_be_is_refused(fault: str) -> None:
    with pytest.raises(UsageError) as refusal:
        find_fault(fault, ASYNC)

    assert "0..900" == refusal.value.allowed


def test_a_fault_that_would_not_show_is_refused() -> None:
    with pytest.raises(UsageError, match="which is off"):
        find_fault(METRICS_UNORDERED, parse_toggles("all,-async-metrics", REGISTRY))


def test_the_names_are_known_without_torch() -> None:
    code = "import sys, pipeline.faults; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "False"


@pytest.mark.gpu
def test_on_cuda_metrics_are_read_too_early_although_the_side_stream_waits() -> None:
    cuda = torch.device("cuda")

    reason = judge(read(METRICS_UNORDERED, 20, cuda))

    assert reason is not None
    assert "they were read before their copy was ordered" in reason
    assert judge(read(NO_FAULT, 20, cuda)) is None


@pytest.mark.gpu
def test_on_cuda_rows_are_sent_before_they_are_packed() -> None:
    unordered = make_pack(PACK_UNORDERED, torch.device("cuda"))
    keep_T = torch.tensor([0, 1, 4], device="cuda")
    before, *taps = [[tap.cuda() for tap in states(step)] for step in range(6)]
    # CUDA loads a kernel when it is first called: longer than the fault lags, so that the first row would be right.
    unordered(before, keep_T, 4)
    torch.cuda.synchronize()

    found = [unordered(one, keep_T, 4) for one in taps]
    torch.cuda.synchronize()

    assert not any(torch.equal(pack(one, keep_T, 4), row_TF) for one, row_TF in zip(taps, found, strict=True))
