"""The work of the peers study: every system gets the same, and its arithmetic is counted rightly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.work import (
    FULL,
    TINY,
    check_batch,
    check_slots,
    drafter_tflop,
    filled_batches,
    fixed_batch,
    hidden_states,
    varying_batches,
)
from pipeline.model.anchors import document_ids, sample_anchors, valid_anchors
from pipeline.model.loss import block_targets


def test_a_fixed_batch_fills_the_budget_and_leaves_the_first_quarter_unsupervised() -> None:
    batch = fixed_batch(FULL, seed=3)

    assert (2, 3072) == batch.input_ids_BS.shape
    assert FULL.token_budget == batch.num_tokens
    assert not batch.loss_mask_BS[:, :768].any()
    assert batch.loss_mask_BS[:, 768:].all()
    assert not (batch.input_ids_BS == FULL.mask_token_id).any()


def test_the_same_seed_gives_the_same_batch_and_another_seed_another() -> None:
    first, again, other = (fixed_batch(TINY, seed=seed).input_ids_BS for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_varying_batches_stay_within_the_budget_and_their_shape(seed: int) -> None:
    for batch in varying_batches(FULL, 4, seed):
        num_rows, padded_length = batch.input_ids_BS.shape

        assert num_rows * padded_length <= FULL.token_budget
        assert (num_rows, padded_length) in {(shape.num_rows, shape.padded_length) for shape in FULL.shapes}
        assert max(batch.lengths) <= padded_length
        assert batch.num_tokens == int(batch.is_token_BS.sum())
        assert not batch.loss_mask_BS[~batch.is_token_BS].any()


def test_buckets_come_in_the_storys_proportion() -> None:
    batches = varying_batches(replace(TINY, bucket_bounds=FULL.bucket_bounds, length=3072), 2000, seed=0)
    longest = sum(batch.input_ids_BS.shape[1] > 3296 for batch in batches) / len(batches)

    # 46.6 % of the story's 99.9 %, within three deviations of 2,000 draws.
    assert abs(0.466 - longest) < 0.034


@given(seed=st.integers(0, 100))
@settings(max_examples=5, deadline=None)
def test_filled_batches_are_as_full_as_fixed_ones_nearly(seed: int) -> None:
    batches = filled_batches(FULL, 16, seed)
    held = [batch.num_tokens for batch in batches]

    assert 16 == len(batches)
    assert max(held) <= FULL.token_budget
    assert sum(held) > 0.93 * 16 * FULL.token_budget
    assert all(batch.num_tokens == int(batch.is_token_BS.sum()) for batch in batches)


def test_packing_drops_padding_between_samples_and_adds_it_behind() -> None:
    batch = varying_batches(TINY, 1, seed=5)[0]
    packed_T = batch.packed(batch.input_ids_BS, TINY.token_budget)
    expected = torch.cat([row[:length] for row, length in zip(batch.input_ids_BS, batch.lengths, strict=True)])

    assert torch.equal(expected, packed_T[: batch.num_tokens])
    assert not packed_T[batch.num_tokens :].any()


def test_the_check_batch_leaves_our_own_rule_of_anchors_no_choice() -> None:
    batch = check_batch(TINY, seed=1)
    row = TINY.token_budget
    loss_mask_T = batch.packed(batch.loss_mask_BS, row)
    valid_T = valid_anchors(document_ids(list(batch.lengths), row), loss_mask_T, TINY.block_size)
    anchors = sample_anchors(valid_T, TINY.num_anchors, torch.Generator().manual_seed(0))
    targets = block_targets(
        batch.packed(batch.input_ids_BS, row),
        loss_mask_T,
        anchors,
        block_size=TINY.block_size,
        gamma=TINY.loss_decay_gamma,
    )
    num_supervised, weight = check_slots(TINY)

    assert int(valid_T.sum()) <= TINY.num_anchors
    assert num_supervised == int((targets.weight_N > 0).sum())
    assert weight == pytest.approx(float(targets.weight), rel=1e-5)


def test_hidden_states_are_the_same_wherever_they_are_drawn() -> None:
    batch = fixed_batch(TINY, seed=0)
    states_TF, again_TF = (hidden_states(TINY, batch, torch.device("cpu"), seed=4) for _ in range(2))

    assert (TINY.token_budget, TINY.num_features) == states_TF.shape
    assert torch.equal(states_TF, again_TF)


def test_a_drafter_step_of_qwen3_8b_shapes_is_the_148_tflop_of_the_anchors() -> None:
    assert drafter_tflop(FULL) == pytest.approx(148, rel=0.03)


def test_the_arithmetic_grows_with_the_vocabulary_as_two_products_of_the_drafted_slots() -> None:
    wider = replace(FULL, vocab_size=FULL.vocab_size + 1000)
    num_drafted = FULL.num_anchors * (FULL.block_size - 1)

    assert math.isclose(
        2 * 2 * num_drafted * FULL.hidden_size * 1000 / 1e12, drafter_tflop(wider) - drafter_tflop(FULL), rel_tol=1e-6
    )
