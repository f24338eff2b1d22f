"""The loss against a loop over slots."""

from __future__ import annotations

import math

import pytest
import torch
from drafter_rules import slow_loss
from torch import Tensor

from pipeline.model.anchors import Anchors
from pipeline.model.loss import LossParts, Targets, block_targets, dflash_loss

BLOCK = 4
GAMMA = 2.5


def anchors(*positions: int, unused: int = 0) -> Anchors:
    used_A = torch.tensor([True] * len(positions) + [False] * unused)
    return Anchors(position_A=torch.tensor([*positions, *[0] * unused]), used_A=used_A)


@pytest.fixture
def row() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids_T = torch.randint(0, 50, (20,), generator=generator)
    mask_T = torch.rand(20, generator=generator) < 0.7
    head_VD = torch.randn(50, 8, generator=generator)
    final_QD = torch.randn(4 * BLOCK, 8, generator=generator)
    return ids_T, mask_T, head_VD, final_QD


def our_loss(
    row: tuple[Tensor, Tensor, Tensor, Tensor], at: Anchors, total_weight: Tensor | None = None
) -> tuple[LossParts, Targets]:
    ids_T, mask_T, head_VD, final_QD = row
    targets = block_targets(ids_T, mask_T, at, block_size=BLOCK, gamma=GAMMA)
    total = targets.weight if total_weight is None else total_weight
    return dflash_loss(final_QD, head_VD, targets, block_size=BLOCK, total_weight=total), targets


AT = anchors(1, 6, 16, unused=1)
BLOCKS = [(1, True), (6, True), (16, True), (0, False)]


def test_loss_is_the_weighted_mean_over_supervised_slots(row: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    ids_T, mask_T, head_VD, final_QD = row
    total, weight = slow_loss(final_QD @ head_VD.T, (ids_T.tolist(), mask_T.tolist()), BLOCKS)

    parts, targets = our_loss(row, AT)

    assert weight == pytest.approx(float(targets.weight), rel=1e-6)
    assert total / weight == pytest.approx(float(parts.loss), rel=1e-5)


def test_labels_stand_at_the_slots_own_position_and_weights_decay_from_one() -> None:
    ids_T = torch.arange(100, 120)

    targets = block_targets(ids_T, torch.ones(20, dtype=torch.bool), anchors(5), block_size=BLOCK, gamma=GAMMA)

    assert [106, 107, 108] == targets.label_N.tolist()
    assert targets.weight_N.tolist() == pytest.approx([1.0, math.exp(-1 / GAMMA), math.exp(-2 / GAMMA)])


def test_unused_slots_and_unsupervised_tokens_weigh_nothing() -> None:
    supervised_T = torch.tensor([True, True, False, True, True, True])

    targets = block_targets(torch.arange(6), supervised_T, anchors(1, unused=2), block_size=BLOCK, gamma=GAMMA)

    assert [False, True, True] + [False] * 6 == (targets.weight_N > 0).tolist()


def test_an_unused_slot_of_a_row_shorter_than_a_block_reads_no_stranger() -> None:
    targets = block_targets(
        torch.arange(2), torch.ones(2, dtype=torch.bool), anchors(unused=1), block_size=BLOCK, gamma=GAMMA
    )

    assert 0.0 == float(targets.weight)


def test_partial_losses_of_drafters_add_up_to_the_loss_of_the_union(row: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    ids_T, mask_T, head_VD, final_QD = row
    # One rank has one short block, the other two: means a rank would weigh tokens unequally (SpecForge#731).
    parts = [(anchors(1), final_QD[:BLOCK]), (anchors(6, 16), final_QD[BLOCK : 3 * BLOCK])]
    _, union = our_loss((ids_T, mask_T, head_VD, final_QD[: 3 * BLOCK]), anchors(1, 6, 16))
    expected, _ = our_loss((ids_T, mask_T, head_VD, final_QD[: 3 * BLOCK]), anchors(1, 6, 16))

    partial = [our_loss((ids_T, mask_T, head_VD, final), at, total_weight=union.weight)[0] for at, final in parts]
    mean_of_means = sum(float(our_loss((ids_T, mask_T, head_VD, final), at)[0].loss) for at, final in parts) / 2

    assert float(expected.loss) == pytest.approx(sum(float(part.loss) for part in partial), rel=1e-5)
    assert float(expected.loss) != pytest.approx(mean_of_means, rel=1e-3)


def test_without_a_supervised_token_loss_and_gradients_are_zero_not_nan(
    row: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    ids_T, _, head_VD, final_QD = row
    final_QD = final_QD.clone().requires_grad_()

    parts, _ = our_loss((ids_T, torch.zeros(20, dtype=torch.bool), head_VD, final_QD), AT)
    parts.loss.backward()

    assert 0.0 == float(parts.loss.detach())
    assert 0 == int(parts.num_supervised)
    assert final_QD.grad is not None
    assert not final_QD.grad.any()


def test_right_answers_are_counted_among_supervised_slots_only() -> None:
    ids_T = torch.tensor([0, 1, 2, 3, 4, 5])
    supervised_T = torch.tensor([True, True, True, False, True, True])
    # Slots 0..3 say 9, 1, 9, 3: slot 1 is right, slot 2 wrong, slot 3 right but not supervised.
    final_QD = torch.eye(10)[[9, 1, 9, 3]]
    targets = block_targets(ids_T, supervised_T, anchors(0), block_size=BLOCK, gamma=GAMMA)

    parts = dflash_loss(final_QD, torch.eye(10), targets, block_size=BLOCK, total_weight=targets.weight)

    assert (1, 2) == (int(parts.num_right), int(parts.num_supervised))
