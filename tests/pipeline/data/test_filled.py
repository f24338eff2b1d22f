"""Filled batches hold every sample once, within the budget, nearly to the brim, alike on every machine."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from epochs import BOUNDS, batch_rule, make_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import UsageError
from pipeline.data.batches import BatchPlan, batches_from
from pipeline.data.filled import fill_bins, fill_epoch


def plan(lengths: list[int], chosen: list[int] | None = None, *, epoch: int = 0, **of_rule: int) -> list[BatchPlan]:
    return make_plan(fill_epoch, lengths, chosen, rule=batch_rule(**of_rule), epoch=epoch)


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 500), max_size=120),
    budget=st.integers(512, 4000),
    most=st.integers(1, 64),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_every_chosen_sample_comes_once_in_a_batch_within_the_budget(
    lengths: list[int], budget: int, most: int, seed: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(range(len(lengths))))) if lengths else set()
    plans = plan(lengths, sorted(chosen), budget=budget, most=most, seed=seed)

    assert sorted(chosen) == sorted(index for batch in plans for index in batch.indices)
    for batch in plans:
        held = [lengths[index] for index in batch.indices]
        assert 1 <= len(held) == batch.num_rows <= most
        assert sum(held) <= budget
        assert max(held) <= batch.padded_length < max(held) + 32
        assert sum(max(held) > bound for bound in BOUNDS) == batch.bucket
        assert batch.is_packed


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=120), st.integers(0, 2**32), st.integers(0, 99))
def test_every_epoch_has_as_many_batches(lengths: list[int], seed: int, epoch: int) -> None:
    assert len(plan(lengths)) == len(plan(lengths, seed=seed, epoch=epoch))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 10), max_size=60), st.integers(1, 9))
def test_of_two_bins_with_room_for_more_items_none_would_have_held_the_other(sizes: list[int], most: int) -> None:
    sizes.sort(reverse=True)
    bins = fill_bins(sizes, 10, most)
    open_bins = [[sizes[place] for place in held] for held in bins if len(held) < most]

    assert list(range(len(sizes))) == sorted(place for held in bins for place in held)
    assert all(sum(sizes[place] for place in held) <= 10 for held in bins)
    assert all(sum(one) + sum(other) > 10 for one in open_bins for other in open_bins if one is not other) or most < 9


def test_of_long_and_short_samples_hardly_any_room_is_left() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, 500, 2000).tolist()
    plans = plan(lengths, budget=1024, most=64)
    held = [sum(lengths[index] for index in batch.indices) for batch in plans]

    # A sample is counted 16 tokens too long on the average, and a batch holds four of them.
    assert np.mean(held) > 0.93 * 1024


def test_samples_meet_others_in_another_epoch() -> None:
    drawn = [130] * 40

    assert {batch.indices for batch in plan(drawn)} & {batch.indices for batch in plan(drawn, epoch=1)} == set()


def test_every_process_and_machine_plans_the_same_epoch() -> None:
    """Written down, not recomputed: were it to change, runs of the same seed could no longer be compared."""
    assert plan([30, 200, 60, 90, 210, 400], budget=512, seed=5, epoch=2) == [
        BatchPlan(2, (5, 3), 2, 416, is_packed=True),
        BatchPlan(0, (0,), 1, 32, is_packed=True),
        BatchPlan(1, (4, 1, 2), 3, 224, is_packed=True),
    ]


def test_a_run_that_starts_later_gets_the_batches_that_were_left() -> None:
    given = (np.arange(1, 101), np.arange(100), batch_rule(budget=512, seed=3))
    whole = list(islice(batches_from(*given, first=0, make_epoch=fill_epoch), 60))

    assert whole[23:] == list(islice(batches_from(*given, first=23, make_epoch=fill_epoch), 37))


@pytest.mark.parametrize(("lengths", "message"), [([501], "longer than the last"), ([90, 900], "longer than the last")])
def test_a_sample_that_no_bucket_takes_is_refused(lengths: list[int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(lengths)
