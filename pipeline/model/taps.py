"""
The frozen target at work: hidden states are tapped by hooks; no logits are computed.

Shapes: B samples, S padded length, T packed length, F tapped layers × hidden size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


class TappedTarget:
    """Runs the target's layers and keeps the outputs of the tapped ones."""

    def __init__(self, model: Any, layer_ids: Iterable[int]) -> None:
        self._backbone = model.model
        self._all_layers = self._backbone.layers
        self._taps: dict[int, Tensor] = {}
        self.layer_ids = tuple(layer_ids)
        self._needed_layers = self._all_layers[: max(self.layer_ids) + 1]
        for layer_id in self.layer_ids:
            self._all_layers[layer_id].register_forward_hook(self._keep(layer_id))

    @torch.no_grad()
    def forward(self, input_ids_BS: Tensor, *, early_exit: bool) -> list[Tensor]:
        """
        Hidden states `[B, S, D]` of the tapped layers, in the order of `layer_ids`.

        Samples are padded on the right and attention is causal, so padding cannot reach a real token: no mask is
        needed.

        Args:
            input_ids_BS: Token ids.
            early_exit: Stop behind the last tapped layer; the model is whole again afterwards.
        """
        # transformers' own forward over fewer layers: what runs around them, masks and rotation, stays its own.
        self._backbone.layers = self._needed_layers if early_exit else self._all_layers
        try:
            self._backbone(input_ids=input_ids_BS, use_cache=False)
        finally:
            self._backbone.layers = self._all_layers
        return [self._taps.pop(layer_id) for layer_id in self.layer_ids]

    def _keep(self, layer_id: int) -> Any:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            del module, arguments
            self._taps[layer_id] = output[0] if isinstance(output, tuple) else output

        return hook


def pack(states_BSD: list[Tensor], keep_T: Tensor, padded_length: int) -> Tensor:
    """
    Drop the padding between samples and join the taps.

    Args:
        states_BSD: Tapped hidden states.
        keep_T: int64, flat positions of the real tokens in `[B·S]`.
        padded_length: Length of the packed row; what lies past the real tokens is 0.

    Returns:
        `hidden_TF`.
    """
    joined = torch.cat([state.flatten(0, 1)[keep_T] for state in states_BSD], dim=-1)
    return nn.functional.pad(joined, (0, 0, 0, padded_length - keep_T.numel()))
