"""
Which hypotheses the readings of a search speak for. Pure and deterministic.

A reading is μ + what its cell's terms are worth + its launch + drift + window noise, all Gaussian, so a hypothesis's
likelihood has a closed form. One scale of all noise together is unknown and summed over a grid. With the terms'
spikes counted as noise, a term that matters is an additional slab: adding it to a hypothesis is an update of rank one
(Woodbury), and one basis in which noise and spikes are both diagonal serves every scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from flashprof.stats.basis import Basis, Evidence, NoisePrior, basis_of
from flashprof.stats.terms import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]

__all__ = ["Evidence", "NoisePrior", "Posterior", "infer"]

MAX_FULL_TERMS = 150
"""Up to this many terms all pairs are looked at."""
NUM_SINGLES = 40
"""Else those that one of so many best single terms is in."""
NUM_BEAM = 32
"""Hypotheses that are extended at each level above."""
NUM_WEIGHED = 256
"""Hypotheses of each size of which it is looked at whether an effect is too small to matter."""
NUM_KEPT = 400
MIN_WEIGHT = 1e-9
ODD_SQUARE = 6.0
"""Noise of over √6 = 2.4 sds is odd; in a Gaussian 1.4 % is. A pause of 3 s is 9 sds in a window of 10 s."""
NUM_PASSES = 3
NUM_JUDGING = 32
"""Hypotheses that judge which readings are odd."""


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """The likeliest hypotheses, and what is needed to predict readings under them."""

    hypotheses: tuple[tuple[int, ...], ...]
    """Indices of the terms that matter, sorted; the likeliest first."""
    probabilities: Floats
    """Of each among all that were enumerated: they sum to 1 at most."""
    num_readings: int
    terms: Terms
    evidence: Evidence
    noise: NoisePrior
    basis: Basis
    members: Indices
    """(num_hypotheses, size) the hypotheses, padded with num_terms."""
    scale_weights: Floats
    """(num_hypotheses, num_scales) probability of each scale of noise under each hypothesis."""

    def effect(self, place: int) -> tuple[Floats, Floats]:
        """Mean and sd of the log tok/s effect of each term of the hypothesis at *place*: both (size,)."""
        units = np.eye(len(self.terms.names))[list(self.hypotheses[place])]
        pairs = np.array([self.contrast(place, unit) for unit in units]).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def contrast(self, place: int, difference_row: Floats) -> tuple[float, float]:
        """
        How much two cells differ under a hypothesis: mean and sd of log tok/s.

        Args:
            place: Of the hypothesis, 0 is the likeliest.
            difference_row: (num_terms,) row of the one less row of the other.
        """
        active = list(self.hypotheses[place])
        variances = self.terms.spike_sd**2
        variances[active] = self.terms.slab_sd**2
        prior = variances * difference_row
        means, covariance = (part[:, 0] for part in self.basis.slabs(np.array([active], dtype=int)))
        seen = self.basis.gram @ prior
        slabs = seen[:, active] * self.terms.extra_sd[active]
        mean = self.basis.score @ prior - (slabs * means).sum(axis=1)
        left = prior @ difference_row - seen @ prior + np.einsum("si,sij,sj->s", slabs, covariance, slabs)
        weights = self.scale_weights[place]
        middle = float(weights @ mean)
        # Rounding may leave a difference of equal cells a little below zero.
        return middle, math.sqrt(max(float(weights @ (left + (mean - middle) ** 2)), 0.0))


@dataclass(frozen=True, kw_only=True)
class _Hypotheses:
    """Of one size."""

    members: Indices
    """(num_hypotheses, size), sorted within each."""
    log_weights: Floats
    """(num_hypotheses, num_scales) log of prior × likelihood."""

    @cached_property
    def totals(self) -> Floats:
        """(num_hypotheses,) over all scales."""
        return _log_sum(self.log_weights)

    def best(self, num: int) -> _Hypotheses:
        """The likeliest; among equals the first."""
        chosen = np.argsort(-self.totals, kind="stable")[:num]
        return _Hypotheses(members=self.members[chosen], log_weights=self.log_weights[chosen])


def infer(terms: Terms, evidence: Evidence, noise: NoisePrior) -> Posterior:
    """
    Weigh all hypotheses up to `terms.max_active` terms, large ones by a beam search.

    Windows have longer tails than a Gaussian. A reading that the likely hypotheses agree to be odd gets a larger noise
    in a second and third pass, as the EM algorithm does for a Student t.

    On one thread: the subject runs on all cores meanwhile, and threads that wait for each other took 3 s on two busy
    cores where one takes 0.1 s (250 windows).

    Args:
        terms: Their priors.
        evidence: Readings; none at all give the prior.
        noise: What is known of the noise.

    Returns:
        At most 400 hypotheses; their probabilities are among all that were looked at.

    Calibration: tests/flashprof/stats/test_posterior.py, benchmarks/bisect_simulation.py.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        return _infer(terms, evidence, noise)


