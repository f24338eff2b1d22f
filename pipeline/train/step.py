"""One optimizer step of a drafter, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import WAIT, Emitter
from pipeline.brake import Hold, no_brake
from pipeline.model.compiled_drafter import CompiledParts, compile_parts
from pipeline.model.drafter import PLAIN
from pipeline.model.fused_loss import fused_dflash_loss
from pipeline.model.loss import LossParts, dflash_loss
from pipeline.model.mask_blocks import FLEX_BLOCK, num_blocks
from pipeline.model.mask_rule import MaskRequest
from pipeline.model.masks import MaskFactory
from pipeline.model.scoring import score_stepwise
from pipeline.model.tables import FrozenTables
from pipeline.presets import SLIDING, Preset
from pipeline.train.clip import clip_by_host, clip_on_device
from pipeline.train.evidence import Evidence
from pipeline.train.optimizer import set_learning_rate
from pipeline.train.peers import Agreement, Peers
from pipeline.train.rows import Row, RowLayout
from pipeline.train.schedule import learning_rate_share
from pipeline.transport.messages import HiddenStates, Order
from pipeline.ways import Ways


@dataclass(frozen=True, kw_only=True)
class StepInput:
    """What one step is told besides its data."""

    step: int
    generator: torch.Generator
    """Of the anchors."""
    toggles: ToggleValues
    order: Order


@dataclass(frozen=True)
class StepResult:
    """What a step leaves behind; scalars on the device."""

    scalars: dict[str, Tensor]
    agreement: Agreement
    lr: float
    contexts: tuple[int, ...] = ()
    """Tokens of its document before each block that was trained; none where the step was left out."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """What learns: the model, its optimizer, and the plan for both."""

    drafter: nn.Module
    optimizer: torch.optim.Optimizer
    preset: Preset
    num_steps: int
    """0: without a fixed end."""


class DrafterStep:
    """`run` trains on one step's batches."""

    def __init__(
        self,
        learner: Learner,
        frozen: FrozenTables,
        peers: Peers,
        emitter: Emitter,
        *,
        hold: Hold = no_brake,
        compiled: CompiledParts | None = None,
    ) -> None:
        """
        Compute nothing yet.

        Args:
            learner: Is trained.
            frozen: The target's tables, on the device that trains.
            peers: The other drafters.
            emitter: Takes phases and ways.
            hold: Keeps the forward pass up, where a fault is planted.
            compiled: What runs where toggle `compile-drafter` is on; None: the usual parts.
        """
        self._compiled = compiled or compile_parts()
        self._learner = learner
        self._plan = learner.preset.drafter
        self._frozen = frozen
        self._peers = peers
        self._emitter = emitter
        self._hold = hold
        self._ways = Ways(emitter)
        self._parameters = list(learner.drafter.parameters())
        self._device = frozen.head_VD.device
        is_cuda = self._device.type == "cuda"
        # SDPA, on a CPU, would compute on what is empty.
        whole_row = FLEX_BLOCK * num_blocks(learner.preset.data.token_budget) if is_cuda else 1
        self._layout = RowLayout(self._plan, frozen.mask_token_id, self._device, whole_row=whole_row)
        self._masks = MaskFactory(is_cuda=is_cuda)
        self._evidence = Evidence(emitter)

    def run(self, items: Sequence[HiddenStates], given: StepInput) -> StepResult:
        """
        Train on one or several rows: gradients of all rows, of all drafters, make one optimizer step.

        A step in which no drafter has a supervised token is left out by all of them: gradients would be 0, and a rank
        that left it out alone would leave the others waiting (SpecForge#737).
        """
        span = self._emitter.span
        self._ways.step = given.step
        with span("anchors"):
            rows = [self._make_row(item, given.toggles, given.generator) for item in items]
        weight = sum(row.weight for row in rows)
        agreement = self._agree(weight, sum(sum(item.lengths) for item in items), given.order)
        lr = self._set_learning_rate(given.step)
        if agreement.total_weight == 0:
            self._emitter.mark("skipped", step=given.step, reason="no drafter has a supervised token in it")
            return StepResult(scalars={}, agreement=agreement, lr=lr)
        parts = [self._train_row(row, given.toggles, agreement.total_weight) for row in rows]
        norm = self._update(given.toggles)
        with span("metrics"):
            scalars = {"grad_norm": norm, "hidden_mismatch": torch.stack([row.mismatch for row in rows]).sum()}
            # A rank without a supervised token of its own has no loss to tell.
            scalars |= _means(parts, agreement.total_weight / weight) if weight else {}
            self._evidence.look()
        contexts = tuple(context for row in rows for context in row.contexts)
        return StepResult(scalars=scalars, agreement=agreement, lr=lr, contexts=contexts)

    def rehearse(self, item: HiddenStates, toggles: ToggleValues) -> None:
        """Run forward and backward on *item* without learning from it (toggle `warmup`)."""
        row = self._make_row(item, toggles, torch.Generator().manual_seed(0))
        self._forward(row, toggles, max(row.weight, 1.0)).loss.backward()
        self._learner.optimizer.zero_grad(set_to_none=True)
        self._evidence.look()

    def _make_row(self, item: HiddenStates, toggles: ToggleValues, generator: torch.Generator) -> Row:
        row = self._layout.make(item, toggles, generator)
        self._ways.note("anchors", row.way)
        return row

    def _agree(self, weight: float, num_tokens: int, order: Order) -> Agreement:
        if self._peers.num_drafters == 1:
            return self._peers.agree(weight, num_tokens, order)
        with self._emitter.span("count_sync", WAIT):
            return self._peers.agree(weight, num_tokens, order)

    def _set_learning_rate(self, step: int) -> float:
        recipe = self._learner.preset.recipe
        lr = recipe.lr * learning_rate_share(step, recipe=recipe, num_steps=self._learner.num_steps)
        set_learning_rate(self._learner.optimizer, lr)
        return lr

    def _train_row(self, row: Row, toggles: ToggleValues, total_weight: float) -> LossParts:
        parts = self._forward(row, toggles, total_weight)
        with self._emitter.span("backward", device=True):
            parts.loss.backward()
        return parts

    def _forward(self, row: Row, toggles: ToggleValues, total_weight: float) -> LossParts:
        span = self._emitter.span
        with span("mask", device=True):
            masks = self._build_masks(row, toggles)
        compiled = bool(toggles["compile-drafter"])
        self._ways.note("forward", f"{'compiled' if compiled else 'plain'} layers")
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            with span("forward", device=True):
                block_QD = F.embedding(row.block_ids_Q, self._frozen.embedding_VD)
                code = self._compiled.code if compiled else PLAIN
                final_QD = self._learner.drafter(row.hidden_TF, block_QD, row.position_K, masks, code=code)
                self._hold(toggles)
            with span("loss", device=True):
                return self._score(final_QD, row, toggles, total_weight)

    def _score(self, final_QD: Tensor, row: Row, toggles: ToggleValues, total_weight: float) -> LossParts:
        block_size = self._plan.block_size
        weight = torch.full((), total_weight, dtype=torch.float32, device=self._device)
        if not toggles["fused-loss"]:
            self._ways.note("loss", dflash_loss.__name__)
            return dflash_loss(final_QD, self._frozen.head_VD, row.targets, block_size=block_size, total_weight=weight)
        compiled = bool(toggles["compile-drafter"])
        self._ways.note("loss", f"{fused_dflash_loss.__name__}, {'compiled' if compiled else 'stepwise'} score")
        return fused_dflash_loss(
            final_QD,
            self._head_for_products if compiled else self._frozen.head_VD,
            row.targets,
            block_size=block_size,
            total_weight=weight,
            score=self._compiled.score if compiled else score_stepwise,
        )

    @cached_property
    def _head_for_products(self) -> Tensor:
        """The head in the type of its products, kept: cast in every step, it moves 3.7 GB, 0.9 ms on an H200."""
        return self._frozen.head_VD.to(torch.bfloat16) if self._device.type == "cuda" else self._frozen.head_VD

    def _build_masks(self, row: Row, toggles: ToggleValues) -> list[Any]:
        """One mask a kind of layer; with `swa` all layers slide, so one serves all."""
        compiled, analytic = bool(toggles["compile"]), bool(toggles["analytic-mask"])
        layer_types = [SLIDING] * len(self._plan.layer_types) if toggles["swa"] else self._plan.layer_types
        by_type = {
            kind: self._masks.build(
                MaskRequest(
                    anchor_A=row.anchor_A,
                    document_T=row.document_T,
                    position_T=row.position_K[: row.document_T.numel()],
                    block_size=self._plan.block_size,
                    window=self._plan.sliding_window if kind == SLIDING else None,
                ),
                compiled=compiled,
                analytic=analytic,
            )
            for kind in sorted(set(layer_types))
        }
        words = ("analytic" if analytic else "evaluated", "compiled" if compiled else "eager", f"masks: {len(by_type)}")
        self._ways.note("mask", ", ".join(words))
        return [by_type[kind] for kind in layer_types]

    def _update(self, toggles: ToggleValues) -> Tensor:
        span = self._emitter.span
        if self._peers.num_drafters > 1:
            with span("grad_sync", WAIT, device=True):
                self._peers.sum_gradients(self._parameters)
        clip = clip_on_device if toggles["grad-norm"] else clip_by_host
        self._ways.note("clip", clip.__name__)
        with span("clip", device=True):
            norm = clip(self._parameters, self._learner.preset.recipe.max_grad_norm)
        with span("optimizer", device=True):
            self._learner.optimizer.step()
            self._learner.optimizer.zero_grad(set_to_none=True)
        return norm


def _means(parts: list[LossParts], share: float) -> dict[str, Tensor]:
    """The weighted mean loss of the rank itself, and its accuracy."""
    num_right = torch.stack([part.num_right for part in parts]).sum()
    num_supervised = torch.stack([part.num_supervised for part in parts]).sum()
    return {
        "loss": torch.stack([part.loss.detach() for part in parts]).sum() * share,
        "acc": num_right / num_supervised.clamp(min=1),
    }
