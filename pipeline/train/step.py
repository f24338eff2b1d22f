"""One optimizer step of a drafter, phase by phase."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import WAIT, Emitter
from pipeline.model.anchors import document_ids, sample_anchors, valid_anchors
from pipeline.model.drafter import Drafter
from pipeline.model.loss import LossParts, Targets, block_targets, dflash_loss
from pipeline.model.mask import CompiledMaskBuilder, MaskBuilder, additive_mask, block_mask, mask_tables
from pipeline.presets import SLIDING, Preset
from pipeline.train.clip import clip_gradients
from pipeline.train.peers import Peers
from pipeline.transport.messages import HiddenStates


@dataclass(frozen=True)
class FrozenTables:
    """The target's embedding and output head, and the token that stands for "to be drafted"."""

    embedding_VD: Tensor
    head_VD: Tensor
    mask_token_id: int


@dataclass(frozen=True)
class Row:
    """One packed row on the device, with all that its step needs."""

    hidden_TF: Tensor
    document_T: Tensor
    position_K: Tensor
    """Position within its document of every key: context, then block tokens."""
    anchor_A: Tensor
    block_ids_Q: Tensor
    targets: Targets
    weight: float
    """Summed loss weight, on the host: a device count would have to be waited for."""


@dataclass(frozen=True)
class StepResult:
    """What a step leaves behind; scalars on the device."""

    scalars: dict[str, Tensor]
    num_tokens_all: int
    """Tokens of this step over all drafters."""


