"""
speculators' drafter step: its `DFlashDraftModel` and loss, its optimizer, called as `Trainer.train_epoch` does.

Imports the installed `speculators`, so it is imported only by the process that measures it. Its `Trainer` itself is not
used: it reads data and logs through packages that have nothing to do with the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.peers.qwen import qwen3_config
from benchmarks.peers.stand_ins import stand_ins
from benchmarks.peers.weights import HEAD, fill
from benchmarks.peers.work import Batch, Work, check_slots, fixed_batch, hidden_states

MAX_GRAD_NORM = 1.0
"""Its trainer's."""
UNUSED = ("aiohttp", "datasets", "hs_connectors", "httpx", "loguru", "openai", "pydantic_settings")
"""What it imports on the way and never calls here."""


class _Speculators(NamedTuple):
    """What is called of it."""

    model: Any
    model_config: Any
    resolve_loss_config: Any
    build_optimizers: Any
    stood_in_for: tuple[str, ...]


def _import_speculators() -> _Speculators:
    with stand_ins(*UNUSED) as missing:
        from speculators.losses import fused, resolve_loss_config
        from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
        from speculators.train.optimizers import build_optimizers
    # torch 2.11 cannot trace its kernel's autograd function (`ListVariable … is already tracked for mutation`).
    fused.fused_ce_loss = torch.compiler.disable(fused.fused_ce_loss)
    return _Speculators(DFlashDraftModel, DFlashSpeculatorConfig, resolve_loss_config, build_optimizers, missing)


class OptimizerChoice(NamedTuple):
    """The fields of its `TrainerConfig` that `build_optimizers` reads for AdamW; its defaults."""

    optimizer: str = "adamw"
    lr: float = 6e-4
    weight_decay: float = 0.01


class SpeculatorsDrafter:
    """Its model on rows that are packed to a fixed length."""

    takes_packed_rows = True

    def __init__(self, work: Work, device: torch.device) -> None:
        self._work, self._device = work, device
        on_cuda = device.type == "cuda"
        its = _import_speculators()
        with device:
            self._model = its.model(_config(work, its, on_cuda=on_cuda))
        self.num_trained = fill(self._model, {"verifier_lm_head.weight": HEAD})
        self._model.train()
        self.differences = (
            "labels: argmax of the verifier's logits at each slot, an lm_head product more (part `labels` times it)",
            "labels: we give it hidden states of the verifier whose argmax is the ground-truth token",
            "loss: its fused kernel beside the compiled forward, as torch 2.11 cannot trace it; `eager_loss`: compiled",
            "loss: decayed sum over the undecayed count; `loss_scale` converts it",
            "anchors: a fixed number a packed row, any supervised token; a block may reach into the next document",
            "rows are padded to the token budget, so that its shapes never vary",
            "float32 weights under bfloat16 autocast, as its trainer keeps them",
            "optimizer: AdamW, not fused, as released; Muon, which it takes by default, is left out",
            "its loop's logging, progress bar, recovery and batch copies to the device are left out: in its favour",
            f"imports that were stood in for, none of them used: {', '.join(its.stood_in_for) or 'none'}",
            f"attention: {'compiled flex_attention and mask' if on_cuda else 'eager, with the eager loss: no Triton'}",
        )
        num_supervised, weight = check_slots(work)
        self.loss_scale = num_supervised / weight
        self._optimizers = its.build_optimizers(self._model, OptimizerChoice())
        self._eager_loss = its.resolve_loss_config("ce", "eager")
        self._call = {
            "loss_config": its.resolve_loss_config("ce", "fused") if on_cuda else self._eager_loss,
            "gamma": work.loss_decay_gamma,
            "max_anchors": work.num_anchors,
        }

    def prepare(self, batch: Batch, states_TF: Tensor) -> dict[str, Tensor]:
        """One row, as its collator packs it: padded, documents numbered, -1 in padding."""
        row = self._work.token_budget
        document_BS = torch.arange(len(batch.lengths))[:, None].expand_as(batch.input_ids_BS)
        position_BS = torch.arange(batch.input_ids_BS.shape[1]).expand_as(batch.input_ids_BS)
        input_ids_T = batch.packed(batch.input_ids_BS, row).to(self._device)
        made = {
            "input_ids": input_ids_T,
            "loss_mask": batch.packed(batch.loss_mask_BS, row),
            "document_ids": batch.packed(document_BS + 1, row) - 1,
            "position_ids": batch.packed(position_BS, row),
            "hidden_states": torch.nn.functional.pad(states_TF, (0, 0, 0, row - len(states_TF))),
            "verifier_last_hidden_states": self._says_next(input_ids_T).to(states_TF.dtype),
        }
        return {name: tensor.to(self._device)[None] for name, tensor in made.items()}

    def step(self, prepared: dict[str, Tensor]) -> Tensor:
        """One optimizer step."""
        return self._step(prepared, self._call)

    def _step(self, prepared: dict[str, Tensor], call: Mapping[str, Any]) -> Tensor:
        with self._autocast():
            _, loss, _ = self._model(**prepared, **call)
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), MAX_GRAD_NORM)
        for optimizer in self._optimizers:
            optimizer.step()
        return loss.detach()

    def rehearse(self) -> None:
        """It has no such thing."""

    def extra(self) -> dict[str, Callable[[], Any]]:
        """The product that makes its labels, and the whole step with its other loss."""
        num_slots = self._work.num_anchors * self._work.block_size
        states_QD = torch.randn(num_slots, self._work.hidden_size, device=self._device)

        def labels() -> Tensor:
            with torch.no_grad(), self._autocast():
                made: Tensor = self._model.verifier_lm_head(self._model.verifier_norm(states_QD))
                return made

        batch = fixed_batch(self._work, seed=1)
        prepared = self.prepare(batch, hidden_states(self._work, batch, self._device, seed=1))
        call = self._call | {"loss_config": self._eager_loss}
        return {"labels": labels, "eager_loss": lambda: self._step(prepared, call)}

    def _says_next(self, input_ids_T: Tensor) -> Tensor:
        """Hidden states whose likeliest token is the next one: the head's own row of it, longer than any other's."""
        with torch.no_grad():
            next_TD: Tensor = self._model.verifier_lm_head.weight[input_ids_T.roll(-1)]
        return next_TD

    def _autocast(self) -> Any:
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._device.type == "cuda")


def _config(work: Work, its: _Speculators, *, on_cuda: bool) -> Any:
    layers = qwen3_config(work, num_layers=work.num_draft_layers)
    # Its own choice on CUDA; flex_attention cannot train on a CPU.
    layers._attn_implementation = "simple_flex_attention" if on_cuda else "eager"  # noqa: SLF001
    return its.model_config(
        transformer_layer_config=layers,
        draft_vocab_size=work.vocab_size,
        block_size=work.block_size,
        # It counts the embedding as layer 0.
        aux_hidden_state_layer_ids=[layer_id + 1 for layer_id in work.layer_ids],
        mask_token_id=work.mask_token_id,
    )
