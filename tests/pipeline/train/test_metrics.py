"""Metrics read at once and read later are the same readings, each exactly once."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.train.metrics import AsyncMetrics, MetricsReader, Reading, SyncMetrics

CPU = torch.device("cpu")


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


def test_the_synchronous_reader_owes_nothing() -> None:
    assert [1, 1, 1, 0] == [len(readings) for readings in read_all(SyncMetrics(), 3)]


def test_the_asynchronous_reader_reads_a_step_no_sooner_than_the_next_one() -> None:
    assert [0, 1, 1, 1] == [len(readings) for readings in read_all(AsyncMetrics(CPU), 3)]


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

    assert [Reading(0, {"loss": 3.0})] == reader.drain()