class DrafterStep:
    """The model and its optimizer; `run` trains on one row."""

    def __init__(
        self, *, drafter: Drafter, frozen: FrozenTables, preset: Preset, peers: Peers, emitter: Emitter, optimizer: Any
    ) -> None:
        self._drafter = drafter
        self._frozen = frozen
        self._preset = preset
        self._peers = peers
        self._emitter = emitter
        self._optimizer, self._scheduler = optimizer
        self._parameters = list(drafter.parameters())
        self._device = frozen.head_VD.device
        is_cuda = self._device.type == "cuda"
        self._eager: MaskBuilder = block_mask if is_cuda else additive_mask
        self._compiled: MaskBuilder = CompiledMaskBuilder(is_cuda=is_cuda, on_compile=self._report_compile)

    def run(self, item: HiddenStates, toggles: ToggleValues, generator: torch.Generator) -> StepResult:
        """Train on one row under these toggle values; anchors come from *generator*."""
        span = self._emitter.span
        with span("anchors"):
            row = self._lay_out(item, generator)
        total_weight, num_tokens_all = self._sum_counts(row.weight, sum(item.lengths))
        parts = self._forward(row, toggles, total_weight)
        with span("backward", device=True):
            parts.loss.backward()
        norm = self._update(on_device=bool(toggles["grad-norm"]))
        with span("metrics"):
            share = total_weight / max(row.weight, 1e-6)
            scalars = {
                "loss": parts.loss.detach() * share,
                "acc": parts.num_right / parts.num_supervised.clamp(min=1),
                "grad_norm": norm,
            }
        return StepResult(scalars=scalars, num_tokens_all=num_tokens_all)

    def rehearse(self, item: HiddenStates, toggles: ToggleValues) -> None:
        """Run forward and backward on *item* without learning from it (toggle `warmup`)."""
        row = self._lay_out(item, torch.Generator().manual_seed(0))
        self._forward(row, toggles, max(row.weight, 1.0)).loss.backward()
        self._optimizer.zero_grad(set_to_none=True)

    def _lay_out(self, item: HiddenStates, generator: torch.Generator) -> Row:
        """Anchors, block tokens and labels, made on the host: valid positions are counted without asking the device."""
        plan = self._preset.drafter
        num_context = item.input_ids_T.numel()
        document_T = document_ids(list(item.lengths), num_context)
        valid_T = valid_anchors(document_T, item.loss_mask_T, plan.block_size)
        anchors = sample_anchors(valid_T, plan.num_anchors, generator)
        targets = block_targets(
            item.input_ids_T, item.loss_mask_T, anchors, block_size=plan.block_size, gamma=plan.loss_decay_gamma
        )
        block_ids = torch.full((plan.num_anchors, plan.block_size), self._frozen.mask_token_id)
        block_ids[:, 0] = item.input_ids_T[anchors.position_A]
        position_T = positions_in_document(item.lengths, num_context)
        position_Q = position_T[anchors.position_A][:, None] + torch.arange(plan.block_size)
        return Row(
            # Half the bytes travel where the target computes in bfloat16; the drafter's own precision begins here.
            hidden_TF=self._to_device(item.hidden_TF).float(),
            document_T=self._to_device(document_T),
            position_K=self._to_device(torch.cat([position_T, position_Q.flatten()])),
            anchor_A=self._to_device(anchors.position_A),
            block_ids_Q=self._to_device(block_ids.flatten()),
            targets=Targets(self._to_device(targets.label_N), self._to_device(targets.weight_N)),
            weight=float(targets.weight),
        )

    def _sum_counts(self, weight: float, num_tokens: int) -> tuple[float, int]:
        if self._peers.num_drafters == 1:
            return weight, num_tokens
        with self._emitter.span("count_sync", WAIT):
            total_weight, num_tokens_all = self._peers.sum_counts([weight, float(num_tokens)])
        return total_weight, int(num_tokens_all)

    def _forward(self, row: Row, toggles: ToggleValues, total_weight: float) -> LossParts:
        span = self._emitter.span
        block_size = self._preset.drafter.block_size
        with span("mask", device=True):
            masks = self._build_masks(row, toggles)
        with self._autocast():
            with span("forward", device=True):
                block_QD = F.embedding(row.block_ids_Q, self._frozen.embedding_VD)
                final_QD = self._drafter(row.hidden_TF, block_QD, row.position_K, masks)
            with span("loss", device=True):
                total = torch.tensor(total_weight, dtype=torch.float32)
                return dflash_loss(
                    final_QD,
                    self._frozen.head_VD,
                    row.targets,
                    block_size=block_size,
                    total_weight=self._to_device(total),
                )

    def _build_masks(self, row: Row, toggles: ToggleValues) -> list[Any]:
        """One mask a kind of layer; with `swa` all layers slide, so one serves all."""
        plan = self._preset.drafter
        build = self._compiled if toggles["compile"] else self._eager
        layer_types = [SLIDING] * len(plan.layer_types) if toggles["swa"] else plan.layer_types
        by_type = {
            kind: build(
                mask_tables(
                    row.anchor_A,
                    row.document_T,
                    block_size=plan.block_size,
                    window=plan.sliding_window if kind == SLIDING else None,
                )
            )
            for kind in sorted(set(layer_types))
        }
        return [by_type[kind] for kind in layer_types]

    def _update(self, *, on_device: bool) -> Tensor:
        span = self._emitter.span
        if self._peers.num_drafters > 1:
            with span("grad_sync", WAIT, device=True):
                self._peers.sum_gradients(self._parameters)
        with span("clip", device=True):
            norm = clip_gradients(self._parameters, self._preset.recipe.max_grad_norm, on_device=on_device)
        with span("optimizer", device=True):
            self._optimizer.step()
            self._scheduler.step()
            self._optimizer.zero_grad(set_to_none=True)
        return norm

    def _to_device(self, tensor: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return tensor
        source = tensor.pin_memory() if tensor.device.type == "cpu" else tensor
        return source.to(self._device, non_blocking=True)

    def _autocast(self) -> Any:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda")

    def _report_compile(self, what: str, seconds: float) -> None:
        self._emitter.mark("compile", what=what, seconds=round(seconds, 3))


def positions_in_document(lengths: tuple[int, ...], padded_length: int) -> Tensor:
    """int64 `position_T`: 0, 1, … within each document; 0 in padding."""
    position_T = torch.zeros(padded_length, dtype=torch.int64)
    position_T[: sum(lengths)] = torch.cat([torch.arange(length) for length in lengths])
    return position_T


def make_optimizer(drafter: nn.Module, preset: Preset, num_steps: int) -> tuple[Any, Any]:
    """AdamW, and its schedule over *num_steps*; 0 for a run without a fixed end."""
    recipe = preset.recipe
    fused = next(drafter.parameters()).is_cuda
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=fused)
    num_warmup = max(1, round(recipe.warmup_ratio * num_steps)) if num_steps else recipe.open_end_warmup_steps
    shares = partial(learning_rate_share, num_warmup=num_warmup, num_steps=num_steps)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, shares)


def learning_rate_share(step: int, *, num_warmup: int, num_steps: int) -> float:
    """
    The learning rate of *step* over its peak: linear warm-up, then a cosine to 0, or constant where *num_steps* is 0.

    Not transformers' schedule: its cosine rises again behind the last step.
    """
    if step < num_warmup:
        return step / num_warmup
    if not num_steps:
        return 1.0
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
