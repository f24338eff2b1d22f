"""
The `config.json` of a drafter in z-lab's public layout, written for every reader and read from every writer.

What readers take from the config (dflash 0.1.0, SGLang and vLLM main, 2026-11):

- `block_size`, `mask_token_id`, `target_layer_ids`: dflash and SGLang in `dflash_config` first, then at the top;
  `block_size` is therefore written twice, since older code reads only the top.
- `layer_types` and `sliding_window`: all three. transformers drops the window unless `use_sliding_window` is true.
- `is_causal`: left out, sliding layers count as causal (TensorRT-LLM#16914). Ours see their whole block, so false is
  written, and `dflash_config.causal` for vLLM of before it read `is_causal`. SGLang of before its #34524 reads
  neither and takes sliding layers as causal, whatever is written.
- `auto_map`: names the file on the Hub that `trust_remote_code` runs. That file's SDPA path has no window, so a drafter
  with a sliding layer goes without: better no class than a wrong one.
- `rope_parameters` is transformers 5's, `rope_theta` everybody else's.

Published configs differ in turn: values lie at the top or in `dflash_config`, the rotary base under either name. What
would make it another model than `pipeline.model.drafter` computes is refused, not passed over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashprof.contracts.errors import FormatError, UsageError
from pipeline.presets import FULL, SLIDING

if TYPE_CHECKING:
    from pipeline.checkpoint.state import CheckpointState
    from pipeline.model.shape import DrafterShape

ARCHITECTURE = "DFlashDraftModel"
HUB_CLASS = "z-lab/Qwen3-8B-DFlash-b16--dflash.DFlashDraftModel"


def zlab_config(state: CheckpointState, *, dtype: str) -> dict[str, Any]:
    """
    The content of `config.json`.

    Raises:
        UsageError: A sliding layer's window is smaller than a block: other code would apply it within the block.
    """
    shape, plan = state.shape, state.preset.drafter
    is_sliding = SLIDING in state.layer_types
    if is_sliding and plan.sliding_window < plan.block_size:
        raise UsageError(
            "this drafter cannot be exported: other code applies the window within a block, ours does not",
            offered=f"window of {plan.sliding_window}, blocks of {plan.block_size}",
            allowed="a window of at least one block",
        )
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3",
        **({} if is_sliding else {"auto_map": {"AutoModel": HUB_CLASS}}),
        "dtype": dtype,
        "block_size": plan.block_size,
        "num_target_layers": state.num_target_layers,
        "dflash_config": {
            "block_size": plan.block_size,
            "mask_token_id": state.mask_token_id,
            "target_layer_ids": list(state.layer_ids),
            "causal": False,
        },
        "is_causal": False,
        "layer_types": list(state.layer_types),
        "use_sliding_window": is_sliding,
        "sliding_window": plan.sliding_window if is_sliding else None,
        "max_window_layers": shape.num_layers,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "max_position_embeddings": state.max_positions,
        "vocab_size": state.vocab_size,
        "tie_word_embeddings": False,
    }


@dataclass(frozen=True, kw_only=True)
class ZlabPlan:
    """What a config says about its drafter."""

    shape: DrafterShape
    layer_types: tuple[str, ...]
    sliding_window: int | None
    """None where no layer slides."""
    is_causal: bool
    """Whether slots saw only their block's tokens before them; ours see all, and have to learn that."""
    block_size: int
    layer_ids: tuple[int, ...]
    mask_token_id: int
    num_target_layers: int


def read_config(raw: Mapping[str, Any], *, where: str) -> ZlabPlan:
    """
    Read a `config.json`.

    Args:
        raw: Its content.
        where: The file, for messages.

    Raises:
        FormatError: A value is missing or makes no sense.
        UsageError: A drafter of an architecture that this trainer does not have.
    """
    config = ConfigReader(raw, where=where)
    _check_architecture(config)
    num_target_layers, num_layers = config.count("num_target_layers"), config.count("num_hidden_layers")
    layer_ids = _layer_ids(config, num_target_layers, num_layers)
    layer_types = _layer_types(config, num_layers)
    is_sliding = SLIDING in layer_types
    return ZlabPlan(
        shape=_shape(config, num_layers=num_layers, num_taps=len(layer_ids)),
        layer_types=layer_types,
        sliding_window=config.count("swa_window_size", "sliding_window") if is_sliding else None,
        is_causal=bool(
            config.find("is_causal", config.find("causal", default=SLIDING in config.find("layer_types", ())))
        ),
        block_size=config.count("block_size"),
        layer_ids=layer_ids,
        mask_token_id=config.count("mask_token_id", smallest=0),
        num_target_layers=num_target_layers,
    )


