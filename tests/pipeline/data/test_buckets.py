"""The list of shapes is short and fixed, bounds are inclusive, and what lies over the last one is an error."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import UsageError
from pipeline.data.buckets import LENGTHS_A_BUCKET, BatchShape, assign_shapes, batch_shapes
from pipeline.presets import PRESETS

STORY = (769, 1215, 1727, 2431, 3295, 8192)
bounds = st.lists(st.integers(1, 4000), min_size=1, max_size=8, unique=True).map(lambda drawn: tuple(sorted(drawn)))


@settings(max_examples=200, deadline=None)
@given(bounds=bounds, budget=st.integers(4032, 20_000), most=st.integers(1, 64))
def test_shapes_are_few_rising_and_as_full_as_the_budget_allows(
    bounds: tuple[int, ...], budget: int, most: int
) -> None:
    shapes = batch_shapes(bounds, budget, most)

    assert 1 <= len(shapes) <= LENGTHS_A_BUCKET * len(bounds)
    assert all((a.bucket, a.padded_length) < (b.bucket, b.padded_length) for a, b in pairwise(shapes))
    assert all(a.padded_length <= b.padded_length for a, b in pairwise(shapes))
    assert {shape.bucket for shape in shapes} == set(range(len(bounds)))
    assert bounds[-1] <= shapes[-1].padded_length < bounds[-1] + 32
    for shape in shapes:
        assert shape.padded_length % 32 == 0
        assert 1 <= shape.num_rows <= most
        assert shape.num_rows * shape.padded_length <= budget
        assert shape.num_rows == most or (shape.num_rows + 1) * shape.padded_length > budget


@settings(max_examples=100, deadline=None)
@given(bounds=bounds, data=st.data())
def test_a_sample_gets_the_shortest_shape_of_its_bucket_that_holds_it(
    bounds: tuple[int, ...], data: st.DataObject
) -> None:
    shapes = batch_shapes(bounds, 4032, 8)
    lengths_N = np.array(data.draw(st.lists(st.integers(0, bounds[-1]), max_size=50)), dtype=np.int64)
    chosen = [shapes[number] for number in assign_shapes(lengths_N, shapes, bounds)]

    for length, shape in zip(lengths_N.tolist(), chosen, strict=True):
        bucket = int(np.searchsorted(bounds, length))
        holding = [other for other in shapes if other.bucket == bucket and other.padded_length >= length]

        assert holding[0] == shape


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_at_most_twelve_shapes(name: str) -> None:
    data = PRESETS[name].data

    assert len(batch_shapes(data.bucket_bounds, data.token_budget, data.max_samples)) <= 12


def test_padding_to_a_multiple_of_32_moves_no_sample_to_another_bucket() -> None:
    shapes = batch_shapes((100, 110), 1024, 64)

    assert shapes == (BatchShape(0, 16, 64), BatchShape(0, 8, 128), BatchShape(1, 8, 128))
    assert assign_shapes(np.array([64, 65, 100, 101, 110]), shapes, (100, 110)).tolist() == [0, 1, 1, 2, 2]


def test_a_bound_is_inclusive_and_belongs_to_its_bucket() -> None:
    shapes = batch_shapes((64, 128), 1024, 64)

    assert shapes == (BatchShape(0, 32, 32), BatchShape(0, 16, 64), BatchShape(1, 10, 96), BatchShape(1, 8, 128))
    assert assign_shapes(np.array([0, 32, 33, 64, 65, 128]), shapes, (64, 128)).tolist() == [0, 0, 1, 1, 2, 3]


def test_a_sample_over_the_last_bound_says_how_many_and_what_to_set() -> None:
    with pytest.raises(UsageError) as caught:
        assign_shapes(np.array([8193, 9000, 5]), batch_shapes(STORY, 16_384, 64), STORY)

    assert caught.value.what == "2 samples are longer than the last length bucket"
    assert caught.value.offered == "9,000 tokens"
    assert "max_length to 8192" in str(caught.value.next_command)


@pytest.mark.parametrize("wrong", [(), (0, 5), (5, 5), (9, 5)])
def test_bounds_that_do_not_rise_are_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="bucket bounds must rise"):
        batch_shapes(wrong, 1024, 8)


def test_a_budget_below_the_longest_row_says_what_to_set() -> None:
    with pytest.raises(UsageError) as caught:
        batch_shapes((128, 420), 300, 8)

    assert caught.value.offered == "token_budget=300, last bucket padded to 448"
    assert "token_budget to 448, or the last bucket bound and max_length to at most 288" in str(
        caught.value.next_command
    )


def test_a_batch_of_no_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="max_samples=0"):
        batch_shapes((128,), 1024, 0)
