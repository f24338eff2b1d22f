"""Qwen3 configs of the work's shapes, and a random target with them, made on its device."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.peers.work import Work


def qwen3_config(work: Work, *, num_layers: int) -> Any:
    """The transformers config, with full attention in all layers."""
    return Qwen3Config(
        hidden_size=work.hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=work.num_heads,
        num_key_value_heads=work.num_kv_heads,
        head_dim=work.head_dim,
        intermediate_size=work.intermediate_size,
        vocab_size=work.vocab_size,
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=False,
        use_cache=False,
        attention_dropout=0.0,
    )


def random_target(work: Work, device: torch.device) -> nn.Module:
    """
    A frozen target, bfloat16 on CUDA: 16.4 GB of Qwen3-8B's shapes in seconds, where the CPU would take minutes.

    Its weights are transformers' own initialisation: speed does not depend on them, and no loss is compared on them.
    """
    config = qwen3_config(work, num_layers=work.num_target_layers)
    config._attn_implementation = "sdpa"  # noqa: SLF001, what transformers would choose
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device.type == "cuda" else torch.float32)
    try:
        with device:
            model = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(default)
    return model.requires_grad_(requires_grad=False).eval()
