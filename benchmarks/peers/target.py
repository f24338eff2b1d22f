"""
Ways to get the tapped hidden states out of a target.

`OurTarget`: the pipeline's own, as `pipeline.roles.target` calls it. `PlainTarget`: transformers' model with hooks, in
three ways. `logits` is what TorchSpec's HFTargetModel does (210 ms in anchors.md); `layers` leaves the logits out (2.5
TFLOP a sample); `stop` leaves out what lies behind the last tapped layer too (186 ms), which no peer does.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.ours import our_toggles
from benchmarks.peers.work import Batch, Work
from pipeline.model.taps import TappedTarget, pack
from pipeline.roles.target import compute, pack_message
from pipeline.transport.messages import WorkItem

PLAIN_WAYS = ("logits", "layers", "stop")


class TargetSystem(Protocol):
    """A frozen target at work."""

    takes_packed_rows: bool
    """Whether a batch may be filled with samples of any length."""

    def rehearse(self) -> None:
        """What it runs before its first batch, besides batches of every shape."""

    def forward(self, batch: Batch) -> Tensor:
        """The joined taps of the real tokens, packed: `states_TF`."""


class OurTarget:
    """What `pipeline.roles.target` does with a batch, up to the message that a drafter gets."""

    takes_packed_rows = True

    def __init__(self, work: Work, model: Any, device: torch.device) -> None:
        self._target = TappedTarget(model, work.layer_ids)
        self._device = device
        self._toggles = our_toggles(work, device)
        self._longest = work.token_budget

    def rehearse(self) -> None:
        """Samples of all lengths."""
        if self._toggles["packed-target"]:
            self._target.rehearse_packed(self._longest)

    def forward(self, batch: Batch) -> Tensor:
        """Packed up to the drafter's row, checksum and all; cut to the real tokens, which copies nothing."""
        item = WorkItem(
            step=0,
            drafter=0,
            input_ids_BS=batch.input_ids_BS.numpy().astype(np.int32),
            loss_mask_BS=batch.loss_mask_BS.numpy(),
            lengths=batch.lengths,
            early_exit=bool(self._toggles["early-exit"]),
            compiled=bool(self._toggles["compile-target"]),
            packed=bool(self._toggles["packed-target"]),
        )
        rows, states_BSD = compute(self._target, item, self._device)
        return pack_message(item, rows, states_BSD, pack).hidden_TF[: batch.num_tokens]


class PlainTarget:
    """transformers' model with hooks on the tapped layers."""

    takes_packed_rows = False

    def __init__(self, work: Work, model: Any, device: torch.device, way: str) -> None:
        self._model, self._device, self._way = model, device, way
        self._layers = model.model.layers
        self._layer_ids = work.layer_ids

    def rehearse(self) -> None:
        """Nothing."""

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        """Computed with padding, which is cut off afterwards where there is any."""
        states_BSD: list[Tensor] = []

        def keep(module: nn.Module, arguments: Any, output: Any) -> None:
            del module, arguments
            states_BSD.append(output[0] if isinstance(output, tuple) else output)

        hooks = [self._layers[layer_id].register_forward_hook(keep) for layer_id in self._layer_ids]
        try:
            self._run(batch.input_ids_BS.to(self._device, non_blocking=True))
        finally:
            for hook in hooks:
                hook.remove()
        joined_BSF = torch.cat(states_BSD, dim=-1)
        if batch.num_tokens == batch.input_ids_BS.numel():
            return joined_BSF.flatten(0, 1)
        return joined_BSF[batch.is_token_BS.to(self._device)]

    def _run(self, input_ids_BS: Tensor) -> None:
        if self._way == "logits":
            self._model(input_ids=input_ids_BS, use_cache=False)
            return
        backbone = self._model.model
        backbone.layers = self._layers[: max(self._layer_ids) + 1] if self._way == "stop" else self._layers
        try:
            backbone(input_ids=input_ids_BS, use_cache=False)
        finally:
            backbone.layers = self._layers
