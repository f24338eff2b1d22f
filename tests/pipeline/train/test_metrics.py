"""Metrics read at once and read later are the same readings, each exactly once, each with its step's stamp."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashprof.stats import sanity
from pipeline.train.metrics import STAMP, STAMP_MODULO, AsyncMetrics, Copy, MetricsReader, Reading, SyncMetrics

CPU = torch.device("cpu")


class Event:
    """As a CUDA event, but it is told when it is done."""

    def __init__(self) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done

    def synchronize(self) -> None:
        self.is_done = True


def readers() -> list[MetricsReader]:
    return [SyncMetrics(), AsyncMetrics(CPU)]


def scalars(step: int) -> dict[str, torch.Tensor]:
    return {"loss": torch.tensor(8.0 / (step + 1)), "acc": torch.tensor(step / 7, dtype=torch.float32)}


def read_all(reader: MetricsReader, num_steps: int) -> list[list[Reading]]:
    return [*(reader.push(step, scalars(step)) for step in range(num_steps)), reader.drain()]


def flat(readings: list[list[Reading]]) -> list[Reading]:
    return list(itertools.chain.from_iterable(readings))


@given(st.integers(0, 30))
def test_both_readers_give_the_same_readings_in_order(num_steps: int) -> None:
    at_once = flat(read_all(SyncMetrics(), num_steps))
    later = flat(read_all(AsyncMetrics(CPU), num_steps))

    assert at_once == later
    assert list(range(num_steps)) == [reading.step for reading in later]


@given(st.integers(0, 2**40))
def test_a_reading_carries_the_stamp_that_the_guard_expects(step: int) -> None:
    for reader in readers():
        (reading,) = reader.push(step, scalars(3)) + reader.drain()

        assert {"loss": 2.0, "acc": pytest.approx(3 / 7), STAMP: step % sanity.STAMP_MODULO} == reading.values


def test_the_trainer_and_the_guard_count_alike() -> None:
    assert (sanity.STAMP, sanity.STAMP_MODULO) == (STAMP, STAMP_MODULO)
    # The modulus is not too large: the largest stamp and its neighbour differ in float32.
    assert float(torch.tensor(STAMP_MODULO - 1.0)) != float(torch.tensor(STAMP_MODULO - 2.0))


def test_the_synchronous_reader_owes_nothing() -> None:
    assert [1, 1, 1, 0] == [len(readings) for readings in read_all(SyncMetrics(), 3)]


def test_the_asynchronous_reader_reads_a_step_no_sooner_than_the_next_one() -> None:
    assert [0, 1, 1, 1] == [len(readings) for readings in read_all(AsyncMetrics(CPU), 3)]


def test_a_copy_that_is_under_way_is_waited_for_only_at_the_end() -> None:
    events: list[Event] = []

    def start_copy(packed: torch.Tensor) -> Copy:
        events.append(Event())
        return Copy(packed, events[-1])

    reader = AsyncMetrics(CPU, start_copy)
    pushed = [reader.push(step, scalars(step)) for step in range(3)]
    # The second has arrived; readings keep their order, so it waits for the first.
    events[1].is_done = True
    pushed.append(reader.push(3, scalars(3)))
    events[0].is_done = True
    pushed.append(reader.push(4, scalars(4)))

    assert [[], [], [], [], [0, 1]] == [[reading.step for reading in readings] for readings in pushed]
    assert [2, 3, 4] == [reading.step for reading in reader.drain()]
    assert all(event.is_done for event in events)


def test_a_step_without_metrics_has_no_reading() -> None:
    for reader in readers():
        readings = [*reader.push(0, scalars(0)), *reader.push(1, {}), *reader.push(2, scalars(2)), *reader.drain()]

        assert [0, 2] == [reading.step for reading in readings]


def test_drained_twice_it_gives_each_reading_once() -> None:
    reader = AsyncMetrics(CPU)
    reader.push(0, scalars(0))

    assert [0] == [reading.step for reading in reader.drain()]
    assert [] == reader.drain()


def test_a_scalar_that_is_overwritten_after_its_step_is_read_as_it_was() -> None:
    reader = AsyncMetrics(CPU)
    loss = torch.tensor(3.0)
    reader.push(0, {"loss": loss})

    loss.fill_(-1.0)

    assert [Reading(0, {"loss": 3.0, STAMP: 0.0})] == reader.drain()
