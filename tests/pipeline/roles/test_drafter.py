"""A drafter that somebody trained is taken where it fits, and refused by what differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashprof.contracts.errors import UsageError
from pipeline.checkpoint.zlab_config import ZlabPlan
from pipeline.model.shape import DrafterShape
from pipeline.roles.drafter import check_warm_start
from pipeline.train.saver import ModelFacts

SHAPE = DrafterShape(
    hidden_size=32, num_heads=2, num_kv_heads=1, head_dim=16, intermediate_size=48, num_layers=2, num_taps=2
)
FACTS = ModelFacts(shape=SHAPE, layer_ids=(1, 3), mask_token_id=2, num_target_layers=6, vocab_size=64, max_positions=64)
PLAN = ZlabPlan(
    shape=SHAPE,
    layer_types=("sliding_attention", "full_attention"),
    sliding_window=16,
    is_causal=False,
    block_size=8,
    layer_ids=(1, 3),
    mask_token_id=2,
    num_target_layers=6,
)
FOLDER = Path("somebodys")


def test_a_drafter_for_this_target_is_taken() -> None:
    check_warm_start(PLAN, FACTS, where=FOLDER)


@pytest.mark.parametrize(
    ("changes", "offered", "needed"),
    [
        (
            {"shape": replace(SHAPE, hidden_size=64, num_heads=4)},
            "hidden_size 64, num_heads 4",
            "hidden_size 32, num_heads 2",
        ),
        ({"shape": replace(SHAPE, rope_theta=1e4)}, "rope_theta 10000.0", "rope_theta 1000000.0"),
        ({"layer_ids": (1, 4)}, "target_layer_ids [1, 4]", "target_layer_ids [1, 3]"),
        ({"mask_token_id": 5}, "mask_token_id 5", "mask_token_id 2"),
        ({"num_target_layers": 36}, "num_target_layers 36", "num_target_layers 6"),
    ],
)
def test_one_for_another_target_is_refused_with_what_it_has_and_what_is_needed(
    changes: dict[str, Any], offered: str, needed: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        check_warm_start(replace(PLAN, **changes), FACTS, where=FOLDER)

    assert offered == refusal.value.offered
    assert needed == refusal.value.allowed
    assert str(FOLDER) == refusal.value.where


def test_one_that_saw_only_the_tokens_before_may_learn_to_see_all() -> None:
    check_warm_start(replace(PLAN, is_causal=True), FACTS, where=FOLDER)