def _infer(terms: Terms, evidence: Evidence, noise: NoisePrior) -> Posterior:
    num = len(evidence.values)
    assert evidence.rows.shape == (num, len(terms.names))
    factors = np.ones(num)
    posterior = _infer_once(terms, evidence, noise, factors)
    for _ in range(NUM_PASSES - 1):
        factors = _tail_factors(posterior, factors)
        if np.all(factors == 1):
            break
        posterior = _infer_once(terms, evidence, noise, factors)
    return posterior


def _infer_once(terms: Terms, evidence: Evidence, noise: NoisePrior, factors: Floats) -> Posterior:
    basis = basis_of(terms, evidence, noise, factors)
    levels = _enumerate(terms, basis, _log_scale_prior(noise, basis.scales))
    total = float(_log_sum(np.concatenate([level.totals for level in levels])))
    size = len(levels) - 1
    pad = len(terms.names)
    # All single commits of a long range are equally likely at first: none may be left out.
    num_kept = max(NUM_KEPT, pad + 1)
    tops = [level.best(num_kept) for level in levels]
    members = np.concatenate(
        [np.pad(top.members, ((0, 0), (0, size - top.members.shape[1])), constant_values=pad) for top in tops]
    )
    everything = _Hypotheses(members=members, log_weights=np.concatenate([top.log_weights for top in tops]))
    kept = everything.best(num_kept)
    probabilities = np.exp(kept.totals - total)
    num = max(int(np.count_nonzero(probabilities >= MIN_WEIGHT)), 1)
    return Posterior(
        hypotheses=tuple(tuple(term for term in row if term < pad) for row in kept.members[:num].tolist()),
        probabilities=probabilities[:num],
        num_readings=len(evidence.values),
        terms=terms,
        evidence=evidence,
        noise=noise,
        basis=basis,
        members=kept.members[:num],
        scale_weights=np.exp(kept.log_weights - kept.totals[:, None])[:num],
    )


def _log_scale_prior(noise: NoisePrior, scales: Floats) -> Floats:
    """(num_scales,) normalised on the grid."""
    if noise.scale_sd == 0:
        return np.full(len(scales), -math.log(len(scales)))
    density = -0.5 * (np.log(scales) / noise.scale_sd) ** 2
    prior: Floats = density - _log_sum(density)
    return prior


def _enumerate(terms: Terms, basis: Basis, log_scale_prior: Floats) -> list[_Hypotheses]:
    """One entry a size, from 0."""
    num_terms = len(terms.names)
    nothing, others = (log_prior + log_scale_prior + basis.log_likelihood for log_prior in terms.log_nothing)
    none = np.zeros((1, 0), dtype=int)
    levels = [_Hypotheses(members=none, log_weights=others[None, :])]
    for size in range(1, terms.max_active + 1):
        is_full = size == 2 and num_terms <= MAX_FULL_TERMS
        parents = levels[-1] if is_full else levels[-1].best(NUM_SINGLES if size == 2 else NUM_BEAM)
        levels.append(_extended(terms, basis, parents))
    empty = _Hypotheses(members=none, log_weights=nothing[None, :])
    return [empty, *(_without_small(terms, basis, level) for level in levels[1:])]


