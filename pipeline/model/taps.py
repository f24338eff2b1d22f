"""
The frozen target at work: hidden states are tapped; no logits are computed.

Plainly it is transformers' own forward with hooks. Where the layers are known, they also run compiled, on one packed
row, or both (`pipeline.model.target_layers`).

Shapes: B samples, S padded length, T packed length, F tapped layers × hidden size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.model.target_attention import MakeAttend, attend_packed, attend_padded, rehearsal_lengths
from pipeline.model.target_layers import TargetLayers, can_run


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
        self._own_layers = TargetLayers(model, self.layer_ids) if can_run(model) else None

    @property
    def has_own_layers(self) -> bool:
        """Whether `forward_padded` and `forward_packed` can run."""
        return self._own_layers is not None

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

    @torch.no_grad()
    def forward_padded(self, input_ids_BS: Tensor, *, early_exit: bool, compiled: bool) -> list[Tensor]:
        """As `forward`, by the own layers; equal but for rounding."""
        num_rows, padded_length = input_ids_BS.shape
        position_T = torch.arange(padded_length, device=input_ids_BS.device).repeat(num_rows)
        states = self._own().forward(
            input_ids_BS.flatten(),
            position_T,
            attend_padded(num_rows, padded_length),
            early_exit=early_exit,
            compiled=compiled,
        )
        return [state_TD.unflatten(0, (num_rows, padded_length)) for state_TD in states]

    @torch.no_grad()
    def forward_packed(
        self,
        input_ids_T: Tensor,
        lengths: Sequence[int],
        *,
        early_exit: bool,
        compiled: bool,
        make_attend: MakeAttend = attend_packed,
    ) -> list[Tensor]:
        """
        Hidden states `[1, T, D]` of one row of samples, each computed as if it were alone.

        Args:
            input_ids_T: Token ids, sample behind sample, and padding behind the last.
            lengths: Tokens of each sample.
            early_exit: As in `forward`.
            compiled: By compiled functions.
            make_attend: Makes the attention; studies compare others.
        """
        device = input_ids_T.device
        num_left = input_ids_T.numel() - sum(lengths)
        # The padding attends to itself: its states are dropped, but must be written.
        spans = [*lengths, num_left] if num_left else list(lengths)
        position_T = torch.cat([torch.arange(length) for length in spans])
        if device.type == "cuda":
            position_T = position_T.pin_memory().to(device, non_blocking=True)
        attend = make_attend(spans, self._backbone.embed_tokens.weight)
        states = self._own().forward(input_ids_T, position_T, attend, early_exit=early_exit, compiled=compiled)
        return [state_TD[None] for state_TD in states]

    @torch.no_grad()
    def rehearse_packed(self, longest: int) -> int:
        """Let attention over packed rows meet samples of all lengths up to *longest*; returns how many it was given."""
        like = self._backbone.embed_tokens.weight
        lengths = rehearsal_lengths(longest, like)
        for length in lengths:
            attend_packed([length], like)(*self._own().empty_heads(length, like))
        return len(lengths)

    def _own(self) -> TargetLayers:
        assert self._own_layers is not None, "the caller asks `has_own_layers` first"
        return self._own_layers

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
