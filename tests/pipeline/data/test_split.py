"""A sample is usable exactly if the model finds an anchor in it, and what is held out never changes sides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import UsageError
from pipeline.data.arrow import NEVER, Row
from pipeline.data.split import split_samples
from pipeline.model.anchors import document_ids, valid_anchors


def first_supervised(loss_mask: list[int]) -> int:
    return Row(np.zeros(len(loss_mask), dtype=np.int32), np.array(loss_mask, dtype=np.uint8)).first_supervised


@settings(max_examples=300, deadline=None)
@given(loss_mask=st.lists(st.integers(0, 1), min_size=1, max_size=24), block_size=st.integers(2, 16))
def test_a_sample_is_skipped_exactly_if_the_model_finds_no_anchor(loss_mask: list[int], block_size: int) -> None:
    document_T = document_ids([len(loss_mask)], len(loss_mask))
    has_anchor = bool(valid_anchors(document_T, torch.tensor(loss_mask) == 1, block_size).any())
    # The second sample is always usable: a split without one is an error.
    lengths_N = np.array([len(loss_mask), 99])
    firsts_N = np.array([first_supervised(loss_mask), 1])
    split = split_samples(lengths_N, firsts_N, block_size=block_size, held_out_share=0)

    assert split.num_skipped == (0 if has_anchor else 1)
    assert split.train_N.tolist() == ([0, 1] if has_anchor else [1])


@pytest.mark.parametrize(
    ("loss_mask", "expected"), [([0, 0, 1], 2), ([1, 1], 1), ([1, 0], NEVER), ([1], NEVER), ([0, 0], NEVER)]
)
def test_the_first_token_has_no_anchor_before_it(loss_mask: list[int], expected: int) -> None:
    assert expected == first_supervised(loss_mask)


def split_of(num_samples: int, share: float, *, num_short: int = 0) -> tuple[set[int], set[int]]:
    lengths_N = np.full(num_samples, 100)
    lengths_N[:num_short] = 4
    split = split_samples(lengths_N, np.ones(num_samples, dtype=np.int64), block_size=8, held_out_share=share)

    assert split.num_skipped == num_short
    return set(split.train_N.tolist()), set(split.held_out_N.tolist())


@settings(max_examples=50, deadline=None)
@given(num_samples=st.integers(50, 3000), share=st.floats(0, 0.5), num_short=st.integers(0, 10))
def test_every_usable_sample_is_on_one_side(num_samples: int, share: float, num_short: int) -> None:
    train, held_out = split_of(num_samples, share, num_short=num_short)

    assert set(range(num_short, num_samples)) == train | held_out
    assert not train & held_out


def test_held_out_samples_stay_held_out_when_others_come_or_the_share_grows() -> None:
    _, few = split_of(1000, 0.05)
    _, more_samples = split_of(2000, 0.05, num_short=5)
    _, larger_share = split_of(1000, 0.2)

    assert {index for index in more_samples if index < 1000} == {index for index in few if index >= 5}
    assert few < larger_share


def test_the_share_is_kept_and_spread() -> None:
    _, held_out = split_of(20_000, 0.02)

    assert 330 < len(held_out) < 470
    assert 0.4 < np.mean(sorted(held_out)) / 20_000 < 0.6


def test_the_first_held_out_samples_are_these_on_every_machine() -> None:
    """Written down, not recomputed: were it to change, a resumed run would train on what it was evaluated on."""
    _, held_out = split_of(200, 0.05)

    assert sorted(held_out)[:6] == [2, 32, 33, 42, 53, 94]


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="0 to below 1"):
        split_of(10, share)


def test_nothing_to_train_on_says_why() -> None:
    with pytest.raises(UsageError) as caught:
        split_samples(np.array([7, 90]), np.array([1, NEVER]), block_size=8, held_out_share=0.02)

    assert caught.value.offered == "2 samples: 2 without a valid anchor for blocks of 8, 0 held out"
