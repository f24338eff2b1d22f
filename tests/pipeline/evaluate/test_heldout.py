"""Held-out numbers are realised block by block, pooled over blocks, and those of one block drafted alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from pipeline.data.batches import Batch
from pipeline.evaluate.drafting import CachedDrafter
from pipeline.evaluate.heldout import HeldOut, HeldOutEvaluator, count_blocks, pack_text
from pipeline.evaluate.taps import CachedTarget
from pipeline.model.drafter import Drafter
from pipeline.model.tables import FrozenTables
from pipeline.presets import FULL, SLIDING, DrafterPlan

LAYER_IDS = (1, 3)
PLAN = DrafterPlan(layer_types=(SLIDING, FULL), sliding_window=5, block_size=4, num_anchors=8, loss_decay_gamma=4.0)


def batch_of(*samples: tuple[int, int], num_padding_rows: int = 0, seed: int = 0) -> Batch:
    """Samples of (length, first supervised position), right-padded; their tokens are random."""
    longest = max(length for length, _ in samples) + 3
    num_rows = len(samples) + num_padding_rows
    generator = torch.Generator().manual_seed(seed)
    ids_BS = torch.zeros(num_rows, longest, dtype=torch.int64)
    mask_BS = torch.zeros(num_rows, longest, dtype=torch.bool)
    for row, (length, first) in enumerate(samples):
        ids_BS[row, :length] = torch.randint(3, 64, (length,), generator=generator)
        mask_BS[row, first:length] = True
    return Batch(ids_BS, mask_BS, torch.tensor([length for length, _ in samples]))


def counted(right: list[list[int]], supervised: list[list[int]] | None = None) -> HeldOut:
    right_AK = torch.tensor(right, dtype=torch.bool)
    weight_AK = torch.ones(right_AK.shape) if supervised is None else torch.tensor(supervised).float()
    flat = (right_AK.flatten(), weight_AK.flatten(), torch.ones(right_AK.numel()))
    return count_blocks(*flat, num_slots=right_AK.shape[1])


def test_acceptance_is_the_realised_prefix_and_not_the_product_of_the_slots() -> None:
    """Half of the blocks are wholly right and half wholly wrong: slots are half right each, and not independent."""
    held_out = counted([[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]])
    product_of_marginals = 1 + sum(math.prod(held_out.accuracy_K[: k + 1]) for k in range(3))

    assert (0.5, 0.5, 0.5) == held_out.accuracy_K
    assert 2.5 == held_out.acceptance_length
    assert 1.875 == product_of_marginals


@pytest.mark.parametrize(
    ("right", "supervised", "expected"),
    [
        ([[1, 1, 1]], [[1, 1, 1]], 4.0),
        ([[0, 1, 1]], [[1, 1, 1]], 1.0),
        ([[1, 0, 1]], [[1, 1, 1]], 2.0),
        ([[1, 1, 1]], [[1, 0, 1]], 2.0),
        ([[1, 1, 1]], [[0, 0, 0]], 1.0),
    ],
)
def test_a_prefix_ends_at_the_first_wrong_or_unsupervised_slot(
    right: list[list[int]], supervised: list[list[int]], expected: float
) -> None:
    assert expected == counted(right, supervised).acceptance_length


def test_only_supervised_slots_have_an_accuracy() -> None:
    held_out = counted([[1, 1, 0], [1, 0, 0]], [[1, 1, 0], [1, 1, 0]])

    assert (1.0, 0.5) == held_out.accuracy_K[:2]
    assert math.isnan(held_out.accuracy_K[2])


@settings(max_examples=50, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_batches_add_up_to_what_they_are_together(data: st.DataObject, sizes: list[int]) -> None:
    slots = st.lists(st.integers(0, 1), min_size=3, max_size=3)
    parts = [data.draw(st.lists(slots, min_size=size, max_size=size)) for size in sizes]
    whole = counted([block for part in parts for block in part])
    # A batch without a valid anchor counts nothing, wherever it comes.
    added = sum((counted(part) for part in parts), HeldOut()) + HeldOut()

    assert whole == added


def test_packing_drops_padding_and_padding_rows() -> None:
    batch = batch_of((5, 1), (3, 0), num_padding_rows=2)
    text = pack_text(batch)

    assert [0] * 5 + [1] * 3 == text.document_T.tolist()
    assert [0, 1, 2, 3, 4, 0, 1, 2] == text.position_T.tolist()
    assert [*batch.input_ids_BS[0, :5].tolist(), *batch.input_ids_BS[1, :3].tolist()] == text.input_ids_T.tolist()
    assert [False] + [True] * 7 == text.loss_mask_T.tolist()


@torch.no_grad()
def blocks_one_by_one(
    batch: Batch, target: CachedTarget, drafting: CachedDrafter, tables: FrozenTables
) -> tuple[list[list[int]], float]:
    """Right slots and loss of every valid block, drafted as in generation."""
    right, weighted, weights = [], 0.0, 0.0
    weight_K = torch.exp(-torch.arange(PLAN.block_size - 1) / PLAN.loss_decay_gamma)
    for row, length in enumerate(batch.lengths_B.tolist()):
        ids_T = batch.input_ids_BS[row, :length]
        target.start()
        hidden_TF = target.read(ids_T).hidden_TF
        for anchor in range(length - PLAN.block_size + 1):
            if not batch.loss_mask_BS[row, anchor + 1]:
                continue
            label_K = ids_T[anchor + 1 : anchor + PLAN.block_size]
            drafting.start(length)
            drafting.extend(hidden_TF[:anchor])
            right.append((drafting.draft(ids_T[anchor : anchor + 1]) == label_K).int().tolist())
            block_ids_Q = torch.tensor([int(ids_T[anchor])] + [tables.mask_token_id] * (PLAN.block_size - 1))
            final_QD = drafting.final_states(tables.embedding_VD[block_ids_Q])
            loss_K = F.cross_entropy(final_QD[1:] @ tables.head_VD.T, label_K, reduction="none")
            weighted += float((loss_K * weight_K).sum())
            weights += float(weight_K.sum())
    return right, weighted / weights


@torch.no_grad()
def test_blocks_among_many_score_what_they_score_alone(
    model: Any, drafter: Drafter, drafting: CachedDrafter, tables: FrozenTables, target: CachedTarget
) -> None:
    batch = batch_of((17, 5), (9, 2), num_padding_rows=1)
    right, loss = blocks_one_by_one(batch, target, drafting, tables)
    expected = counted(right)
    evaluator = HeldOutEvaluator(drafter, PLAN, model, LAYER_IDS)
    actual = evaluator.evaluate(batch, tables, max_blocks=99, generator=torch.Generator().manual_seed(0))

    assert expected.num_right_K == actual.num_right_K
    assert expected.num_supervised_K == actual.num_supervised_K
    assert (expected.num_blocks, expected.num_accepted) == (actual.num_blocks, actual.num_accepted)
    assert pytest.approx(loss, rel=1e-4) == actual.loss


def evaluated(model: Any, drafter: Drafter, tables: FrozenTables, *, max_blocks: int, seed: int) -> HeldOut:
    evaluator = HeldOutEvaluator(drafter, PLAN, model, LAYER_IDS)
    generator = torch.Generator().manual_seed(seed)
    return evaluator.evaluate(batch_of((40, 5)), tables, max_blocks=max_blocks, generator=generator)


def test_a_limit_draws_blocks_by_seed(model: Any, drafter: Drafter, tables: FrozenTables) -> None:
    first, same, other = (evaluated(model, drafter, tables, max_blocks=6, seed=seed) for seed in (1, 1, 2))

    assert 6 == first.num_blocks
    assert first == same
    assert first.weighted_loss != other.weighted_loss


def test_a_batch_without_a_valid_anchor_counts_nothing(model: Any, drafter: Drafter, tables: FrozenTables) -> None:
    evaluator = HeldOutEvaluator(drafter, PLAN, model, LAYER_IDS)
    held_out = evaluator.evaluate(batch_of((3, 0)), tables, max_blocks=9, generator=torch.Generator())

    assert HeldOut() == held_out
    assert math.isnan(held_out.acceptance_length)
