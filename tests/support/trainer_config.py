"""What a training run is told, for tests that care about one field of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashprof.contracts.toggles import parse_toggles
from pipeline.config import TrainConfig
from pipeline.presets import TINY
from pipeline.toggles import REGISTRY
from pipeline.topology import Topology


def some_config(**changes: Any) -> TrainConfig:
    """The tiny preset, `1+1`, no toggle, on the CPU, until stopped, with *changes*."""
    fields: dict[str, Any] = {
        "preset": TINY,
        "topology": Topology(1, 1),
        "toggles": parse_toggles("none", REGISTRY),
        "refused": {},
        "num_steps": 0,
        "seed": 0,
        "device": "cpu",
        "num_threads": 1,
        "cache": Path("unused"),
        "log_every": 1,
    }
    return TrainConfig(**(fields | changes))
