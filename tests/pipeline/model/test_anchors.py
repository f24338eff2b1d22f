"""Anchors are random, sorted, inside one document, and their successor is supervised."""

from __future__ import annotations

import torch
from drafter_rules import slow_valid
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pipeline.model.anchors import document_ids, document_ids_by_position, sample_anchors, valid_anchors


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[int], list[bool], int, int]:
    """Document lengths, loss mask of the padded row, block size, slots."""
    lengths = draw(st.lists(st.integers(1, 24), min_size=1, max_size=6))
    padded = sum(lengths) + draw(st.integers(0, 20))
    supervised = draw(st.lists(st.booleans(), min_size=padded, max_size=padded))
    supervised[sum(lengths) :] = [False] * (padded - sum(lengths))
    return lengths, supervised, draw(st.integers(2, 9)), draw(st.integers(1, 40))


@given(rows())
def test_both_ways_to_document_ids_agree_on_every_position(row: tuple[list[int], list[bool], int, int]) -> None:
    lengths, supervised, _, _ = row
    expected = [document for document, length in enumerate(lengths) for _ in range(length)]
    expected += [-1] * (len(supervised) - sum(lengths))

    whole, by_position = document_ids(lengths, len(supervised)), document_ids_by_position(lengths, len(supervised))

    assert expected == whole.tolist() == by_position.tolist()
    assert torch.int64 == whole.dtype == by_position.dtype


@given(rows())
def test_valid_positions_keep_their_block_in_the_document_and_have_a_supervised_successor(
    row: tuple[list[int], list[bool], int, int],
) -> None:
    lengths, supervised, block_size, _ = row
    document_T = document_ids(lengths, len(supervised))

    valid_T = valid_anchors(document_T, torch.tensor(supervised), block_size)

    assert slow_valid(lengths, supervised, block_size) == torch.nonzero(valid_T).squeeze(1).tolist()


@given(rows(), st.integers(0, 2**32))
def test_sampled_anchors_are_distinct_sorted_and_valid(row: tuple[list[int], list[bool], int, int], seed: int) -> None:
    lengths, supervised, block_size, num_slots = row
    valid = slow_valid(lengths, supervised, block_size)
    valid_T = valid_anchors(document_ids(lengths, len(supervised)), torch.tensor(supervised), block_size)

    anchors = sample_anchors(valid_T, num_slots, seeded(seed))
    used = anchors.position_A[anchors.used_A].tolist()

    assert num_slots == anchors.position_A.numel() == anchors.used_A.numel()
    assert min(num_slots, len(valid)) == len(used)
    assert sorted(set(used)) == used
    assert set(used) <= set(valid)
    # Used slots come first, unused ones point at a position that can be read.
    assert [True] * len(used) + [False] * (num_slots - len(used)) == anchors.used_A.tolist()
    assert [0] * (num_slots - len(used)) == anchors.position_A[~anchors.used_A].tolist()


def test_padding_is_no_document_though_all_of_it_is_alike() -> None:
    valid_T = valid_anchors(document_ids([4], 32), torch.ones(32, dtype=torch.bool), 3)

    assert [0, 1] == positions(valid_T)


def test_a_row_shorter_than_a_block_has_no_anchor() -> None:
    valid_T = valid_anchors(document_ids([5], 5), torch.ones(5, dtype=torch.bool), 8)

    assert [] == positions(valid_T)
    assert not sample_anchors(valid_T, 3, seeded()).used_A.any()


def test_the_generator_alone_decides_which_are_drawn() -> None:
    valid_T = torch.ones(500, dtype=torch.bool)
    torch.manual_seed(1)
    first = sample_anchors(valid_T, 20, seeded(7)).position_A
    torch.manual_seed(2)

    again = sample_anchors(valid_T, 20, seeded(7)).position_A
    other = sample_anchors(valid_T, 20, seeded(8)).position_A

    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_every_valid_position_is_drawn_in_the_long_run() -> None:
    valid_T = torch.ones(10, dtype=torch.bool)
    generator = seeded()

    drawn = {anchor for _ in range(100) for anchor in sample_anchors(valid_T, 2, generator).position_A.tolist()}

    assert set(range(10)) == drawn


def positions(valid_T: Tensor) -> list[int]:
    found: list[int] = torch.nonzero(valid_T).squeeze(1).tolist()
    return found