def _extended(terms: Terms, basis: Basis, parents: _Hypotheses) -> _Hypotheses:
    """Every hypothesis that has one term more than one of *parents*."""
    num_terms = len(terms.names)
    num_parents, size = parents.members.shape
    means, covariance = basis.slabs(parents.members)
    # (num_scales, num_parents, size, num_terms): how each further term goes with the slabs that are there.
    cross = basis.slab_gram[:, parents.members, :num_terms]
    own = 1 + np.diagonal(basis.slab_gram, axis1=1, axis2=2)[:, None, :num_terms]
    # What the slabs there leave of the further term: its precision, and what the values say for it.
    precision = own - (cross * (covariance @ cross)).sum(axis=2)
    score = basis.slab_score[:, None, :num_terms] - (cross * means[..., None]).sum(axis=2)
    gain = 0.5 * (score**2 / precision - np.log(precision)) + terms.log_odds
    log_weights = parents.log_weights[:, None, :] + np.moveaxis(gain, 0, -1)
    parent, term = np.divmod(np.arange(num_parents * num_terms), num_terms)
    is_new = (parents.members[parent] != term[:, None]).all(axis=1)
    parent, term = parent[is_new], term[is_new]
    members = np.sort(np.column_stack([parents.members[parent], term]), axis=1)
    # A set is reached from each of its subsets.
    keys = members @ (num_terms ** np.arange(size + 1))
    _, first = np.unique(keys, return_index=True)
    return _Hypotheses(members=members[first], log_weights=log_weights[parent[first], term[first]])


def _without_small(terms: Terms, basis: Basis, level: _Hypotheses) -> _Hypotheses:
    """
    The likeliest ones, weighed for how far their effects are from 0, then the others as they are.

    A slab's density is a Gaussian less a narrow one, so its likelihood is that of the Gaussian times the ratio of what
    is left of it after and before the readings. Each term's is taken for itself.
    """
    if not terms.small:
        return level
    order = np.argsort(-level.totals, kind="stable")
    members, log_weights = level.members[order], level.log_weights[order]
    means, covariance = basis.slabs(members[:NUM_WEIGHED])
    small = terms.small / terms.extra_sd[members[:NUM_WEIGHED]]
    left = _share_left(means, np.diagonal(covariance, axis1=2, axis2=3), small)
    ratio = np.log(np.maximum(left, MIN_WEIGHT)) - np.log(_share_left(np.zeros(()), np.ones(()), small))
    log_weights[:NUM_WEIGHED] += ratio.sum(axis=2).T
    return _Hypotheses(members=members, log_weights=log_weights)


def _share_left(mean: Floats, variance: Floats, small: Floats) -> Floats:
    """How much of a Gaussian is left by the narrow one; all in slab sds."""
    wide = small**2 + variance
    share: Floats = 1 - np.exp(-0.5 * mean**2 / wide) * small / np.sqrt(wide)
    return share


def _tail_factors(posterior: Posterior, factors: Floats) -> Floats:
    """
    How much noisier than its peers each reading is taken to be: (num_readings,), ≥ 1.

    The expected square of a reading's own noise, over the variance that a peer would have, is averaged over scales and
    hypotheses. Where that is odd it becomes the reading's variance, over the square at which oddness begins, so that
    far readings lose their pull as in a Student t, and all others keep their Gaussian weight.
    """
    basis, members = posterior.basis, posterior.members[:NUM_JUDGING]
    means, covariance = basis.slabs(members)
    unit = posterior.noise.window_sd**2 * basis.scales[:, None] ** 2
    variance = unit * factors
    spread = basis.weights[:, :, None] * (basis.rows - basis.ones[:, None] * basis.leverage[:, None, :])
    rows = np.pad(basis.whiten.T @ spread, ((0, 0), (0, 0), (0, 1))) * basis.extra_sd
    residuals = (basis.weights * (basis.values - basis.level[:, None] * basis.ones)) @ basis.whiten
    lever = (basis.weights * basis.ones) @ basis.whiten
    precision = basis.weights @ basis.whiten**2 - lever**2 / basis.level_precision[:, None]
    # From here on by hypothesis too, before the readings.
    slabs = np.moveaxis(rows[:, :, members], 1, 2)
    residuals_h = residuals[:, None, :] - (slabs @ means[..., None])[..., 0]
    precision_h = precision[:, None, :] - ((slabs @ covariance) * slabs).sum(axis=-1)
    own = variance[:, None, :]
    squares = ((own * residuals_h) ** 2 + own - own**2 * precision_h) / unit[:, None, :]
    weights = posterior.probabilities[:NUM_JUDGING, None] * posterior.scale_weights[:NUM_JUDGING]
    square = np.einsum("hs,shn->n", weights / weights.sum(), squares)
    factors_now: Floats = np.maximum(square / ODD_SQUARE, 1.0)
    return factors_now


def _log_sum(values: Floats) -> Floats:
    """Log of the sum of exponentials along the last axis."""
    top = values.max(axis=-1, keepdims=True)
    total: Floats = np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0]
    return total
