"""Configs as others publish them: read where they mean the same, refused where they mean another model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flashprof.contracts.errors import FormatError, UsageError
from pipeline.checkpoint.zlab_config import read_config, zlab_config
from pipeline.presets import FULL, SLIDING

Make = Callable[..., Any]


@pytest.fixture
def read(make_state: Make) -> Callable[..., Any]:
    """Read the config of a drafter with one full and one sliding layer, with changes."""

    def reading(*, drop: tuple[str, ...] = (), inner: dict[str, Any] | None = None, **changes: Any) -> Any:
        config = zlab_config(make_state(layer_types=(FULL, SLIDING)), dtype="bfloat16") | changes
        for name in drop:
            config.pop(name, None)
            config["dflash_config"].pop(name, None)
        if inner:
            config["dflash_config"] |= inner
        return read_config(config, where="config.json")

    return reading


def test_values_at_the_top_will_do(read: Make) -> None:
    outer = {"block_size": 16, "mask_token_id": 5, "target_layer_ids": [0, 2]}

    plan = read(dflash_config=None, **outer)

    assert (16, 5, (0, 2)) == (plan.block_size, plan.mask_token_id, plan.layer_ids)


def test_inner_values_come_first(read: Make) -> None:
    assert 8 == read(block_size=16, inner={"block_size": 8}).block_size


def test_layers_to_tap_follow_from_the_number_of_layers(read: Make) -> None:
    assert (1, 3) == read(drop=("target_layer_ids",)).layer_ids


@pytest.mark.parametrize(
    ("changes", "theta"),
    [
        ({"rope_parameters": {"rope_theta": 10000000, "rope_type": "default"}, "rope_theta": 5.0}, 1e7),
        ({"rope_parameters": None, "rope_theta": 10000}, 1e4),
        ({"rope_parameters": {"rope_type": "default"}, "rope_scaling": None}, 1e6),
    ],
)
def test_the_rotary_base_has_two_places(read: Make, changes: dict[str, Any], theta: float) -> None:
    assert theta == read(**changes).shape.rope_theta


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"layer_types": None}, ((FULL, FULL), None)),
        ({"layer_types": None, "inner": {"use_swa": True, "swa_window_size": 1024}}, ((SLIDING, SLIDING), 1024)),
        ({"layer_types": [FULL, FULL], "inner": {"use_swa": True}}, ((SLIDING, SLIDING), 6)),
        ({"layer_types": [FULL, FULL]}, ((FULL, FULL), None)),
        ({"layer_types": [SLIDING, FULL], "inner": {"use_swa": True}}, ((SLIDING, FULL), 6)),
    ],
)
def test_sliding_layers_are_declared_in_several_ways(read: Make, changes: dict[str, Any], expected: Any) -> None:
    plan = read(**changes)

    assert expected == (plan.layer_types, plan.sliding_window)


@pytest.mark.parametrize(
    ("changes", "is_causal"),
    [
        ({}, False),
        ({"drop": ("is_causal",)}, False),
        ({"drop": ("is_causal", "causal")}, True),
        ({"drop": ("is_causal", "causal"), "layer_types": [FULL, FULL]}, False),
        ({"drop": ("is_causal", "causal"), "layer_types": None, "inner": {"use_swa": True}}, False),
        ({"is_causal": True}, True),
        ({"is_causal": None, "inner": {"causal": True}}, True),
    ],
)
def test_a_sliding_layer_is_causal_unless_said_otherwise(
    read: Make, changes: dict[str, Any], *, is_causal: bool
) -> None:
    assert is_causal == read(**changes).is_causal


def test_what_the_config_may_leave_out(read: Make) -> None:
    shape = read(drop=("head_dim", "num_key_value_heads", "rms_norm_eps", "architectures", "hidden_act")).shape

    assert (8, 4, 1e-6) == (shape.head_dim, shape.num_kv_heads, shape.rms_norm_eps)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["DFlash2DraftModel"]},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "rope_theta": 1e6}},
        {"attention_bias": True},
        {"partial_rotary_factor": 0.5},
        {"hidden_act": "gelu"},
        {"inner": {"attention_sink_bias": True}},
        {"inner": {"attention_value_scale": 0.612}},
        {"inner": {"input_embedding_scale": 2.0}},
        {"inner": {"output_multiplier": 0.5}},
        {"final_logit_softcapping": 30.0},
    ],
)
def test_another_architecture_is_refused(read: Make, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        read(**changes)
    assert "config.json" == caught.value.where
    assert caught.value.allowed


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"drop": ("num_target_layers",)}, "num_target_layers is missing"),
        ({"drop": ("mask_token_id",)}, "mask_token_id is missing"),
        ({"drop": ("block_size",)}, "block_size is missing"),
        ({"drop": ("hidden_size",)}, "hidden_size is missing"),
        ({"drop": ("rope_theta",), "rope_parameters": None}, "rope_theta is missing"),
        ({"rope_theta": -1, "rope_parameters": None}, "rope_theta"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"hidden_size": 32.5}, "hidden_size is no such number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is no such number"),
        ({"inner": {"mask_token_id": -1}}, "mask_token_id is no such number"),
        ({"inner": {"block_size": True}}, "block_size is no such number"),
        ({"inner": {"target_layer_ids": [1, 6]}}, "target_layer_ids"),
        ({"inner": {"target_layer_ids": []}}, "target_layer_ids"),
        ({"inner": {"target_layer_ids": "1, 3"}}, "target_layer_ids"),
        ({"layer_types": [FULL]}, "layer_types"),
        ({"layer_types": [FULL, "linear_attention"]}, "layer_types"),
        ({"layer_types": FULL}, "layer_types"),
        ({"layer_types": [FULL, [SLIDING]]}, "layer_types"),
        ({"sliding_window": None}, "sliding_window is missing"),
        ({"dflash_config": [1]}, "dflash_config is no JSON object"),
        ({"rope_parameters": 3}, "rope_parameters is no JSON object"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(read: Make, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(FormatError, match=named) as caught:
        read(**changes)
    assert "config.json" == caught.value.where
