"""
How surely some runs of a series are slower than those before: by ranks, as normal scores, for `trend_rules`.

Two shapes are known, another level and a line that leaves one. Their chances are a t-test's p of normal scores: with
few runs that is no probability, only something to which a limit can be set by trying.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Lengths = npt.NDArray[np.int64]

MAX_SD = 10.0
"""A run's own noise that is larger says no more."""


def shift_chances(values: Floats, own: Floats, indices: Sequence[int], beside: Sequence[int]) -> tuple[Floats, Floats]:
    """
    For each split of *indices*, how likely chance alone makes the second part this much slower, and this much faster.

    Ranks, not numbers, are compared, as normal scores: one odd run in a hundred carries no level, and whatever the
    noise is like, flat series give as many false alarms.

    Args:
        values: Log tok/s of all runs.
        own: Their own noise.
        indices: Of the runs that are split.
        beside: Others, which say only how much runs of one level differ.
    """
    from scipy.special import stdtr

    chosen, num_beside = np.asarray([*beside, *indices], dtype=int), len(beside)
    all_weights, all_scores = weights_of(values[chosen], own[chosen]), _normal_scores(values[chosen])
    weights, scores = all_weights[num_beside:], all_scores[num_beside:]
    masses, sums = np.cumsum(weights), np.cumsum(weights * scores)
    first, second = masses[:-1], masses[-1] - masses[:-1]
    means = sums[:-1] / first, (sums[-1] - sums[:-1]) / second
    # Within both parts: all squares less those between them.
    within = float(np.sum(weights * scores**2)) - first * means[0] ** 2 - second * means[1] ** 2
    freedom = len(indices) - 2
    if num_beside > 1:
        within = within + squares_within(all_scores[:num_beside], all_weights[:num_beside])
        freedom += num_beside - 1
    # Rounding: numbers that are all the same leave a little less than nothing.
    error = np.sqrt(np.maximum(within, 1e-12 * masses[-1]) / freedom * (1 / first + 1 / second))
    ratio = (means[1] - means[0]) / error
    return stdtr(freedom, ratio), stdtr(freedom, -ratio)


def ramp_chances(values: Floats, own: Floats, indices: Sequence[int], lengths: Lengths) -> Floats:
    """
    For each length, how likely chance alone makes the last runs of *indices* lose as much one after another.

    Normal scores again, fitted by a level and then a line that leaves it: the later a run, the more it counts.
    Numbers, cut at 2.5 to 4 times the scatter, find 5 to 10 ramps in 100 more, but their false alarms depend on what
    the noise is like: 0.4 to 1.6 % of flat series, where ranks have 0.5 to 1.

    Args:
        values: Log tok/s of all runs.
        own: Their own noise.
        indices: Of the runs that are looked at.
        lengths: How many of them are on the line, from 1 to all but one.
    """
    from scipy.special import stdtr

    chosen = np.asarray(indices, dtype=int)
    weights, scores = weights_of(values[chosen], own[chosen]), _normal_scores(values[chosen])
    along, whole = _along(scores, weights, lengths)
    within = np.maximum(whole - along**2, 1e-12 * np.sum(weights))
    freedom = len(chosen) - 2
    chances: Floats = stdtr(freedom, along / np.sqrt(within / freedom))
    return chances


def squares_along(values: Floats, own: Floats, indices: Sequence[int], lengths: Lengths) -> Floats:
    """For each length, the squares that a line over so many of the last runs of *indices* takes away."""
    chosen = np.asarray(indices, dtype=int)
    along, _ = _along(values[chosen], weights_of(values[chosen], own[chosen]), lengths)
    squares: Floats = along**2
    return squares


def squares_between(values: Floats, own: Floats, indices: Sequence[int]) -> Floats:
    """For each split of *indices*, the squares between its parts."""
    chosen = np.asarray(indices, dtype=int)
    weights = weights_of(values[chosen], own[chosen])
    near = values[chosen] - np.median(values[chosen])
    masses, sums = np.cumsum(weights), np.cumsum(weights * near)
    first, second = masses[:-1], masses[-1] - masses[:-1]
    squares: Floats = (sums[:-1] / first - (sums[-1] - sums[:-1]) / second) ** 2 * first * second / masses[-1]
    return squares


def _normal_scores(values: Floats) -> Floats:
    """What a normal sample of this size would have in each rank (Blom); equal values share a mean rank."""
    from scipy.special import ndtri

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    scores: Floats = ndtri((ranks - 0.375) / (len(values) + 0.25))
    return scores


def _along(values: Floats, weights: Floats, lengths: Lengths) -> tuple[Floats, float]:
    """For each length, how far the last runs follow a line that leaves the level before; and all squares there are."""
    num = len(values)
    # A row for each length: zeros, then 1, 2, 3, … at the end.
    lines = np.maximum(np.arange(1, num + 1) - (num - lengths[:, None]), 0).astype(float)
    lines -= (lines @ weights / np.sum(weights))[:, None]
    near = values - np.average(values, weights=weights)
    along: Floats = lines @ (weights * near) / np.sqrt(lines**2 @ weights)
    return along, float(np.sum(weights * near**2))


def squares_within(values: Floats, weights: Floats) -> float:
    """Weighted squares about the weighted mean."""
    return float(np.sum(weights * (values - np.average(values, weights=weights)) ** 2))


def weights_of(values: Floats, own: Floats) -> Floats:
    """Inverse variances up to a factor; a run whose own noise is within the scatter weighs about as much as all."""
    scatter = _scatter(values)
    weights: Floats = scatter**2 / (scatter**2 + own**2)
    return weights


def _scatter(values: Floats) -> float:
    """Standard deviation of the noise, from neighbours: they differ by it alone, but for the few at a shift."""
    # 0.954 = √2 × 0.6745 for the normal distribution.
    return max(float(np.median(np.abs(np.diff(values)))) / 0.954, 1e-6) if len(values) > 1 else 1e-6


def own_noise(sds: Sequence[float]) -> Floats:
    """What each run says of its noise; one that cannot tell is as noisy as can be."""
    given = np.asarray(sds, dtype=float)
    return np.clip(np.where(np.isfinite(given), given, MAX_SD), 0.0, MAX_SD)
