"""Random targets in bfloat16: every weight is drawn where it is used, by a seed that its name is part of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.model.target import load_tables, load_target
from pipeline.presets import TINY

NOWHERE = Path("unused")
SMALL = replace(
    TINY,
    target=replace(TINY.target, hidden_size=32, num_heads=2, num_kv_heads=1, head_dim=16, vocab_size=64),
)
DRAWN = replace(SMALL, target=replace(SMALL.target, source="random-bf16"))


def test_a_drawn_target_is_the_same_in_every_process_and_leaves_the_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)

    first, again = (load_target(DRAWN, NOWHERE, device=torch.device("cpu")) for _ in range(2))

    assert torch.equal(expected, torch.randn(3))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name))
        assert not parameter.requires_grad
        assert torch.bfloat16 == parameter.dtype


def test_a_drawn_target_has_the_architecture_and_the_spread_of_a_seeded_one() -> None:
    drawn, seeded = load_target(DRAWN, NOWHERE), load_target(SMALL, NOWHERE)
    input_ids_BS = torch.arange(12).view(1, 12)
    with torch.no_grad():
        expected = drawn.float()(input_ids_BS).logits
        # The same weights in a model that was built as a whole: rotary tables among what is not in the state.
        seeded.load_state_dict(drawn.state_dict())
        found = seeded(input_ids_BS).logits

    assert torch.equal(expected, found)
    spreads = {name: weight.std().item() for name, weight in drawn.named_parameters() if weight.ndim > 1}
    assert {name: pytest.approx(32**-0.5, rel=0.2) for name in spreads} == spreads


def test_a_drafter_draws_the_tables_of_a_drawn_target_alone() -> None:
    model: Any = load_target(DRAWN, NOWHERE)
    config, embedding_VD, head_VD = load_tables(DRAWN, NOWHERE)

    assert 64 == config.vocab_size
    assert torch.equal(model.get_input_embeddings().weight, embedding_VD)
    assert torch.equal(model.get_output_embeddings().weight, head_VD)
    assert not torch.equal(embedding_VD, head_VD)
