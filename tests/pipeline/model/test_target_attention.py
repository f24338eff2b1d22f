"""Attention within each sample of a packed row: every way gives what one call a sample gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline.model.target_attention import (
    LENGTH_STEP,
    attend_one_by_one,
    attend_packed,
    attend_padded,
    attend_rounded,
)


def drawn(num_tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(num_tokens, heads, 8, generator=generator, dtype=torch.float64) for heads in (4, 2, 2)
    )
    return query, key, value


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 3 * LENGTH_STEP), min_size=1, max_size=4), st.integers(0, 9))
def test_a_window_that_reaches_into_the_next_sample_changes_nothing(lengths: list[int], seed: int) -> None:
    row = drawn(sum(lengths), seed)

    actual_TP = attend_rounded(lengths, row[0])(*row)

    torch.testing.assert_close(actual_TP, attend_one_by_one(lengths, row[0])(*row), atol=1e-12, rtol=1e-12)


def test_lengths_that_kernels_see_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    attention = torch.nn.functional.scaled_dot_product_attention

    def look(query: Tensor, *others: Tensor, **options: bool) -> Tensor:
        seen.add(query.shape[2])
        return attention(query, *others, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", look)
    for lengths in ([1, 200, 77], [130, 140, 150, 255], [256]):
        row = drawn(sum(lengths))
        attend_rounded(lengths, row[0])(*row)

    assert seen == {LENGTH_STEP, 2 * LENGTH_STEP}


def test_samples_of_one_length_attend_as_padded_rows_do() -> None:
    row = drawn(3 * 40)

    torch.testing.assert_close(attend_padded(3, 40)(*row), attend_packed([40] * 3, row[0])(*row))
