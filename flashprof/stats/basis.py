"""
What a search's readings are made of, in coordinates that make any hypothesis about them a small problem. Pure.

All sources of noise, and the spikes of all terms, become diagonal at once, for every scale of the noise. What is then
left of the readings are a gram and a score of the terms, with the level integrated out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flashprof.stats.terms import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]

LEVEL_SD = 3.0
"""Prior of the level μ about the readings' mean: e³ either way says nothing."""
NUM_SCALES = 7
SCALES_REACH = 2.5
"""The grid of scales ends at this many `scale_sd`; 7 points are then a factor of 1.5 apart, from 0.29 to 3.5."""


@dataclass(frozen=True, kw_only=True)
class NoisePrior:
    """Standard deviations of log tok/s by source, from calibration or guessed."""

    window_sd: float = 0.03
    launch_sd: float = 0.01
    drift_sd: float = 0.02
    drift_s: float = 300.0
    """Drift forgets itself within this time."""
    scale_sd: float = 0.5
    """Of the log of one factor on all three sds: 0.5 is a factor of 1.6 either way."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Readings that count."""

    rows: Floats
    """(num_readings, num_terms) of 0 and 1: which terms are in the reading's cell."""
    values: Floats
    """(num_readings,) log tok/s."""
    launches: Indices
    """(num_readings,) number of the launch, ≥ 0."""
    at_s: Floats
    """(num_readings,) middle of the window."""


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Coordinates in which noise is the unit matrix and the spikes are diagonal, with all that is linear in them."""

    whiten: Floats
    """(n, n) from readings to coordinates."""
    scales: Floats
    """(num_scales,) factor on the sds of the noise."""
    weights: Floats
    """(num_scales, n) precision of each coordinate."""
    rows: Floats
    """(n, num_terms)."""
    values: Floats
    """(n,) about `centre`."""
    ones: Floats
    """(n,)."""
    centre: float
    log_volume: float
    """Log determinant of the noise at scale 1."""
    extra_sd: Floats
    """(num_terms + 1,) of the slabs; the last is a term that is not there and pads short hypotheses."""

    @cached_property
    def level_precision(self) -> Floats:
        """(num_scales,) of μ."""
        precision: Floats = self.weights @ self.ones**2 + LEVEL_SD**-2
        return precision

    @cached_property
    def level(self) -> Floats:
        """(num_scales,) estimate of μ without slabs, about `centre`."""
        level: Floats = self.weights @ (self.ones * self.values) / self.level_precision
        return level

    @cached_property
    def leverage(self) -> Floats:
        """(num_scales, num_terms) how far each term is told by the level alone."""
        leverage: Floats = (self.weights * self.ones) @ self.rows / self.level_precision[:, None]
        return leverage

    @cached_property
    def gram(self) -> Floats:
        """(num_scales, num_terms, num_terms) information on the terms, μ integrated out."""
        lever = self.leverage[:, :, None] * self.leverage[:, None, :] * self.level_precision[:, None, None]
        gram: Floats = (self.rows.T * self.weights[:, None, :]) @ self.rows - lever
        return gram

    @cached_property
    def score(self) -> Floats:
        """(num_scales, num_terms) what the values say for each term."""
        score: Floats = (self.weights * (self.values - self.level[:, None] * self.ones)) @ self.rows
        return score

    @cached_property
    def slab_gram(self) -> Floats:
        """The gram in slab sds, with a column of zeros for the pad: (num_scales, num_terms + 1, num_terms + 1)."""
        padded = np.pad(self.gram, ((0, 0), (0, 1), (0, 1)))
        gram: Floats = padded * self.extra_sd[:, None] * self.extra_sd
        return gram

    @cached_property
    def slab_score(self) -> Floats:
        """The score in slab sds: (num_scales, num_terms + 1)."""
        score: Floats = np.pad(self.score, ((0, 0), (0, 1))) * self.extra_sd
        return score

    @cached_property
    def log_likelihood(self) -> Floats:
        """(num_scales,) of the hypothesis that nothing matters, up to a constant."""
        squares = self.weights @ self.values**2 - self.level**2 * self.level_precision
        volume = self.log_volume - np.log(self.weights).sum(axis=1) + np.log(self.level_precision)
        likelihood: Floats = -0.5 * (squares + volume)
        return likelihood

    def slabs(self, members: Indices) -> tuple[Floats, Floats]:
        """
        What the readings say of the slabs of hypotheses, in slab sds.

        Args:
            members: (num_hypotheses, size) indices of terms, the pad included.

        Returns:
            Means (num_scales, num_hypotheses, size) and covariances (num_scales, num_hypotheses, size, size).
        """
        precision: Floats = self.slab_gram[:, members[:, :, None], members[:, None, :]] + np.eye(members.shape[1])
        covariance: Floats = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        means: Floats = (covariance @ self.slab_score[:, members][..., None])[..., 0]
        return means, covariance


def basis_of(terms: Terms, evidence: Evidence, noise: NoisePrior, factors: Floats) -> Basis:
    """
    Diagonalise noise and spikes together.

    Args:
        terms: Spikes and slabs.
        evidence: Readings.
        noise: Its sources at scale 1.
        factors: (num_readings,) how much larger the variance of each window's own noise is.
    """
    # scipy.linalg takes 0.1 s to load, and most commands infer nothing.
    from scipy.linalg import solve_triangular

    centre = float(evidence.values.mean()) if evidence.values.size else 0.0
    covariance = shared_noise(noise, (evidence.launches,) * 2, (evidence.at_s,) * 2)
    covariance += np.diag(noise.window_sd**2 * factors)
    lower = np.linalg.cholesky(covariance)
    unlower = solve_triangular(lower, np.eye(len(lower)), lower=True)
    variances, rotation = _diagonal((unlower @ evidence.rows) * terms.spike_sd)
    whiten = rotation.T @ unlower
    scales = np.exp(noise.scale_sd * np.linspace(-SCALES_REACH, SCALES_REACH, NUM_SCALES))
    return Basis(
        whiten=whiten,
        scales=scales,
        weights=1 / (scales[:, None] ** 2 + np.maximum(variances, 0.0)),
        rows=whiten @ evidence.rows,
        values=whiten @ (evidence.values - centre),
        ones=whiten.sum(axis=1),
        centre=centre,
        log_volume=2 * float(np.log(np.diag(lower)).sum()),
        extra_sd=np.append(terms.extra_sd, 0.0),
    )


def _diagonal(spikes: Floats) -> tuple[Floats, Floats]:
    """
    Variances (n,) and axes (n, n) of `spikes @ spikes.T`.

    There are as many variances as terms, the others are 0: after 400 windows with three toggles the eigenvectors of
    the whole matrix take 12 ms on one thread, and this 1.5.
    """
    num, num_terms = spikes.shape
    if num <= num_terms:
        found = np.linalg.eigh(spikes @ spikes.T)
        return found.eigenvalues, found.eigenvectors
    axes, triangle = np.linalg.qr(spikes, mode="complete")
    square = triangle[:num_terms]
    found = np.linalg.eigh(square @ square.T)
    axes[:, :num_terms] = axes[:, :num_terms] @ found.eigenvectors
    return np.concatenate([found.eigenvalues, np.zeros(num - num_terms)]), axes


def shared_noise(noise: NoisePrior, launches: tuple[Indices, Indices], at_s: tuple[Floats, Floats]) -> Floats:
    """Covariance of launch and drift at scale 1 between two sets of readings: (num_left, num_right)."""
    same = launches[0][:, None] == launches[1][None, :]
    apart_s = np.abs(at_s[0][:, None] - at_s[1][None, :])
    covariance: Floats = noise.launch_sd**2 * same + noise.drift_sd**2 * np.exp(-apart_s / noise.drift_s)
    return covariance
