"""A Llama of two layers with the same random weights each time, for tests that let a target speak."""

from __future__ import annotations

from typing import Any


def make_tiny_llama(vocab_size: int) -> Any:
    """In training mode, float32, without tokens of its own for start and end."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)
