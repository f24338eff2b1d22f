"""
Teacher-forced evaluation on held-out text: how often each slot is right, and how long the right prefix of a block is.

The acceptance length is realised block by block. The product of the slots' accuracies is another number: it takes
slots as independent, which they are not (speculators#1032).

Shapes: B samples, S padded length, T packed tokens, A blocks, Q block tokens, K supervised slots (1 … block size − 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.data.batches import Batch
from pipeline.evaluate.taps import tapped_states
from pipeline.model.anchors import Anchors, sample_anchors, valid_anchors
from pipeline.model.drafter import Drafter
from pipeline.model.loss import block_targets
from pipeline.model.mask_evaluated import additive_mask
from pipeline.model.mask_rule import mask_tables
from pipeline.model.tables import FrozenTables
from pipeline.presets import SLIDING, DrafterPlan


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Sums over blocks, so that batches of different size add up with the weight of what is in them."""

    num_right_K: tuple[int, ...] = ()
    num_supervised_K: tuple[int, ...] = ()
    num_blocks: int = 0
    num_accepted: int = 0
    """Tokens in the right prefixes of all blocks."""
    weighted_loss: float = 0.0
    weight: float = 0.0

    def __add__(self, other: HeldOut) -> HeldOut:
        return HeldOut(
            num_right_K=_sum(self.num_right_K, other.num_right_K),
            num_supervised_K=_sum(self.num_supervised_K, other.num_supervised_K),
            num_blocks=self.num_blocks + other.num_blocks,
            num_accepted=self.num_accepted + other.num_accepted,
            weighted_loss=self.weighted_loss + other.weighted_loss,
            weight=self.weight + other.weight,
        )

    @property
    def accuracy_K(self) -> tuple[float, ...]:
        """Of each slot, over its supervised tokens; NaN where there are none."""
        return tuple(_ratio(*counts) for counts in zip(self.num_right_K, self.num_supervised_K, strict=True))

    @property
    def acceptance_length(self) -> float:
        """Mean over blocks of 1 + the length of the right prefix; 1 is a drafter that knows nothing."""
        return 1 + _ratio(self.num_accepted, self.num_blocks)

    @property
    def loss(self) -> float:
        """Cross-entropy in nats, with the decay of the training loss."""
        return _ratio(self.weighted_loss, self.weight)


@dataclass(frozen=True)
class PackedText:
    """A batch without its padding."""

    is_token_BS: Tensor
    input_ids_T: Tensor
    loss_mask_T: Tensor
    document_T: Tensor
    position_T: Tensor
    """Within the document."""


def pack_text(batch: Batch) -> PackedText:
    """Lay the samples of *batch* end to end."""
    num_rows, padded_length = batch.input_ids_BS.shape
    column_S = torch.arange(padded_length)
    # Rows behind the last sample are padding and have no length.
    length_B = F.pad(batch.lengths_B, (0, num_rows - batch.lengths_B.numel()))
    is_token_BS = column_S < length_B[:, None]
    return PackedText(
        is_token_BS=is_token_BS,
        input_ids_T=batch.input_ids_BS[is_token_BS],
        loss_mask_T=batch.loss_mask_BS[is_token_BS],
        document_T=torch.arange(num_rows)[:, None].expand_as(is_token_BS)[is_token_BS],
        position_T=column_S.expand_as(is_token_BS)[is_token_BS],
    )


