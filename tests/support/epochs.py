"""Epochs of given lengths, by whichever way of making batches."""

from __future__ import annotations

import numpy as np

from pipeline.data.batches import BatchPlan, BatchRule, MakeEpoch

BOUNDS = (100, 256, 500)


def batch_rule(*, budget: int = 1024, most: int = 8, seed: int = 0) -> BatchRule:
    """Over the buckets above."""
    return BatchRule(bounds=BOUNDS, token_budget=budget, max_samples=most, seed=seed)


def make_plan(
    make_epoch: MakeEpoch,
    lengths: list[int],
    chosen: list[int] | None = None,
    *,
    rule: BatchRule | None = None,
    epoch: int = 0,
) -> list[BatchPlan]:
    """An epoch of the *chosen* samples; None: all."""
    indices_N = np.array(range(len(lengths)) if chosen is None else chosen, dtype=np.int64)
    return make_epoch(np.array(lengths, dtype=np.int64), indices_N, rule or batch_rule(), epoch)
