"""
The frozen target: a causal LM of transformers whose hidden states are tapped by hooks; no logits are computed.

Shapes: B samples, S padded length, T packed length, F tapped layers × hidden size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.model.drafter import DrafterShape, tap_layers
from pipeline.presets import Preset

TARGET_SEED = 20261129
"""Every process builds the same random target from this; it is not the run's seed."""


def load_target(preset: Preset, cache: Path) -> nn.Module:
    """The preset's target on the CPU, frozen, in eval mode: float32, or bfloat16 where it was trained in that."""
    model = _load_smollm2(cache) if preset.target.source == "smollm2" else _random_qwen3(preset)
    return model.requires_grad_(requires_grad=False).eval()


def _random_qwen3(preset: Preset) -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    plan = preset.target
    config = Qwen3Config(
        hidden_size=plan.hidden_size,
        num_hidden_layers=plan.num_layers,
        num_attention_heads=plan.num_heads,
        num_key_value_heads=plan.num_kv_heads,
        head_dim=plan.head_dim,
        intermediate_size=plan.intermediate_size,
        vocab_size=plan.vocab_size,
        max_position_embeddings=preset.data.max_length,
        tie_word_embeddings=False,
        # transformers' 0.02 leaves a narrow random head with logits of 0.2: nothing that a drafter could sharpen.
        initializer_range=plan.hidden_size**-0.5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TARGET_SEED)
        return Qwen3ForCausalLM(config)


def _load_smollm2(cache: Path) -> nn.Module:
    from transformers import AutoModelForCausalLM

    from pipeline.data.progress import quiet_bars
    from pipeline.data.smollm2 import ensure_smollm2

    folder = ensure_smollm2(cache)
    # Every worker loads it: their bars would be drawn over each other.
    with quiet_bars():
        model: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    return model


def drafter_shape(config: Any, *, num_layers: int) -> DrafterShape:
    """A drafter as wide as the target with this transformers config; it taps as many layers as it has."""
    rope = getattr(config, "rope_parameters", None) or {}
    return DrafterShape(
        hidden_size=config.hidden_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        num_layers=num_layers,
        num_taps=num_layers,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=rope.get("rope_theta", getattr(config, "rope_theta", 1e6)),
    )


class TappedTarget:
    """Runs the target's layers and keeps the outputs of the tapped ones."""

    def __init__(self, model: Any, *, num_taps: int) -> None:
        self._backbone = model.model
        self._taps: dict[int, Tensor] = {}
        self.layer_ids = tap_layers(model.config.num_hidden_layers, num_taps)
        for layer_id in self.layer_ids:
            self._backbone.layers[layer_id].register_forward_hook(self._keep(layer_id))

    @torch.no_grad()
    def forward(self, input_ids_BS: Tensor) -> list[Tensor]:
        """
        Hidden states `[B, S, D]` of the tapped layers, in layer order.

        Samples are padded on the right and attention is causal, so padding cannot reach a real token: no mask is
        needed.
        """
        self._backbone(input_ids=input_ids_BS, use_cache=False)
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
