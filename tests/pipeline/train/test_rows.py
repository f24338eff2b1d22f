"""Rows: positions, and that every way to lay them out gives the same row."""

from __future__ import annotations

import pytest
import torch

from flashprof.contracts.toggles import parse_toggles
from pipeline.model.checksum import bit_sum
from pipeline.presets import TINY
from pipeline.toggles import REGISTRY
from pipeline.train.rows import Row, RowLayout, positions_in_document
from pipeline.transport.messages import HiddenStates

LENGTHS = (100, 60)


def make(expression: str, whole_row: int = 1) -> Row:
    hidden_TF = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
    item = HiddenStates(
        step=0,
        hidden_TF=hidden_TF,
        checksum=bit_sum(hidden_TF),
        input_ids_T=torch.arange(256),
        loss_mask_T=torch.arange(256) < sum(LENGTHS),
        lengths=LENGTHS,
        num_padding_tokens=0,
    )
    layout = RowLayout(TINY.drafter, 2, torch.device("cpu"), whole_row=whole_row)
    return layout.make(item, parse_toggles(expression, REGISTRY), torch.Generator().manual_seed(1))


def test_positions_count_from_zero_in_every_document() -> None:
    assert [0, 1, 2, 0, 1, 0, 0] == positions_in_document((3, 2), 7).tolist()


def test_a_block_is_its_anchors_token_and_masks_at_the_anchors_positions() -> None:
    row = make("none")
    block_size = TINY.drafter.block_size
    ids_AK = row.block_ids_Q.view(-1, block_size)
    position_AK = row.position_K[256:].view(-1, block_size)

    # The row's token at position t is t.
    assert row.anchor_A.tolist() == ids_AK[:, 0].tolist()
    assert {2} == set(ids_AK[:, 1:].flatten().tolist())
    assert row.position_K[:256][row.anchor_A].tolist() == position_AK[:, 0].tolist()
    assert [0] * len(position_AK) == (position_AK[:, -1] - position_AK[:, 0] - block_size + 1).tolist()


@pytest.mark.parametrize("expression", ["docids", "prealloc", "docids,prealloc"])
def test_every_way_to_lay_out_gives_the_same_row(expression: str) -> None:
    plain, other = make("none"), make(expression)

    assert torch.equal(plain.document_T, other.document_T)
    assert torch.equal(plain.position_K, other.position_K)
    assert torch.equal(plain.block_ids_Q, other.block_ids_Q)
    assert torch.equal(plain.targets.label_N, other.targets.label_N)
    assert torch.equal(plain.targets.weight_N, other.targets.weight_N)
    assert plain.weight == other.weight == float(plain.targets.weight_N.sum())
    assert 0.0 == float(plain.mismatch)


def test_a_row_says_what_laid_it_out() -> None:
    assert "document_ids_by_position, PinEach" == make("none").way
    assert "document_ids, Preallocated" == make("docids,prealloc").way


@pytest.mark.parametrize(("whole_row", "room"), [(1, 0), (128, 0), (300, 44), (200, 144)])
def test_tables_of_compiled_layers_have_room_for_a_whole_row(whole_row: int, room: int) -> None:
    plain, row = make("none", whole_row), make("compile-drafter", whole_row)
    num_context = plain.document_T.numel()

    assert 256 == num_context
    assert [-1] * room == row.document_T[num_context:].tolist()
    assert torch.equal(plain.document_T, row.document_T[:num_context])
    assert torch.equal(plain.position_K[:num_context], row.position_K[:num_context])
    assert torch.equal(plain.position_K[num_context:], row.position_K[num_context + room :])
    assert torch.equal(plain.anchor_A, row.anchor_A)
    assert torch.equal(plain.targets.label_N, row.targets.label_N)
