"""A small drafter that has learnt a little, and the state that goes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from checkpoints import some_state

from flashprof.contracts.toggles import parse_toggles
from pipeline.checkpoint.state import CheckpointState
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.presets import FULL, TINY
from pipeline.toggles import REGISTRY

SHAPE = DrafterShape(
    hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=48, num_layers=2, num_taps=2
)


@dataclass
class Learner:
    """A drafter and its optimizer."""

    drafter: Drafter
    optimizer: torch.optim.AdamW

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.drafter.named_parameters()]

    def learn(self, step: int) -> None:
        """One step on gradients that are drawn from the step's number."""
        generator = torch.Generator().manual_seed(step)
        for parameter in self.drafter.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        self.optimizer.step()


@pytest.fixture
def make_learner() -> Callable[..., Learner]:
    def make(*, seed: int = 0, fused: bool = False, shape: DrafterShape = SHAPE) -> Learner:
        torch.manual_seed(seed)
        drafter = Drafter(shape)
        with torch.no_grad():
            # Norms start at 1, where a missing or a swapped one would not show.
            for name, parameter in drafter.named_parameters():
                if "norm" in name:
                    parameter.uniform_(0.5, 1.5)
        return Learner(drafter, torch.optim.AdamW(drafter.parameters(), lr=1e-2, fused=fused))

    return make


@pytest.fixture
def make_state() -> Callable[..., CheckpointState]:
    def make(
        *, step: int = 200, toggles: str = "none", layer_types: tuple[str, ...] = (FULL, FULL), **changes: Any
    ) -> CheckpointState:
        drafter = replace(TINY.drafter, layer_types=layer_types, sliding_window=6, block_size=4)
        fields = {
            "step": step,
            "num_tokens": 1000 * step,
            "seed": 3,
            "num_steps": 400,
            "preset": replace(TINY, drafter=drafter),
            "toggles": parse_toggles(toggles, REGISTRY),
            "topology": "5+3",
            "mask_token_id": 7,
            "shape": SHAPE,
            "vocab_size": 128,
            "max_positions": 1024,
        }
        return some_state(**(fields | changes))

    return make
