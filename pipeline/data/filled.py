"""
Batches that are filled with samples of any length, for roles that take packed rows (`--batches filled`).

Batches of like lengths are cut by their padded length, so those of a bucket hold 70 to 100 % of the token budget, and
a step costs a drafter nearly the same whatever it holds: it trains a fixed number of blocks. Filled up, batches hold 98
to 100 % of it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.data.batches import BatchPlan, BatchRule
from pipeline.data.buckets import LENGTH_MULTIPLE, assign_buckets


def fill_epoch(
    lengths_N: NDArray[np.integer], indices_N: NDArray[np.integer], rule: BatchRule, epoch: int
) -> list[BatchPlan]:
    """
    Deal each of *indices_N* into exactly one batch, each as full as it goes; in an order drawn from seed and epoch.

    Which lengths share a batch is the same in every epoch, so that all epochs have as many batches; which samples of
    these lengths do is drawn anew. Lengths count in multiples of 32 for that.

    Args:
        lengths_N: Tokens of every sample of the data set.
        indices_N: The samples that are dealt.
        rule: Its budget holds the samples' lengths, each rounded up to a multiple of 32. A batch counts to the bucket
            of its longest sample.
        epoch: From 0.

    Raises:
        UsageError: The bounds do not rise, or a sample is longer than the last.
    """
    buckets_N = assign_buckets(lengths_N[indices_N], rule.bounds)
    sizes_N = -(-lengths_N[indices_N] // LENGTH_MULTIPLE)
    rng = np.random.default_rng((rule.seed, epoch))
    drawn_N = rng.permutation(len(indices_N))
    # The longest first; among equals as drawn.
    drawn_N = drawn_N[np.argsort(-sizes_N[drawn_N], kind="stable")]
    batches = fill_bins(sizes_N[drawn_N].tolist(), rule.token_budget // LENGTH_MULTIPLE, rule.max_samples)
    return [_plan(drawn_N[batches[i]], indices_N, lengths_N, buckets_N) for i in rng.permutation(len(batches))]


def fill_bins(sizes: Sequence[int], capacity: int, max_items: int) -> list[list[int]]:
    """
    Best fit decreasing: each item goes where it leaves least room, or opens a bin.

    At most 11/9 of the fewest possible bins (D. S. Johnson, 1973); of samples much shorter than a batch nearly none are
    wasted.

    Args:
        sizes: Of the items, falling, none above *capacity*.
        capacity: Of a bin.
        max_items: In a bin.

    Returns:
        The places of each bin's items.
    """
    bins: list[list[int]] = []
    # Room that is left and the bin's number, of those that take more items; sorted.
    rooms: list[tuple[int, int]] = []
    for place, size in enumerate(sizes):
        found = bisect_left(rooms, (size, 0))
        room, number = rooms.pop(found) if found < len(rooms) else (capacity, len(bins))
        if number == len(bins):
            bins.append([])
        bins[number].append(place)
        if room > size and len(bins[number]) < max_items:
            insort(rooms, (room - size, number))
    return bins


def _plan(
    places: NDArray[np.integer],
    indices_N: NDArray[np.integer],
    lengths_N: NDArray[np.integer],
    buckets_N: NDArray[np.integer],
) -> BatchPlan:
    indices = tuple(indices_N[places].tolist())
    longest = int(lengths_N[list(indices)].max())
    # Rows of the samples as they are read; the roles see one packed row.
    padded_length = -(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    return BatchPlan(int(buckets_N[places].max()), indices, len(indices), padded_length, is_packed=True)
