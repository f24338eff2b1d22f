"""Drafting with kept keys and values is the training forward pass of one block, token by token of the context."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline.evaluate.drafting import CachedDrafter
from pipeline.model.drafter import Drafter, DrafterShape
from pipeline.model.mask_evaluated import additive_mask
from pipeline.model.mask_rule import mask_tables
from pipeline.model.tables import FrozenTables
from pipeline.presets import FULL, SLIDING, DrafterPlan

BLOCK = 4
FIXTURES = [HealthCheck.function_scoped_fixture]


def plan_of(kinds: tuple[str, ...], window: int) -> DrafterPlan:
    return DrafterPlan(layer_types=kinds, sliding_window=window, block_size=BLOCK, num_anchors=8, loss_decay_gamma=4.0)


def trained_forward(drafter: Drafter, plan: DrafterPlan, hidden_TF: Tensor, block_QD: Tensor) -> Tensor:
    """`Drafter.forward` over a row that goes on behind the anchor, as in training."""
    num_context = len(hidden_TF)
    row_TF = torch.cat([hidden_TF, torch.full((BLOCK, hidden_TF.shape[1]), 9.0)])
    position_K = torch.cat([torch.arange(num_context + BLOCK), torch.arange(num_context, num_context + BLOCK)])
    masks: list[Any] = [
        additive_mask(
            mask_tables(
                torch.tensor([num_context]),
                torch.zeros(len(row_TF), dtype=torch.int64),
                block_size=BLOCK,
                window=plan.sliding_window if kind == SLIDING else None,
            )
        )
        for kind in plan.layer_types
    ]
    out: Tensor = drafter(row_TF, block_QD, position_K, masks)
    return out


@settings(max_examples=30, deadline=None, suppress_health_check=FIXTURES)
@given(
    plan=st.builds(plan_of, st.tuples(*[st.sampled_from([FULL, SLIDING])] * 2), st.integers(1, 12)),
    pieces=st.lists(st.integers(1, 6), min_size=1, max_size=5),
)
@torch.no_grad()
def test_final_states_equal_the_training_forward_however_the_context_came(
    drafter: Drafter,
    shape: DrafterShape,
    tables: FrozenTables,
    plan: DrafterPlan,
    pieces: list[int],
) -> None:
    generator = torch.Generator().manual_seed(1)
    hidden_TF = torch.randn(sum(pieces), shape.num_taps * shape.hidden_size, generator=generator)
    block_QD = torch.randn(BLOCK, shape.hidden_size, generator=generator)
    drafting = CachedDrafter(drafter, shape, plan, tables)
    drafting.start(sum(pieces))
    for piece_TF in hidden_TF.split(pieces):
        drafting.extend(piece_TF)
        # A draft between two pieces must leave nothing behind.
        drafting.final_states(torch.randn(BLOCK, shape.hidden_size, generator=generator))

    expected = trained_forward(drafter, plan, hidden_TF, block_QD)
    actual = drafting.final_states(block_QD)

    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_a_window_that_bites_changes_the_draft(drafter: Drafter, shape: DrafterShape, tables: FrozenTables) -> None:
    hidden_TF = torch.randn(20, shape.num_taps * shape.hidden_size, generator=torch.Generator().manual_seed(1))
    block_QD = torch.randn(BLOCK, shape.hidden_size, generator=torch.Generator().manual_seed(2))
    states = []
    for window in (6, 7):
        drafting = CachedDrafter(drafter, shape, plan_of((SLIDING, SLIDING), window), tables)
        drafting.start(20)
        drafting.extend(hidden_TF)
        states.append(drafting.final_states(block_QD))

    assert (states[0] - states[1]).abs().max() > 1e-3


@torch.no_grad()
def test_a_draft_is_the_likeliest_token_of_every_slot_behind_the_anchor(
    drafting: CachedDrafter, shape: DrafterShape, tables: FrozenTables
) -> None:
    hidden_TF = torch.randn(9, shape.num_taps * shape.hidden_size, generator=torch.Generator().manual_seed(1))
    drafting.start(9)
    drafting.extend(hidden_TF)
    num_telling = 0
    for anchor in range(20):
        block_ids_Q = torch.tensor([anchor] + [tables.mask_token_id] * (BLOCK - 1))
        final_QD = drafting.final_states(tables.embedding_VD[block_ids_Q])
        expected = (final_QD @ tables.head_VD.T).argmax(dim=-1).tolist()

        assert expected[1:] == drafting.draft(torch.tensor([anchor])).tolist()
        num_telling += expected[1:] != expected[:-1]

    # With the anchor's own slot instead of the last, most drafts would be others.
    assert num_telling > 10


@torch.no_grad()
def test_a_sequence_starts_without_the_last_one(drafting: CachedDrafter, shape: DrafterShape) -> None:
    generator = torch.Generator().manual_seed(1)
    first_TF, second_TF = (torch.randn(9, shape.num_taps * shape.hidden_size, generator=generator) for _ in range(2))
    anchor_1 = torch.tensor([5])
    drafting.start(9)
    drafting.extend(second_TF)
    expected = drafting.draft(anchor_1).tolist()
    for capacity in (9, 40):
        drafting.start(capacity)
        drafting.extend(first_TF)
        drafting.start(capacity)
        drafting.extend(second_TF)

        assert expected == drafting.draft(anchor_1).tolist()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
@torch.no_grad()
def test_the_drafters_own_precision_begins_at_its_input(
    drafter: Drafter, shape: DrafterShape, tables: FrozenTables, kind: torch.dtype
) -> None:
    half = replace(tables, embedding_VD=tables.embedding_VD.to(kind), head_VD=tables.head_VD.to(kind))
    drafting = CachedDrafter(drafter, shape, plan_of((FULL, SLIDING), 5), half)
    drafting.start(6)
    drafting.extend(torch.randn(6, shape.num_taps * shape.hidden_size, dtype=kind))

    assert (BLOCK - 1,) == tuple(drafting.draft(torch.tensor([5])).shape)
