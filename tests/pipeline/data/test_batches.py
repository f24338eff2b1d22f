"""An epoch holds every chosen sample once, in the listed shapes; a batch holds its samples' tokens and nothing else."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from epochs import BOUNDS, batch_rule, make_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import UsageError
from pipeline.data.batches import Batch, BatchPlan, BatchRule, batches_from, collate, plan_epoch
from pipeline.data.buckets import batch_shapes
from pipeline.data.samples import Samples

lengths = st.lists(st.integers(1, 500), max_size=120)


def plan(lengths: list[int], chosen: list[int] | None = None, *, epoch: int = 0, **of_rule: int) -> list[BatchPlan]:
    return make_plan(plan_epoch, lengths, chosen, rule=batch_rule(**of_rule), epoch=epoch)


@settings(max_examples=100, deadline=None)
@given(
    lengths=lengths, budget=st.integers(512, 4000), most=st.integers(1, 64), seed=st.integers(0, 2**32), data=st.data()
)
def test_every_chosen_sample_comes_once_in_a_listed_shape_that_holds_it(
    lengths: list[int], budget: int, most: int, seed: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(range(len(lengths))))) if lengths else set()
    plans = plan(lengths, sorted(chosen), budget=budget, most=most, seed=seed)
    listed = {(s.bucket, s.num_rows, s.padded_length) for s in batch_shapes(BOUNDS, budget, most)}

    assert sorted(chosen) == sorted(index for batch in plans for index in batch.indices)
    assert {(batch.bucket, batch.num_rows, batch.padded_length) for batch in plans} <= listed
    for batch in plans:
        assert 1 <= len(batch.indices) <= batch.num_rows
        assert max(lengths[index] for index in batch.indices) <= batch.padded_length


@settings(max_examples=50, deadline=None)
@given(lengths=lengths, budget=st.integers(512, 4000), most=st.integers(1, 64))
def test_at_most_one_batch_a_shape_has_empty_rows(lengths: list[int], budget: int, most: int) -> None:
    with_room = [b.padded_length for b in plan(lengths, budget=budget, most=most) if len(b.indices) < b.num_rows]

    assert len(set(with_room)) == len(with_room)


def test_seed_and_epoch_each_give_another_order() -> None:
    drawn = list(range(1, 401))
    orders = [plan(drawn), plan(drawn, seed=1), plan(drawn, epoch=1)]

    assert plan(drawn) == orders[0]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_buckets_are_mixed_over_the_epoch() -> None:
    buckets = [batch.bucket for batch in plan(list(range(1, 401)))]

    assert sorted(buckets) != buckets


def test_every_process_and_machine_plans_the_same_epoch() -> None:
    """Written down, not recomputed: were it to change, runs of the same seed could no longer be compared."""
    plans = plan([30, 200, 60, 90, 210, 400], budget=512, seed=5, epoch=2)

    assert plans == [
        BatchPlan(0, (2, 0), 8, 64),
        BatchPlan(2, (5,), 1, 512),
        BatchPlan(0, (3,), 4, 128),
        BatchPlan(1, (1, 4), 2, 256),
    ]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=60), first=st.integers(0, 100), seed=st.integers(0, 9)
)
def test_a_run_that_starts_later_gets_the_batches_that_were_left(lengths: list[int], first: int, seed: int) -> None:
    given = (np.array(lengths), np.arange(len(lengths)), batch_rule(seed=seed))
    whole = list(islice(batches_from(*given, first=0), first + 30))

    assert whole[first:] == list(islice(batches_from(*given, first=first), 30))
    assert whole[: len(plan(lengths, seed=seed))] == plan(lengths, seed=seed)[: len(whole)]


def test_a_far_position_costs_two_plans_and_no_walk() -> None:
    """Were batches counted off one by one, a million million of them would not end."""
    batches = batches_from(np.array([30, 40]), np.arange(2), batch_rule(budget=512, most=1), first=10**12)

    assert next(batches).num_rows == 1


def test_batches_of_no_samples_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="no sample"):
        batches_from(np.array([5]), np.array([], dtype=int), batch_rule(), first=0)


@pytest.fixture(scope="module")
def partial_batch(stdlib_samples: Samples) -> tuple[BatchPlan, Batch]:
    """A batch with several samples and an empty row."""
    lengths_N = stdlib_samples.lengths_N
    rule = BatchRule(bounds=(128, 512), token_budget=2048, max_samples=64, seed=0)
    plans = plan_epoch(lengths_N, np.arange(len(lengths_N)), rule, 0)
    chosen = next(batch for batch in plans if 2 < len(batch.indices) < batch.num_rows)
    return chosen, collate(stdlib_samples.dataset, chosen)


def test_a_batch_holds_its_samples_padded_with_zeros(
    stdlib_samples: Samples, partial_batch: tuple[BatchPlan, Batch]
) -> None:
    chosen, batch = partial_batch
    rows = [stdlib_samples.dataset[index] for index in chosen.indices]

    assert [row["length"] for row in rows] == batch.lengths_B.tolist()
    for row, ids_S, mask_S in zip(rows, batch.input_ids_BS.tolist(), batch.loss_mask_BS.tolist(), strict=False):
        num_padding = chosen.padded_length - row["length"]

        assert row["input_ids"] + [0] * num_padding == ids_S
        assert [bool(bit) for bit in row["loss_mask"]] + [False] * num_padding == mask_S
    assert not batch.input_ids_BS[len(rows) :].any()
    assert not batch.loss_mask_BS[len(rows) :].any()


def test_a_batch_has_the_types_and_the_shape_of_its_plan(partial_batch: tuple[BatchPlan, Batch]) -> None:
    chosen, batch = partial_batch
    shape = (chosen.num_rows, chosen.padded_length)

    assert (torch.int64, shape) == (batch.input_ids_BS.dtype, batch.input_ids_BS.shape)
    assert (torch.bool, shape) == (batch.loss_mask_BS.dtype, batch.loss_mask_BS.shape)
    assert (torch.int64, (len(chosen.indices),)) == (batch.lengths_B.dtype, batch.lengths_B.shape)
