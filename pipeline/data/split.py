"""Which samples are trained on, which are held out for evaluation, and which have no room for a draft block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A data set's samples, as indices in rising order."""

    train_N: NDArray[np.int64]
    held_out_N: NDArray[np.int64]
    """Never trained on, by any run with this share: membership is a hash of the index, not of the run's seed."""
    num_skipped: int
    """Samples without a valid anchor: none of their tokens can start a block that has a label to learn."""


def split_samples(
    lengths_N: NDArray[np.integer], first_supervised_N: NDArray[np.integer], *, block_size: int, held_out_share: float
) -> Split:
    """
    Split a data set.

    Args:
        lengths_N: Tokens.
        first_supervised_N: Smallest supervised position from 1 on, as in the column `first_supervised`.
        block_size: Tokens of a draft block, the anchor among them.
        held_out_share: From 0 to below 1.

    Raises:
        UsageError: The share is not one, or nothing is left to train on.
    """
    if not 0 <= held_out_share < 1:
        raise UsageError(
            "the held-out share is a part of the samples", offered=f"{held_out_share:g}", allowed="0 to below 1"
        )
    # An anchor a is valid if a + 1 is supervised and its block's last token, a + block_size - 1, is in the sample
    # (`pipeline.model.anchors`); the earliest candidate is the one that has most room.
    usable_N = np.flatnonzero(first_supervised_N <= lengths_N - block_size + 1)
    is_held_out_N = _uniform(usable_N) < held_out_share
    split = Split(
        train_N=usable_N[~is_held_out_N],
        held_out_N=usable_N[is_held_out_N],
        num_skipped=len(lengths_N) - len(usable_N),
    )
    if not len(split.train_N):
        raise UsageError(
            "no sample is left to train on",
            offered=f"{len(lengths_N):,} samples: {split.num_skipped:,} without a valid anchor for blocks of "
            f"{block_size}, {len(split.held_out_N):,} held out",
            allowed=f"a sample with a supervised token and {block_size - 2} more after it, not the first",
            next_command="look at the loss mask, or choose a smaller block or held-out share",
        )
    return split


def _uniform(indices_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number in [0, 1) that only the index decides: splitmix64, the same on every machine and numpy version."""
    with np.errstate(over="ignore"):
        mixed_N = (indices_N.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed_N = (mixed_N ^ (mixed_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed_N = (mixed_N ^ (mixed_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed_N ^= mixed_N >> np.uint64(31)
    return (mixed_N >> np.uint64(11)) / 2.0**53
