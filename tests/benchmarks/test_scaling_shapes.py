"""Operations of known models: weights, the arithmetic of anchors.md, and what is carried over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scaling_model import Stages
from benchmarks.scaling_shapes import (
    DENSE_27B,
    QWEN3_8B,
    ModelShape,
    Work,
    carried,
    drafter_flop_a_token,
    drafter_weights,
    target_flop_a_token,
)

WORK = Work(batch_tokens=6144, sample_tokens=3072, draft_tokens=16_384)
"""Two samples of 3,072 tokens, 512 anchors each, blocks of 16."""


@pytest.mark.parametrize(("shape", "billions"), [(QWEN3_8B, 8.19), (DENSE_27B, 27.0)])
def test_shapes_have_as_many_weights_as_their_models(shape: ModelShape, billions: float) -> None:
    # Qwen3-8B has a head of its own, Gemma 3 shares it with the embedding.
    num_tables = 2 if shape is QWEN3_8B else 1
    weights = shape.num_layers * shape.layer_weights + num_tables * shape.vocab_size * shape.hidden_size

    assert pytest.approx(billions, rel=0.02) == weights / 1e9


def test_a_step_of_the_peers_has_the_operations_of_the_floor() -> None:
    """anchors.md: drafter 148 TFLOP; target 114 ms at 756 TFLOP/s, which are 86."""
    tera = 1e12

    assert pytest.approx(148, rel=0.08) == 6144 * drafter_flop_a_token(QWEN3_8B, WORK) / tera
    assert pytest.approx(86, rel=0.08) == 6144 * target_flop_a_token(QWEN3_8B, WORK) / tera


def test_the_drafter_has_a_billion_weights() -> None:
    assert pytest.approx(1.05, rel=0.01) == drafter_weights(QWEN3_8B, WORK) / 1e9


def test_a_model_is_carried_to_itself_unchanged_and_to_a_larger_one_slower() -> None:
    stages = Stages(target_tok_per_s=30e3, drafter_tok_per_s=20e3, batch_tokens=6144, gradient_bytes=4.2e9)
    same, larger = (carried(stages, QWEN3_8B, shape, WORK) for shape in (QWEN3_8B, DENSE_27B))

    assert stages == same
    assert 30e3 / 3.7 == pytest.approx(larger.target_tok_per_s, rel=0.1)
    assert 20e3 > larger.drafter_tok_per_s > 20e3 / 3
    assert larger.gradient_bytes > stages.gradient_bytes


def test_more_draft_tokens_cost_the_drafter_only() -> None:
    more = replace(WORK, draft_tokens=32_768)

    assert drafter_flop_a_token(QWEN3_8B, WORK) < drafter_flop_a_token(QWEN3_8B, more)
    assert target_flop_a_token(QWEN3_8B, WORK) == target_flop_a_token(QWEN3_8B, more)
