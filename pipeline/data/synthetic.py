"""Lengths of samples without text: their batches fall into the buckets as in the run that FlashProf was made for."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import UsageError
from pipeline.data.buckets import BatchShape, batch_shapes
from pipeline.presets import DataPlan

BATCH_SHARES = (3.8, 7.4, 10.5, 15.0, 16.6, 46.6)
"""Percent of 59,812 batches in each length bucket, shortest first, as the team counted them."""
NUM_BATCHES = 640
"""More than a measurement of some minutes sees; of 26,624 tokens they are 85 MB on the disk."""
SHORTEST = 64
"""Tokens; room for a prompt and some blocks of 16."""
SYNTHETIC_SEED = 20261130
"""Not the run's: the data set is the same for all."""


def synthetic_lengths(data: DataPlan) -> NDArray[np.int64]:
    """
    Tokens of every sample, in no particular order.

    A bucket's batches are shared equally between its shapes, and lengths are uniform within a shape.

    Raises:
        UsageError: The plan has more buckets than there are shares, or cannot be batched.
    """
    if len(data.bucket_bounds) > len(BATCH_SHARES):
        raise UsageError(
            "synthetic samples are drawn for the story's length buckets",
            offered=f"{len(data.bucket_bounds)} buckets",
            allowed=f"at most {len(BATCH_SHARES)}",
            next_command="fewer bounds in --buckets",
        )
    shapes = batch_shapes(data.bucket_bounds, data.token_budget, data.max_samples)
    shares = _shares(shapes)
    rng = np.random.default_rng(SYNTHETIC_SEED)
    longest = [min(shape.padded_length, data.bucket_bounds[shape.bucket]) for shape in shapes]
    lengths = [
        rng.integers(min(max(shorter + 1, SHORTEST), high), high, endpoint=True, size=round(NUM_BATCHES * share) * rows)
        for (shorter, high), share, rows in zip(
            pairwise((0, *longest)), shares, (shape.num_rows for shape in shapes), strict=True
        )
    ]
    return rng.permutation(np.concatenate(lengths))


def _shares(shapes: tuple[BatchShape, ...]) -> list[float]:
    """Part of all batches that has each shape."""
    num_shapes = Counter(shape.bucket for shape in shapes)
    raw = [BATCH_SHARES[shape.bucket] / num_shapes[shape.bucket] for shape in shapes]
    return [share / sum(raw) for share in raw]