class ConfigReader:
    """Values of a `config.json`; those in `dflash_config` come first."""

    def __init__(self, raw: Mapping[str, Any], *, where: str) -> None:
        self.where = where
        self._values = dict(raw)
        self._values |= self.section("dflash_config")

    def find(self, name: str, default: Any = None) -> Any:
        """A value; null counts as absent."""
        value = self._values.get(name)
        return default if value is None else value

    def section(self, name: str) -> Mapping[str, Any]:
        """
        A JSON object; empty where there is none.

        Raises:
            FormatError: It is something else.
        """
        value = self.find(name, {})
        if not isinstance(value, Mapping):
            raise FormatError(f"{name} is no JSON object", where=self.where, offered=json.dumps(value)[:80])
        return value

    def count(self, *names: str, smallest: int = 1, default: int | None = None) -> int:
        """
        A whole number under the first of *names* that is there.

        Raises:
            FormatError: None is there and there is no default, or it is no such number.
        """
        value = next((self._values[name] for name in names if self._values.get(name) is not None), default)
        if type(value) is not int or value < smallest:
            raise FormatError(
                f"{names[-1]} is {'missing' if value is None else 'no such number'}",
                where=self.where,
                offered=None if value is None else json.dumps(value)[:80],
                allowed=f"a whole number of {smallest} or more",
            )
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """
        A number above 0.

        Raises:
            FormatError: It is missing and there is no default, or it is something else.
        """
        value = self.find(name, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise FormatError(
                f"{name} is missing or no such number",
                where=self.where,
                offered=json.dumps(value)[:80],
                allowed="a number above 0",
            )
        return float(value)


def _check_architecture(config: ConfigReader) -> None:
    """Each of these keys, set, changes what a layer computes."""
    found = config.find("architectures", [ARCHITECTURE])
    if found != [ARCHITECTURE]:
        raise UsageError(
            "not a drafter that this trainer knows", where=config.where, offered=str(found), allowed=ARCHITECTURE
        )
    ropes = config.section("rope_parameters"), config.section("rope_scaling")
    foreign = {
        "scaled rope": any(rope.get("rope_type", rope.get("type", "default")) != "default" for rope in ropes),
        "rope per layer type": any(isinstance(value, Mapping) for rope in ropes for value in rope.values()),
        "partial_rotary_factor": config.find("partial_rotary_factor", 1.0) != 1.0,
        "attention_bias": bool(config.find("attention_bias", default=False)),
        "attention_sink_bias": bool(config.find("attention_sink_bias", default=False)),
        "attention_value_scale": config.find("attention_value_scale", 1.0) != 1.0,
        "input_embedding_scale": config.find("input_embedding_scale", 1.0) != 1.0,
        "output_multiplier": config.find("output_multiplier", 1.0) != 1.0,
        "final_logit_softcapping": bool(config.find("final_logit_softcapping", 0.0)),
        "hidden_act": config.find("hidden_act", "silu") != "silu",
    }
    names = [name for name, is_foreign in foreign.items() if is_foreign]
    if names:
        raise UsageError(
            f"this trainer's drafter has no {', '.join(names)}",
            where=config.where,
            allowed="plain rotary positions, no biases, no scales, SiLU",
        )


def _layer_ids(config: ConfigReader, num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    from pipeline.model.drafter import tap_layers

    ids = config.find("target_layer_ids", list(tap_layers(num_target_layers, num_layers)))
    if not isinstance(ids, list) or not ids or any(type(i) is not int or not 0 <= i < num_target_layers for i in ids):
        raise FormatError(
            "target_layer_ids is no list of layers of the target",
            where=config.where,
            offered=json.dumps(ids)[:80],
            allowed=f"numbers from 0 to {num_target_layers - 1}",
        )
    return tuple(ids)


def _layer_types(config: ConfigReader, num_layers: int) -> tuple[str, ...]:
    uniform = SLIDING if config.find("use_swa", default=False) else FULL
    kinds = config.find("layer_types", [uniform] * num_layers)
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in (FULL, SLIDING) for kind in kinds):
        raise FormatError(
            "layer_types does not fit the layers",
            where=config.where,
            offered=json.dumps(kinds)[:80],
            allowed=f"{num_layers} of {FULL}, {SLIDING}",
        )
    # vLLM: `use_swa` makes every layer slide even where `layer_types` says that all are full.
    return (SLIDING,) * num_layers if uniform == SLIDING and SLIDING not in kinds else tuple(kinds)


def _shape(config: ConfigReader, *, num_layers: int, num_taps: int) -> DrafterShape:
    from pipeline.model.shape import DrafterShape

    hidden_size, num_heads = config.count("hidden_size"), config.count("num_attention_heads")
    rope_theta = config.section("rope_parameters").get("rope_theta", config.find("rope_theta"))
    return DrafterShape(
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=config.count("num_key_value_heads", default=num_heads),
        head_dim=config.count("head_dim", default=max(1, hidden_size // num_heads)),
        intermediate_size=config.count("intermediate_size"),
        num_layers=num_layers,
        num_taps=num_taps,
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
        rope_theta=ConfigReader({"rope_theta": rope_theta}, where=config.where).number("rope_theta"),
    )
