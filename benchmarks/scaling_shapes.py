"""
What a token costs a target and a drafter of some shape, in floating-point operations: to carry capacities from one
model to another.

A matrix product of m × k and k × n counts 2 m k n. Training counts three times the forward pass, but for the frozen
head, whose weights get no gradient: twice. Attention of a causal sample of S tokens counts S / 2 keys a query.
Elementwise work is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.scaling_model import Stages
from pipeline.presets import QWEN3_8B_RANDOM


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Widths of a dense decoder with gated MLPs."""

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int

    @property
    def layer_weights(self) -> int:
        """Weights of a layer's matrices."""
        attention = self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        return attention + 3 * self.hidden_size * self.intermediate_size


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is trained in a step."""

    batch_tokens: float
    sample_tokens: float
    """Mean length of the sample that a token lies in."""
    draft_tokens: float
    """Anchors × block size."""
    num_draft_layers: int = 5
    num_taps: int = 5


_QWEN3 = QWEN3_8B_RANDOM.target
QWEN3_8B = ModelShape(
    name="Qwen3-8B",
    hidden_size=_QWEN3.hidden_size,
    num_layers=_QWEN3.num_layers,
    num_heads=_QWEN3.num_heads,
    num_kv_heads=_QWEN3.num_kv_heads,
    head_dim=_QWEN3.head_dim,
    intermediate_size=_QWEN3.intermediate_size,
    vocab_size=_QWEN3.vocab_size,
)
DENSE_27B = ModelShape(
    name="27B dense",
    hidden_size=5376,
    num_layers=62,
    num_heads=32,
    num_kv_heads=16,
    head_dim=128,
    intermediate_size=21_504,
    vocab_size=262_144,
)
"""Gemma 3 27B's widths."""


def target_flop_a_token(shape: ModelShape, work: Work) -> float:
    """Forward to the last tapped layer, which is the third from the end; no head."""
    num_layers = shape.num_layers - 2
    attention = 4 * shape.num_heads * shape.head_dim * work.sample_tokens / 2
    return num_layers * (2 * shape.layer_weights + attention)


def drafter_flop_a_token(shape: ModelShape, work: Work) -> float:
    """Forward and backward of a step, over the batch's tokens."""
    kv_weights = 2 * shape.hidden_size * shape.head_dim * shape.num_kv_heads
    context = 6 * (work.num_taps * shape.hidden_size**2 + work.num_draft_layers * kv_weights)
    # A block sees on average half of its sample. Backward is 2.5 times the forward pass: scores are computed again.
    attention = 3.5 * 4 * shape.num_heads * shape.head_dim * work.sample_tokens / 2
    layers = work.num_draft_layers * (6 * shape.layer_weights + attention)
    head = 4 * shape.hidden_size * shape.vocab_size
    return context + work.draft_tokens / work.batch_tokens * (layers + head)


def drafter_weights(shape: ModelShape, work: Work) -> int:
    """Weights that are trained."""
    return work.num_draft_layers * shape.layer_weights + work.num_taps * shape.hidden_size**2


def carried(stages: Stages, before: ModelShape, after: ModelShape, work: Work) -> Stages:
    """*stages* of the model *before*, for the model *after* at the same FLOP/s on both sides, bytes by width."""
    target = target_flop_a_token(before, work) / target_flop_a_token(after, work)
    drafter = drafter_flop_a_token(before, work) / drafter_flop_a_token(after, work)
    return replace(
        stages,
        target_tok_per_s=stages.target_tok_per_s * target,
        drafter_tok_per_s=stages.drafter_tok_per_s * drafter,
        link_tok_per_s=stages.link_tok_per_s * before.hidden_size / after.hidden_size,
        gradient_bytes=stages.gradient_bytes * drafter_weights(after, work) / drafter_weights(before, work),
    )
