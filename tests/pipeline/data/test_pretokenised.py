"""A sample comes through as it was, or its fault is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from pipeline.data.arrow import Row
from pipeline.data.pretokenised import to_row

VOCAB_SIZE = 50


def read(input_ids: Any, loss_mask: Any, max_length: int = 16) -> Row:
    fields = {"input_ids": input_ids, "loss_mask": loss_mask}
    return to_row(fields, "f.jsonl:4", vocab_size=VOCAB_SIZE, max_length=max_length)


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.lists(st.tuples(st.integers(0, VOCAB_SIZE - 1), st.booleans()), min_size=1, max_size=30),
    kind=st.sampled_from([bool, int, float]),
)
def test_a_sample_is_kept_up_to_max_length(tokens: list[tuple[int, bool]], kind: type) -> None:
    row = read([token for token, _ in tokens], [kind(bit) for _, bit in tokens])

    assert [token for token, _ in tokens][:16] == row.input_ids_S.tolist()
    assert [bit for _, bit in tokens][:16] == row.loss_mask_S.tolist()
    assert row.where == "f.jsonl:4"


@pytest.mark.parametrize(
    ("input_ids", "loss_mask", "what", "offered"),
    [
        ([1, 2], [1], "input_ids and loss_mask are not of one length", "2 ids, 1 mask values"),
        ([], [], "the sample is empty", "0 ids, 0 mask values"),
        ([1, VOCAB_SIZE], [1, 1], "a token id is not in the vocabulary", "50"),
        ([1, -1], [1, 1], "a token id is not in the vocabulary", "-1"),
        ([1, 2], [1, 2], "the loss mask is not of 0 and 1", "2"),
        ([1, 2.5], [1, 1], "input_ids is not a list of whole numbers", "[1, 2.5]"),
        ([1, 2], [1, None], "loss_mask is not a list of whole numbers", "[1, None]"),
        (["1"], [1], "input_ids is not a list of whole numbers", "['1']"),
        ("1", [1], "input_ids is not a list of whole numbers", "1"),
        ([2**70], [1], "input_ids is not a list of whole numbers", str([2**70])),
        ([[1]], [1], "input_ids is not a list of whole numbers", "[[1]]"),
        (None, None, "input_ids is not a list of whole numbers", "None"),
    ],
)
def test_a_wrong_sample_says_what_is_wrong_and_where(input_ids: Any, loss_mask: Any, what: str, offered: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(input_ids, loss_mask)

    assert (what, offered) == (caught.value.what, caught.value.offered)
    assert str(caught.value.where).startswith("f.jsonl:4")


def test_what_lies_beyond_the_cut_is_checked_too() -> None:
    with pytest.raises(FormatError, match="position 3"):
        read([1, 2, 3, 99], [1] * 4, max_length=2)
