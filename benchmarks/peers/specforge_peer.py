"""
SpecForge's drafter step: its `OnlineDFlashModel` in its `TrainerCore`, without FSDP and without its data plane.

Imports the installed `specforge`, so it is imported only by the process that measures it. Nothing of it is stubbed:
what 0.2.0 imports on the way here are torch, transformers, huggingface_hub and safetensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from specforge.algorithms.common.dflash_family_model import OnlineDFlashModel
from specforge.modeling.draft.dflash import DFlashDraftModel
from specforge.optimizer import BF16Optimizer
from specforge.runtime.contracts import TrainBatch
from specforge.training.backend import FSDPTrainingBackend, ParallelConfig
from specforge.training.controller import TrainerCore
from specforge.training.strategies.base import DFlashTrainStrategy
from torch import Tensor, nn

from benchmarks.peers.qwen import qwen3_config
from benchmarks.peers.weights import EMBEDDING, HEAD, draw, fill
from benchmarks.peers.work import Batch, Work


class SpecForgeDrafter:
    """`TrainerCore.train_step` on right-padded batches."""

    loss_scale = 1.0
    takes_packed_rows = False

    def __init__(self, work: Work, device: torch.device) -> None:
        self._work, self._device = work, device
        on_cuda = device.type == "cuda"
        self._dtype = torch.bfloat16 if on_cuda else torch.float32
        attention = "flex_attention" if on_cuda else "sdpa"
        with device:
            draft_model = DFlashDraftModel(_draft_config(work, attention)).to(self._dtype)
        self.num_trained = fill(draft_model)
        self.differences = (
            "anchors: a number a sample; token and successor supervised; a block may run off the sample's end",
            "anchors at varying lengths: we set their number to the same share of the padded length before each step",
            "its own trainer keeps 512 anchors a sample, however short the sample",
            f"attention: {attention}, as its trainer sets it; the mask is evaluated uncompiled",
            "weights: bfloat16 with float32 masters; ours float32 under autocast",
            "lm_head computed again in the backward pass, 128 blocks at a time, as released",
            "metrics and gradient norm are read on the host every step, as its trainer core does",
            "batches of unlike lengths are computed with their padding",
        )
        self._model = OnlineDFlashModel(
            draft_model=draft_model,
            target_lm_head=_frozen_head(work, device, self._dtype),
            target_embed_tokens=_frozen_embedding(work, device, self._dtype),
            mask_token_id=work.mask_token_id,
            block_size=work.block_size,
            attention_backend=attention,
            num_anchors=work.anchors_a_sample,
            loss_decay_gamma=work.loss_decay_gamma,
        ).train()
        backend = FSDPTrainingBackend(
            ParallelConfig(), optimizer_factory=partial(BF16Optimizer, lr=6e-4, max_grad_norm=1.0, total_steps=10_000)
        )
        backend.prepare_model(self._model, wrap=False, optimizer_target=draft_model)
        self._core = TrainerCore(DFlashTrainStrategy(self._model), backend)

    def prepare(self, batch: Batch, states_TF: Tensor) -> TrainBatch:
        """Padded on the right, as its collator makes it."""
        shape = (*batch.input_ids_BS.shape, states_TF.shape[-1])
        states_TF = states_TF.to(self._dtype)
        if batch.num_tokens == batch.input_ids_BS.numel():
            states_BSF = states_TF.view(shape)
        else:
            states_BSF = torch.zeros(shape, dtype=self._dtype, device=self._device)
            states_BSF[batch.is_token_BS.to(self._device)] = states_TF
        tensors = {
            "input_ids": batch.input_ids_BS.to(self._device),
            "hidden_states": states_BSF,
            "loss_mask": batch.loss_mask_BS.float().to(self._device),
        }
        return TrainBatch(sample_ids=[str(number) for number in range(shape[0])], strategy="dflash", tensors=tensors)

    def step(self, prepared: TrainBatch) -> float:
        """One optimizer step."""
        padded_length = prepared.tensors["input_ids"].shape[1]
        self._model.num_anchors = max(1, self._work.anchors_a_sample * padded_length // self._work.length)
        return float(self._core.train_step(prepared).loss)

    def rehearse(self) -> None:
        """It has no such thing."""

    def extra(self) -> dict[str, Callable[[], Any]]:
        """None."""
        return {}


def _draft_config(work: Work, attention: str) -> Any:
    config = qwen3_config(work, num_layers=work.num_draft_layers)
    config.architectures = ["DFlashDraftModel"]
    config.block_size = work.block_size
    config.num_target_layers = work.num_target_layers
    config.dflash_config = {"mask_token_id": work.mask_token_id, "target_layer_ids": list(work.layer_ids)}
    config._attn_implementation = attention  # noqa: SLF001, as its own build_dflash_draft does
    return config


def _frozen_head(work: Work, device: torch.device, dtype: torch.dtype) -> nn.Module:
    head = nn.Linear(work.hidden_size, work.vocab_size, bias=False, device=device, dtype=dtype)
    head.weight = nn.Parameter(draw(HEAD, head.weight.shape, device).to(dtype), requires_grad=False)
    return head


def _frozen_embedding(work: Work, device: torch.device, dtype: torch.dtype) -> nn.Module:
    weight_VD = draw(EMBEDDING, (work.vocab_size, work.hidden_size), device).to(dtype)
    return nn.Embedding.from_pretrained(weight_VD, freeze=True)
