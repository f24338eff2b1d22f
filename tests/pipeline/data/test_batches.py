"""An epoch holds every sample once, within budget and bucket; a batch holds its samples' tokens and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import UsageError
from pipeline.data.batches import Batch, BatchPlan, collate, plan_epoch
from pipeline.data.samples import Samples

BOUNDS = (100, 256, 500)
lengths = st.lists(st.integers(1, 500), max_size=120)


def plan(lengths: list[int], *, budget: int = 1024, most: int = 8, seed: int = 0, epoch: int = 0) -> list[BatchPlan]:
    lengths_N = np.array(lengths, dtype=np.int64)
    return plan_epoch(lengths_N, bounds=BOUNDS, token_budget=budget, max_samples=most, seed=seed, epoch=epoch)


@settings(max_examples=100, deadline=None)
@given(lengths=lengths, budget=st.integers(512, 4000), most=st.integers(1, 64), seed=st.integers(0, 2**32))
def test_every_sample_comes_once_and_every_batch_keeps_the_limits(
    lengths: list[int], budget: int, most: int, seed: int
) -> None:
    plans = plan(lengths, budget=budget, most=most, seed=seed)

    assert list(range(len(lengths))) == sorted(index for batch in plans for index in batch.indices)
    for batch in plans:
        longest = max(lengths[index] for index in batch.indices)

        assert 1 <= len(batch.indices) <= most
        assert len(batch.indices) * batch.padded_length <= budget
        assert {batch.bucket} == {int(np.searchsorted(BOUNDS, lengths[index])) for index in batch.indices}
        assert batch.padded_length % 32 == 0
        assert longest <= batch.padded_length < longest + 32


@settings(max_examples=50, deadline=None)
@given(lengths=lengths, budget=st.integers(512, 4000), most=st.integers(1, 64))
def test_batches_are_full(lengths: list[int], budget: int, most: int) -> None:
    """At most one batch a bucket could take one more sample as long as the bucket allows."""
    with_room = [
        batch.bucket
        for batch in plan(lengths, budget=budget, most=most)
        if len(batch.indices) < most and (len(batch.indices) + 1) * (-(-BOUNDS[batch.bucket] // 32) * 32) <= budget
    ]

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
    plans = plan([30, 200, 60, 90, 210, 400], budget=512, seed=3, epoch=2)

    assert plans == [BatchPlan(0, (0, 3, 2), 96), BatchPlan(1, (1, 4), 224), BatchPlan(2, (5,), 416)]


def test_a_sample_over_the_budget_says_what_to_set() -> None:
    with pytest.raises(UsageError) as caught:
        plan([10, 400, 420], budget=300)

    assert caught.value.what == "2 samples do not fit the token budget even alone"
    assert caught.value.next_command == "set token_budget to 448, or max_length to at most 288"


def test_a_batch_of_no_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="max_samples=0"):
        plan([10], most=0)


@pytest.fixture(scope="module")
def first_batch(stdlib_samples: Samples) -> tuple[BatchPlan, Batch]:
    plans = plan_epoch(stdlib_samples.lengths_N, bounds=(128, 512), token_budget=2048, max_samples=64, seed=0, epoch=0)
    chosen = next(batch for batch in plans if len(batch.indices) > 2)
    return chosen, collate(stdlib_samples.dataset, chosen)


def test_a_batch_holds_its_samples_padded_with_zeros(
    stdlib_samples: Samples, first_batch: tuple[BatchPlan, Batch]
) -> None:
    chosen, batch = first_batch
    rows = [stdlib_samples.dataset[index] for index in chosen.indices]

    assert [row["length"] for row in rows] == batch.lengths_B.tolist()
    for row, ids_S, mask_S in zip(rows, batch.input_ids_BS.tolist(), batch.loss_mask_BS.tolist(), strict=True):
        num_padding = chosen.padded_length - row["length"]

        assert row["input_ids"] + [0] * num_padding == ids_S
        assert [bool(bit) for bit in row["loss_mask"]] + [False] * num_padding == mask_S


def test_a_batch_has_the_types_and_the_shape_of_its_plan(first_batch: tuple[BatchPlan, Batch]) -> None:
    chosen, batch = first_batch
    shape = (len(chosen.indices), chosen.padded_length)

    assert (torch.int64, shape) == (batch.input_ids_BS.dtype, batch.input_ids_BS.shape)
    assert (torch.bool, shape) == (batch.loss_mask_BS.dtype, batch.loss_mask_BS.shape)
    assert (torch.int64, shape[:1]) == (batch.lengths_B.dtype, batch.lengths_B.shape)
