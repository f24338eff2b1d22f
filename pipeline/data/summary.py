"""What a start-up log says about the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.data.batches import BatchPlan
from pipeline.data.buckets import packed_length
from pipeline.data.samples import SampleInfo
from pipeline.data.split import Split


def startup_lines(
    info: SampleInfo,
    lengths_N: NDArray[np.integer],
    split: Split,
    plans: Sequence[BatchPlan],
    bounds: Sequence[int],
) -> list[str]:
    """
    The data set, its split, an epoch's batches, and each length bucket's share of them, ready to print.

    Args:
        info: Of the data set that was opened.
        lengths_N: Tokens, of all samples.
        split: Of the same samples.
        plans: One epoch of `split.train_N`, not empty.
        bounds: The buckets' upper bounds, inclusive.
    """
    sizes = [len(plan.indices) for plan in plans]
    average = sum(sizes) / len(sizes)
    num_shapes = len({_shape(lengths_N, plan) for plan in plans})
    no_anchor = f"{split.num_skipped:,} skipped (no valid anchor)"
    return [
        f"{info.num_samples:,} samples loaded from {info.source} (Arrow-backed, lazy): {int(lengths_N.sum()):,} tokens",
        *(f"  left out when it was built: {num:,} that {reason}" for reason, num in info.dropped.items()),
        f"{len(split.train_N):,} to train on, {len(split.held_out_N):,} held out, {no_anchor}",
        f"{len(plans):,} batches per epoch; samples a batch: min {min(sizes)}, max {max(sizes)}, avg {average:.1f}",
        f"{num_shapes} batch shapes; {100 * padding_share(lengths_N, plans):.1f} % padding",
        *_bucket_lines(plans, bounds),
    ]


def padding_share(lengths_N: NDArray[np.integer], plans: Sequence[BatchPlan]) -> float:
    """The part of the batches' positions that holds no token, empty rows included."""
    num_tokens = sum(int(lengths_N[list(plan.indices)].sum()) for plan in plans)
    return 1 - num_tokens / sum(_num_positions(lengths_N, plan) for plan in plans)


def _shape(lengths_N: NDArray[np.integer], plan: BatchPlan) -> tuple[int, int]:
    return (1, _num_positions(lengths_N, plan)) if plan.is_packed else (plan.num_rows, plan.padded_length)


def _num_positions(lengths_N: NDArray[np.integer], plan: BatchPlan) -> int:
    if not plan.is_packed:
        return plan.num_rows * plan.padded_length
    return packed_length(int(lengths_N[list(plan.indices)].sum()))


def _bucket_lines(plans: Sequence[BatchPlan], bounds: Sequence[int]) -> list[str]:
    num_batches = Counter(plan.bucket for plan in plans)
    starts = (0, *(bound + 1 for bound in bounds))
    ranges = [f"{start:,}–{bound:,}" for start, bound in zip(starts, bounds, strict=False)]
    counts = [f"{num_batches[bucket]:,}" for bucket in range(len(bounds))]
    range_width, count_width = max(map(len, ranges)), max(map(len, counts))
    return [
        f"  bucket {bucket}: {ranges[bucket]:>{range_width}} tokens  {counts[bucket]:>{count_width}} batches"
        f"  {100 * num_batches[bucket] / len(plans):5.1f} %"
        for bucket in range(len(bounds))
    ]
