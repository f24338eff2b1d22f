"""A step's rows: anchors, block tokens and labels, laid out on the host and moved to the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from flashprof.contracts.toggles import ToggleValues
from pipeline.model.anchors import document_ids, document_ids_by_position, sample_anchors, valid_anchors
from pipeline.model.checksum import bit_sum
from pipeline.model.loss import Targets, block_targets
from pipeline.presets import DrafterPlan
from pipeline.train.staging import PinEach, Preallocated, Staging
from pipeline.transport.messages import HiddenStates


@dataclass(frozen=True)
class Row:
    """One packed row on the device, with all that its step needs."""

    hidden_TF: Tensor
    document_T: Tensor
    position_K: Tensor
    """Position within its document of every key: context, then block tokens. Like `document_T`, it may have room for
    more context than there are hidden states."""
    anchor_A: Tensor
    block_ids_Q: Tensor
    targets: Targets
    weight: float
    """Summed loss weight, on the host: a device count would have to be waited for."""
    contexts: list[int]
    """Tokens of its document before each block that is trained."""
    mismatch: Tensor
    """1 where the hidden states are not those that the target computed, else 0; float32, a scalar."""
    way: str
    """What made its document ids, and what moved it: for the trace."""


class RowLayout:
    """
    Lays out rows for one plan on one device.

    Args:
        plan: What a row's blocks are.
        mask_token_id: Stands for "to be drafted".
        device: That trains.
        whole_row: Where toggle `compile-drafter` is on, tables have room for a multiple of so many context positions.
            Attention then has one shape whatever the lengths are: flex_attention compiles once, and for lengths that
            its blocks are known to divide. Sparse, it passes over what is empty; keys and values of 5,000 empty
            positions at Qwen3-8B's width are 1.3 TFLOP, 2 ms.
    """

    def __init__(self, plan: DrafterPlan, mask_token_id: int, device: torch.device, *, whole_row: int = 1) -> None:
        self._plan = plan
        self._whole_row = whole_row
        self._mask_token_id = mask_token_id
        self._pin_each: Staging = PinEach(device)
        self._preallocated: Staging = Preallocated(device)

    def make(self, item: HiddenStates, toggles: ToggleValues, generator: torch.Generator) -> Row:
        """
        Everything is made on the host: there, valid positions are counted without asking the device.

        Args:
            item: Its hidden states are on the device.
            toggles: `docids`, `prealloc` and `compile-drafter` are read.
            generator: Draws the anchors.
        """
        plan = self._plan
        num_context = item.input_ids_T.numel()
        make_ids = document_ids if toggles["docids"] else document_ids_by_position
        document_T = make_ids(list(item.lengths), num_context)
        anchors = sample_anchors(
            valid_anchors(document_T, item.loss_mask_T, plan.block_size), plan.num_anchors, generator
        )
        targets = block_targets(
            item.input_ids_T, item.loss_mask_T, anchors, block_size=plan.block_size, gamma=plan.loss_decay_gamma
        )
        block_ids = torch.full((plan.num_anchors, plan.block_size), self._mask_token_id)
        block_ids[:, 0] = item.input_ids_T[anchors.position_A]
        position_T = positions_in_document(item.lengths, num_context)
        position_Q = position_T[anchors.position_A][:, None] + torch.arange(plan.block_size)
        room = -num_context % self._whole_row if toggles["compile-drafter"] else 0
        staging = self._preallocated if toggles["prealloc"] else self._pin_each
        document, position, anchor, ids, label, weight = staging.to_device(
            [
                F.pad(document_T, (0, room), value=-1),
                torch.cat([F.pad(position_T, (0, room)), position_Q.flatten()]),
                anchors.position_A,
                block_ids.flatten(),
                targets.label_N,
                targets.weight_N,
            ]
        )
        return Row(
            hidden_TF=item.hidden_TF,
            document_T=document,
            position_K=position,
            anchor_A=anchor,
            block_ids_Q=ids,
            targets=Targets(label, weight),
            weight=float(targets.weight),
            contexts=position_T[anchors.position_A[anchors.used_A]].tolist(),
            mismatch=(bit_sum(item.hidden_TF) != item.checksum).float(),
            way=f"{make_ids.__name__}, {type(staging).__name__}",
        )


def positions_in_document(lengths: tuple[int, ...], padded_length: int) -> Tensor:
    """int64 `position_T`: 0, 1, … within each document; 0 in padding."""
    position_T = torch.zeros(padded_length, dtype=torch.int64)
    position_T[: sum(lengths)] = torch.cat([torch.arange(length) for length in lengths])
    return position_T
