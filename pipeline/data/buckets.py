"""Length buckets and the fixed list of batch shapes: little padding, and few shapes to compile, tune and warm up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import UsageError

LENGTH_MULTIPLE = 32
"""Padded lengths are multiples of it."""
ROW_MULTIPLE = 128
"""Packed rows are padded to this, so that shapes are few and blocks of the sparse mask are whole."""
LENGTHS_A_BUCKET = 2
"""
Padded lengths of a bucket. Padding of the tiny preset's text with 1, 2, 3, 4: 14.4, 8.0, 5.9, 4.4 % in 6, 12, 18, 24
shapes. Free lengths (a batch as long as its longest sample) had 10.3 % in 38 shapes.
"""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """A shape that batch tensors may have."""

    bucket: int
    num_rows: int
    """As many as the token budget allows at this length."""
    padded_length: int
    """Tokens a row."""


def batch_shapes(bounds: Sequence[int], token_budget: int, max_samples: int) -> tuple[BatchShape, ...]:
    """
    Every shape that a batch can have, shortest rows first.

    Args:
        bounds: The buckets' upper bounds, inclusive and rising, in tokens.
        token_budget: Bound on rows times padded length.
        max_samples: Bound on rows.

    Raises:
        UsageError: The bounds do not rise, or the budget does not hold one row of the longest.
    """
    _check_bounds(bounds)
    if max_samples < 1:
        raise UsageError("a batch needs a sample", offered=f"max_samples={max_samples}", allowed="1 or more")
    shapes: list[BatchShape] = []
    longest = 0
    for bucket, (lowest, bound) in enumerate(pairwise((0, *bounds))):
        for part in range(1, LENGTHS_A_BUCKET + 1):
            length = _round_up(lowest + (bound - lowest) * part / LENGTHS_A_BUCKET)
            # A bucket narrower than two multiples of 32 has one shape.
            if min(length, bound) > longest:
                longest = min(length, bound)
                shapes.append(BatchShape(bucket, min(max_samples, token_budget // length), length))
    _check_budget(shapes[-1].padded_length, token_budget)
    return tuple(shapes)


def assign_shapes(
    lengths_N: NDArray[np.integer], shapes: Sequence[BatchShape], bounds: Sequence[int]
) -> NDArray[np.int64]:
    """
    The index, for each sample, of the shortest shape of its bucket that holds it.

    Args:
        lengths_N: Tokens.
        shapes: Of `batch_shapes`.
        bounds: That it was given.

    Raises:
        UsageError: A sample is longer than the last bound. Cutting samples is `open_samples`'s business: cut here,
            tokens would go missing that the log has counted.
    """
    _check_lengths(lengths_N, bounds)
    longest = [min(shape.padded_length, bounds[shape.bucket]) for shape in shapes]
    return np.searchsorted(longest, lengths_N, side="left")


def packed_length(num_tokens: int) -> int:
    """Length of a packed row that holds so many."""
    return -(-num_tokens // ROW_MULTIPLE) * ROW_MULTIPLE


def assign_buckets(lengths_N: NDArray[np.integer], bounds: Sequence[int]) -> NDArray[np.int64]:
    """
    The bucket of each sample.

    Args:
        lengths_N: Tokens.
        bounds: The buckets' upper bounds, inclusive.

    Raises:
        UsageError: The bounds do not rise, or a sample is longer than the last.
    """
    _check_bounds(bounds)
    _check_lengths(lengths_N, bounds)
    return np.searchsorted(bounds, lengths_N, side="left")


def _check_lengths(lengths_N: NDArray[np.integer], bounds: Sequence[int]) -> None:
    num_over = int((lengths_N > bounds[-1]).sum())
    if num_over:
        raise UsageError(
            f"{num_over:,} samples are longer than the last length bucket",
            offered=f"{int(lengths_N.max()):,} tokens",
            allowed=f"at most {bounds[-1]:,}",
            next_command=f"set max_length to {bounds[-1]} or less, or raise the last bound",
        )


def _check_bounds(bounds: Sequence[int]) -> None:
    if not bounds or bounds[0] < 1 or any(a >= b for a, b in pairwise(bounds)):
        raise UsageError(
            "bucket bounds must rise", offered=", ".join(map(str, bounds)) or "none", allowed="such as 128, 256, 512"
        )


def _check_budget(longest: int, token_budget: int) -> None:
    if longest > token_budget:
        raise UsageError(
            "the token budget does not hold one sample of the last length bucket",
            offered=f"token_budget={token_budget}, last bucket padded to {longest}",
            allowed=f"token_budget of {longest} or more",
            next_command=f"set token_budget to {longest}, or the last bucket bound and max_length to at most "
            f"{token_budget // LENGTH_MULTIPLE * LENGTH_MULTIPLE}",
        )


def _round_up(length: float) -> int:
    return int(np.ceil(length / LENGTH_MULTIPLE)) * LENGTH_MULTIPLE
