"""What the next reading of each cell would tell of the hypotheses. Pure and deterministic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flashprof.stats.basis import shared_noise
from flashprof.stats.posterior import Posterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]

COVERED = 0.95
"""Share of the probability among which hypotheses are told apart; the rest is rarely worth a window."""
NUM_HYPOTHESES = 64
"""Where more are needed for that, so many stand for all."""
MIN_SCALE_WEIGHT = 0.01
"""Scales of noise that are less likely change no choice."""
NUM_POINTS = 61
REACH_SD = 4.0
"""The grid of values goes this far beyond the outermost hypotheses."""
MIN_STEPS_PER_SD = 0.7
"""A trapezoid sum over a Gaussian is exact to 1e-4 where its sd is this many steps."""


def information(posterior: Posterior, rows: Floats, launches: Indices, at_s: float) -> Floats:
    """
    Mutual information between the hypothesis and the next reading.

    It counts what a reading says by its difference to others: of the same launch, which share the launch's luck, and
    of the last minutes, which share the drift. So an end that was measured long ago becomes worth a window again.

    Args:
        posterior: What is known.
        rows: (num_cells, num_terms) of the cells that may be measured.
        launches: (num_cells,) launch in which each reading would lie; −1: a new one.
        at_s: When.

    Returns:
        (num_cells,) nats, ≥ 0.
    """
    places, weights = _told_apart(posterior)
    means, variances = predictions(posterior, places, rows, launches, at_s)
    low = (means - REACH_SD * np.sqrt(variances)).min(axis=1)
    high = (means + REACH_SD * np.sqrt(variances)).max(axis=1)
    steps = (high - low) / (NUM_POINTS - 1)
    # Hypotheses sharper than the grid are blurred to it: they are then as good as told apart anyway.
    sds = np.maximum(np.sqrt(variances), MIN_STEPS_PER_SD * steps[:, None])
    points = low[:, None] + steps[:, None] * np.arange(NUM_POINTS)
    densities = np.exp(-0.5 * ((points[:, None, :] - means[:, :, None]) / sds[:, :, None]) ** 2)
    mixture = np.einsum("ch,chp->cp", weights / (sds * math.sqrt(2 * math.pi)), densities)
    surprise = -mixture * np.log(np.maximum(mixture, np.finfo(float).tiny))
    entropy = surprise.sum(axis=1) * steps
    known = (0.5 + 0.5 * math.log(2 * math.pi) + np.log(sds)) @ weights
    gained: Floats = np.maximum(entropy - known, 0.0)
    return gained


def predictions(
    posterior: Posterior, places: Indices, rows: Floats, launches: Indices, at_s: float
) -> tuple[Floats, Floats]:
    """
    Mean and variance of the next reading of each cell, under the hypotheses at *places*.

    Returns:
        Both (num_cells, num_places), of log tok/s; noise and what is not known of the effects included.
    """
    basis, evidence, terms, noise = posterior.basis, posterior.evidence, posterior.terms, posterior.noise
    weights, used = _scales(posterior, places)
    scales, precision = basis.scales[used, None, None], basis.weights[used, None, :]
    shared = shared_noise(noise, (launches, evidence.launches), (np.full(len(rows), at_s), evidence.at_s))
    spikes = (rows * terms.spike_sd**2) @ basis.rows.T
    # What the readings so far say of the next, in the basis: (num_scales, num_cells, n).
    weighted = (spikes + scales**2 * (shared @ basis.whiten.T)) * precision
    unsaid = 1 - weighted @ basis.ones
    means = basis.centre + weighted @ basis.values + basis.level[used, None] * unsaid
    noise_variance = noise.window_sd**2 + noise.launch_sd**2 + noise.drift_sd**2
    variances = rows**2 @ terms.spike_sd**2 + scales[:, :, 0] ** 2 * noise_variance
    variances = variances - (weighted**2 / precision).sum(axis=2) + unsaid**2 / basis.level_precision[used, None]
    left = rows - weighted @ basis.rows - basis.leverage[used, None, :] * unsaid[:, :, None]
    # And what the slabs add: (num_scales, num_places, num_cells, size).
    members = posterior.members[places]
    slab_means, covariance = (part[used] for part in basis.slabs(members))
    padded = np.pad(left, ((0, 0), (0, 0), (0, 1))) * basis.extra_sd
    slabs = np.moveaxis(padded[:, :, members], 1, 2)
    means_h = means[:, None, :] + (slabs @ slab_means[..., None])[..., 0]
    variances_h = variances[:, None, :] + ((slabs @ covariance) * slabs).sum(axis=-1)
    mean = np.einsum("hs,shc->ch", weights, means_h)
    variance = np.einsum("hs,shc->ch", weights, variances_h + (means_h - mean.T) ** 2)
    return mean, variance


def _told_apart(posterior: Posterior) -> tuple[Indices, Floats]:
    """Places of the hypotheses that matter for the choice, and their weights, which sum to 1."""
    probabilities = posterior.probabilities
    sums = np.cumsum(probabilities)
    num = int(np.searchsorted(sums, COVERED * sums[-1])) + 1
    if num <= NUM_HYPOTHESES:
        return np.arange(num), probabilities[:num] / sums[num - 1]
    # A systematic sample in the order of the terms: of 500 commits that are equally likely it takes every fourth.
    order = np.lexsort(posterior.members.T[::-1])
    quantiles = (np.arange(NUM_HYPOTHESES) + 0.5) / NUM_HYPOTHESES * sums[-1]
    drawn = np.searchsorted(np.cumsum(probabilities[order]), quantiles)
    chosen, counts = np.unique(drawn, return_counts=True)
    return order[chosen], counts / NUM_HYPOTHESES


def _scales(posterior: Posterior, places: Indices) -> tuple[Floats, Indices]:
    """Weights (num_places, num_used) of the scales of noise that are likely enough, and which these are."""
    weights = posterior.scale_weights[places]
    overall = posterior.probabilities[places] @ weights
    used = np.flatnonzero(overall >= MIN_SCALE_WEIGHT * overall.sum())
    # The floor is for a hypothesis that has nothing left of its own.
    kept = np.maximum(weights[:, used], np.finfo(float).tiny)
    shares: Floats = kept / kept.sum(axis=1, keepdims=True)
    return shares, used
