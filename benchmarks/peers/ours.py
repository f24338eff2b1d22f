"""FlashProf's own drafter step and target forward, put together as `pipeline.roles` does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.weights import EMBEDDING, HEAD, draw, fill
from benchmarks.peers.work import Batch, Work, drafter_shape, states_dtype
from flashprof.contracts.toggles import ToggleValues, format_toggles, parse_toggles
from flashprof.emit import Emitter
from pipeline.config import HostPlace
from pipeline.data.buckets import packed_length
from pipeline.model.checksum import bit_sum
from pipeline.model.drafter import Drafter
from pipeline.model.tables import FrozenTables
from pipeline.presets import FULL, DataPlan, DrafterPlan, Preset, Recipe, TargetPlan
from pipeline.roles.drafter import synthetic_row
from pipeline.roles.worker import Rehearsal
from pipeline.toggles import REGISTRY, honoured, not_applied
from pipeline.train.optimizer import make_optimizer
from pipeline.train.peers import Peers
from pipeline.train.step import DrafterStep, Learner, StepInput
from pipeline.transport.messages import HiddenStates, Order


def our_toggles(work: Work, device: torch.device) -> ToggleValues:
    """The work's toggles, as far as this machine honours them."""
    values = parse_toggles(work.toggles, REGISTRY)
    return honoured(values, not_applied(values, has_cuda=device.type == "cuda"))


class OurDrafter:
    """`DrafterStep` on packed rows."""

    loss_scale = 1.0
    takes_packed_rows = True

    def __init__(self, work: Work, device: torch.device) -> None:
        preset = make_preset(work)
        with device:
            drafter = Drafter(drafter_shape(work))
        self.num_trained = fill(drafter)
        self._work, self._device = work, device
        self._toggles = our_toggles(work, device)
        self.differences = (
            f"toggles: {format_toggles(self._toggles, REGISTRY)}",
            "batches of unlike lengths are filled, as `--batches filled` does it",
            "anchors: a fixed number a row, random, any place of it whose block stays in its document",
            "attention: flex_attention with a closed-form BlockMask on CUDA, SDPA with a dense mask on a CPU",
            "host work of a step (anchors, labels, their copy to the device, gradient norm) is part of the time",
        )
        self._trainer = DrafterStep(
            Learner(drafter=drafter, optimizer=make_optimizer(drafter, preset.recipe), preset=preset, num_steps=0),
            FrozenTables(
                embedding_VD=draw(EMBEDDING, (work.vocab_size, work.hidden_size), device),
                head_VD=draw(HEAD, (work.vocab_size, work.hidden_size), device),
                mask_token_id=work.mask_token_id,
            ),
            _alone(device),
            Emitter(None, None),
        )
        self._num_steps = 0

    def prepare(self, batch: Batch, states_TF: Tensor) -> HiddenStates:
        """As a target sends it."""
        return packed_row(batch, states_TF)

    def step(self, prepared: HiddenStates) -> Tensor:
        """One optimizer step."""
        given = StepInput(
            step=self._num_steps,
            generator=torch.Generator().manual_seed(self._num_steps),
            toggles=self._toggles,
            order=Order(),
        )
        self._num_steps += 1
        return self._trainer.run([prepared], given).scalars["loss"]

    def rehearse(self) -> None:
        """Every batch shape, as the role does with toggle `warmup`."""
        for shape in self._work.shapes:
            rehearsal = Rehearsal(num_samples=shape.num_rows, padded_length=shape.padded_length)
            row = synthetic_row(rehearsal, self._work.num_features, self._device, states_dtype(self._device))
            self._trainer.rehearse(row, self._toggles)

    def extra(self) -> dict[str, Callable[[], Any]]:
        """None."""
        return {}


def make_preset(work: Work) -> Preset:
    """The work as the pipeline writes it down."""
    return Preset(
        name="peers",
        summary="the peers study",
        target=TargetPlan(source="random", vocab_size=work.vocab_size),
        drafter=DrafterPlan(
            layer_types=(FULL,) * work.num_draft_layers,
            sliding_window=2048,
            block_size=work.block_size,
            num_anchors=work.num_anchors,
            loss_decay_gamma=work.loss_decay_gamma,
        ),
        data=DataPlan(
            source="stdlib",
            max_length=work.token_budget,
            bucket_bounds=work.bucket_bounds,
            token_budget=work.token_budget,
        ),
        recipe=Recipe(),
    )


def _alone(device: torch.device) -> Peers:
    with TemporaryDirectory() as folder:
        return Peers(rank=0, num_drafters=1, rendezvous=Path(folder) / "store", host=HostPlace(), device=device)


def packed_row(batch: Batch, states_TF: Tensor) -> HiddenStates:
    """What the drafter gets of a batch, packed as a target packs it."""
    row = packed_length(batch.num_tokens)
    hidden_TF = torch.nn.functional.pad(states_TF, (0, 0, 0, row - len(states_TF)))
    return HiddenStates(
        step=0,
        hidden_TF=hidden_TF,
        checksum=bit_sum(hidden_TF),
        input_ids_T=batch.packed(batch.input_ids_BS, row),
        loss_mask_T=batch.packed(batch.loss_mask_BS, row),
        lengths=batch.lengths,
        num_padding_tokens=batch.input_ids_BS.numel() - batch.num_tokens,
    )