class HeldOutEvaluator:
    """Evaluates one drafter against one target."""

    def __init__(self, drafter: Drafter, plan: DrafterPlan, model: Any, layer_ids: tuple[int, ...]) -> None:
        self._drafter = drafter
        self._plan = plan
        self._model = model
        self._layer_ids = layer_ids
        self._weight = drafter.fc.weight

    @torch.no_grad()
    def evaluate(self, batch: Batch, tables: FrozenTables, *, max_blocks: int, generator: torch.Generator) -> HeldOut:
        """
        Draft at random anchors of the batch's own text.

        Args:
            batch: On the CPU.
            tables: The target's.
            max_blocks: Anchors drawn where there are more valid ones.
            generator: Draws them; on the CPU.
        """
        plan = self._plan
        text = pack_text(batch)
        valid_T = valid_anchors(text.document_T, text.loss_mask_T, plan.block_size)
        num_blocks = min(max_blocks, int(valid_T.sum()))
        if not num_blocks:
            return HeldOut()
        anchors = sample_anchors(valid_T, num_blocks, generator)
        targets = block_targets(
            text.input_ids_T, text.loss_mask_T, anchors, block_size=plan.block_size, gamma=plan.loss_decay_gamma
        )
        final_QD = self._drafter(
            self._hidden_states(batch, text),
            self._block_states(text, anchors, tables),
            self._positions(text, anchors),
            self._masks(text, anchors),
        )
        drafted_ND = final_QD.unflatten(0, (-1, plan.block_size))[:, 1:].flatten(0, 1)
        logits_NV = F.linear(drafted_ND.to(tables.head_VD.dtype), tables.head_VD).float()
        label_N, weight_N = targets.label_N.to(logits_NV.device), targets.weight_N.to(logits_NV.device)
        loss_N = F.cross_entropy(logits_NV, label_N, reduction="none")
        right_N = logits_NV.argmax(dim=-1) == label_N
        return count_blocks(right_N, weight_N, loss_N, num_slots=plan.block_size - 1)

    def _hidden_states(self, batch: Batch, text: PackedText) -> Tensor:
        # Samples are padded on the right and attention is causal: padding cannot reach a real token.
        with tapped_states(self._model, self._layer_ids) as states:
            self._model.model(input_ids=batch.input_ids_BS.to(self._weight.device), use_cache=False)
        is_token_BS = text.is_token_BS.to(self._weight.device)
        joined_TF = torch.cat([states[layer_id][is_token_BS] for layer_id in self._layer_ids], dim=-1)
        return joined_TF.to(self._weight.dtype)

    def _block_states(self, text: PackedText, anchors: Anchors, tables: FrozenTables) -> Tensor:
        block_ids = torch.full((anchors.position_A.numel(), self._plan.block_size), tables.mask_token_id)
        block_ids[:, 0] = text.input_ids_T[anchors.position_A]
        block_QD = F.embedding(block_ids.flatten().to(self._weight.device), tables.embedding_VD)
        return block_QD.to(self._weight.dtype)

    def _positions(self, text: PackedText, anchors: Anchors) -> Tensor:
        position_AQ = text.position_T[anchors.position_A][:, None] + torch.arange(self._plan.block_size)
        return torch.cat([text.position_T, position_AQ.flatten()]).to(self._weight.device)

    def _masks(self, text: PackedText, anchors: Anchors) -> list[Any]:
        # A dense mask also on CUDA: a few batches are not worth flex_attention's compilation.
        plan = self._plan
        by_type = {
            kind: additive_mask(
                mask_tables(
                    anchors.position_A.to(self._weight.device),
                    text.document_T.to(self._weight.device),
                    block_size=plan.block_size,
                    window=plan.sliding_window if kind == SLIDING else None,
                )
            )
            for kind in sorted(set(plan.layer_types))
        }
        return [by_type[kind] for kind in plan.layer_types]


def count_blocks(right_N: Tensor, weight_N: Tensor, loss_N: Tensor, *, num_slots: int) -> HeldOut:
    """
    Count what was right, slot by slot and block by block.

    Args:
        right_N: bool, blocks × slots.
        weight_N: Loss weight of each; 0 where nothing is supervised, which ends a block's prefix.
        loss_N: Cross-entropy of each.
        num_slots: Supervised slots of a block.
    """
    supervised_AK = (weight_N > 0).unflatten(0, (-1, num_slots))
    right_AK = right_N.unflatten(0, (-1, num_slots)) & supervised_AK
    num_accepted = right_AK.cumprod(dim=1).sum()
    return HeldOut(
        num_right_K=tuple(right_AK.sum(dim=0).tolist()),
        num_supervised_K=tuple(supervised_AK.sum(dim=0).tolist()),
        num_blocks=right_AK.shape[0],
        num_accepted=int(num_accepted),
        weighted_loss=float((loss_N * weight_N).sum()),
        weight=float(weight_N.sum()),
    )


def _sum(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    # A batch without a block has no slots either.
    return tuple(a + b for a, b in zip(left, right, strict=True)) if left and right else left or right


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
