"""
The DFlash loss: cross-entropy at the same position, decayed along the block.

Slot k of a block predicts the token at anchor + k; slot 0 holds the anchor itself and is not supervised. Slot k weighs
exp(−(k−1)/γ) where its token is supervised. The sum is divided by the weight of all drafters' tokens in the step: a
mean a rank or a micro-batch weighs tokens unequally (SpecForge#731).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.model.anchors import Anchors


@dataclass(frozen=True)
class Targets:
    """What the supervised slots should say. N = anchors × (block size − 1)."""

    label_N: Tensor
    weight_N: Tensor
    """float32; 0 where nothing is supervised."""

    @property
    def weight(self) -> Tensor:
        """Summed weight, a scalar on the device."""
        return self.weight_N.sum()


def block_targets(
    input_ids_T: Tensor, loss_mask_T: Tensor, anchors: Anchors, *, block_size: int, gamma: float
) -> Targets:
    """Labels and weights of slots 1 … block size − 1 of every block."""
    offset = torch.arange(1, block_size, device=input_ids_T.device)
    # An unused slot's anchor is 0 and its row may be shorter than a block; its weight is 0 whatever it reads.
    position = (anchors.position_A[:, None] + offset).clamp(max=input_ids_T.numel() - 1)
    decay = torch.exp(-(offset - 1) / gamma)
    weight = decay * loss_mask_T[position] * anchors.used_A[:, None]
    return Targets(label_N=input_ids_T[position].flatten(), weight_N=weight.flatten().float())


@dataclass(frozen=True)
class LossParts:
    """The loss to differentiate and what is logged, scalars on the device."""

    loss: Tensor
    """Weighted sum over this rank's slots, divided by the weight of all ranks."""
    num_right: Tensor
    num_supervised: Tensor


def dflash_loss(
    final_QD: Tensor, head_VD: Tensor, targets: Targets, *, block_size: int, total_weight: Tensor
) -> LossParts:
    """
    Weighted cross-entropy over the vocabulary.

    Args:
        final_QD: The drafter's output, all slots.
        head_VD: The target's output head, frozen.
        targets: Labels and weights of slots 1 and up.
        block_size: Slots of a block.
        total_weight: Summed weight of all drafters in this step, a scalar.
    """
    drafted_ND = final_QD.unflatten(0, (-1, block_size))[:, 1:].flatten(0, 1)
    logits_NV = F.linear(drafted_ND, head_VD).float()
    loss_N = F.cross_entropy(logits_NV, targets.label_N, reduction="none")
    supervised_N = targets.weight_N > 0
    right_N = (logits_NV.detach().argmax(dim=-1) == targets.label_N) & supervised_N
    return LossParts(
        loss=(loss_N * targets.weight_N).sum() / total_weight.clamp(min=1e-6),
        num_right=right_N.sum(),
        num_supervised=supervised_N.sum(),
    )
