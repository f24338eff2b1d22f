"""A checkpoint's state of some run, for tests that care about one field of it."""

from __future__ import annotations

from typing import Any

from flashprof.contracts.toggles import parse_toggles
from pipeline.checkpoint.state import CheckpointState
from pipeline.model.shape import DrafterShape
from pipeline.presets import TINY
from pipeline.toggles import REGISTRY

SHAPE = DrafterShape(
    hidden_size=8, num_heads=1, num_kv_heads=1, head_dim=8, intermediate_size=8, num_layers=1, num_taps=1
)


def some_state(**changes: Any) -> CheckpointState:
    """The tiny preset after 30 of 90 steps, with *changes*."""
    fields: dict[str, Any] = {
        "step": 30,
        "num_tokens": 1000,
        "seed": 0,
        "num_steps": 90,
        "preset": TINY,
        "toggles": parse_toggles("none", REGISTRY),
        "topology": "1+1",
        "mask_token_id": 2,
        "layer_ids": (1, 3),
        "shape": SHAPE,
        "num_target_layers": 6,
        "vocab_size": 64,
        "max_positions": 64,
    }
    return CheckpointState(**(fields | changes))
