"""A small random target, and a drafter for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.evaluate.drafting import CachedDrafter
from pipeline.evaluate.taps import CachedTarget, cached_target
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.model.tables import FrozenTables
from pipeline.model.target import drafter_shape, load_target
from pipeline.presets import FULL, SLIDING, TINY, DrafterPlan

VOCAB_SIZE = 64
MASK_TOKEN_ID = 2
LAYER_IDS = (1, 3)
PLAN = DrafterPlan(layer_types=(SLIDING, FULL), sliding_window=5, block_size=4, num_anchors=8, loss_decay_gamma=4.0)


@pytest.fixture(scope="session")
def model() -> Any:
    plan = replace(TINY.target, hidden_size=32, num_heads=4, num_kv_heads=2, head_dim=16, vocab_size=VOCAB_SIZE)
    return load_target(replace(TINY, target=plan), Path("unused"))


@pytest.fixture(scope="session")
def shape(model: Any) -> DrafterShape:
    return drafter_shape(model.config, num_layers=len(PLAN.layer_types), num_taps=len(LAYER_IDS))


@pytest.fixture
def drafter(shape: DrafterShape) -> Drafter:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Drafter(shape)
        with torch.no_grad():
            # Norms start at 1, where a missing or a swapped one would not show.
            for name, parameter in made.named_parameters():
                if "norm" in name:
                    parameter.uniform_(0.5, 1.5)
    return made


@pytest.fixture(scope="session")
def tables(model: Any) -> FrozenTables:
    return FrozenTables(
        embedding_VD=model.get_input_embeddings().weight.detach(),
        head_VD=model.get_output_embeddings().weight.detach(),
        mask_token_id=MASK_TOKEN_ID,
    )


@pytest.fixture
def drafting(drafter: Drafter, shape: DrafterShape, tables: FrozenTables) -> CachedDrafter:
    return CachedDrafter(drafter, shape, PLAN, tables)


@pytest.fixture
def target(model: Any) -> Iterator[CachedTarget]:
    with cached_target(model, LAYER_IDS) as cached:
        yield cached
