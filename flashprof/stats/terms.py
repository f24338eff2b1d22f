"""
What may matter in a search, and how likely it is to, before anything is measured. Pure.

Every term changes the log of tok/s a little (the spike); a few change it a lot (the slab). A hypothesis says which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SLAB_SD = 0.12
"""Sd of the log tok/s effect of what matters: regressions that people search for cost 5 % to 25 %."""
SMALL = 0.05
"""Below it an effect hardly matters. Without, a toggle worth 3 % stays between spike and slab for ever, and 8 toggles
seldom reach 95 %."""
NOTHING_PRIOR = 0.2
"""Who searches has seen a drop, and one time in five it was noise."""
MAIN_PRIOR = 0.15
"""One or two of eight. Half of it misses one of two culprits twice as often at 5 % noise, double blames bystanders."""
MAIN_SPIKE_SD = 0.015
"""A toggle that nobody blames is worth up to 3 % either way."""
PAIR_PRIOR = 0.004
"""28 pairs of 8 toggles: one search in nine has one that matters."""
PAIR_SPIKE_SD = 0.003
"""28 of them are 1.6 % in the bad cell, where all of them meet."""
TOGGLES_ACTIVE = 4
NUM_CULPRIT_COMMITS = 0.1
"""One range in twenty that has a culprit has two. At 0.3 a search for one at 5 % noise takes 24 windows, not 14."""
COMMIT_SPIKE_SD = 0.001
"""Of a commit that is no culprit: 1.1 % over 128 commits, since cost creeps."""
COMMITS_ACTIVE = 2
MAX_COMMIT_PRIOR = 0.5
"""Of a single commit, whatever its weight: the paths that it touches are a hint, no proof."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Columns of the design, and the prior of each."""

    names: tuple[tuple[str, ...], ...]
    """Members of each term; a pair has two."""
    priors: Floats
    """(num_terms,) probability that the term matters, each for itself."""
    spike_sd: Floats
    """(num_terms,) sd of the log tok/s effect where it does not matter."""
    slab_sd: float
    """The same where it does."""
    max_active: int
    """Most terms of a hypothesis."""
    small: float = 0.0
    """Log tok/s effect too small to matter: a slab's density goes as N(0, slab²) × (1 − exp(−effect² / 2 small²))."""
    nothing_prior: float | None = None
    """Probability that no term matters; None: that of terms which matter each for itself."""

    def __post_init__(self) -> None:
        """A prior of 0 or 1 could never be corrected, and a spike as wide as the slab tells nothing apart."""
        assert self.priors.shape == self.spike_sd.shape == (len(self.names),)
        assert np.all((self.priors > 0) & (self.priors < 1))
        assert np.all((self.spike_sd >= 0) & (self.spike_sd < self.slab_sd))

    @property
    def log_odds(self) -> Floats:
        """(num_terms,) what making a term matter adds to the log prior of a hypothesis."""
        odds: Floats = np.log(self.priors) - np.log1p(-self.priors)
        return odds

    @property
    def log_nothing(self) -> tuple[float, float]:
        """Log prior of the hypothesis that nothing matters, and what those of all others are built on."""
        independent = float(np.log1p(-self.priors).sum())
        if self.nothing_prior is None:
            return independent, independent
        # The others share what is left, in the proportions that they had.
        return math.log(self.nothing_prior), independent + math.log1p(-self.nothing_prior) - math.log(
            -math.expm1(independent)
        )

    @property
    def extra_sd(self) -> Floats:
        """(num_terms,) sd which, on top of the spike, makes a slab."""
        extra: Floats = np.sqrt(self.slab_sd**2 - self.spike_sd**2)
        return extra


def toggle_terms(names: Sequence[str]) -> Terms:
    """Each toggle, then each pair of them in the order of `itertools.combinations`."""
    pairs = list(combinations(names, 2))
    sizes = (len(names), len(pairs))
    return Terms(
        names=(*((name,) for name in names), *pairs),
        priors=np.repeat([MAIN_PRIOR, PAIR_PRIOR], sizes),
        spike_sd=np.repeat([MAIN_SPIKE_SD, PAIR_SPIKE_SD], sizes),
        slab_sd=SLAB_SD,
        max_active=min(TOGGLES_ACTIVE, sum(sizes)),
        small=SMALL,
        nothing_prior=NOTHING_PRIOR,
    )


def commit_terms(ids: Sequence[str], weights: Floats | None = None) -> Terms:
    """
    Make each commit a term.

    Args:
        ids: Full commit ids.
        weights: How likely each is the culprit, relative to the others, > 0; None: all alike.
    """
    shares = np.ones(len(ids)) if weights is None else np.asarray(weights, dtype=float)
    assert shares.shape == (len(ids),)
    assert np.all(shares > 0), "a weight of 0 would rule a commit out for ever"
    return Terms(
        names=tuple((commit,) for commit in ids),
        priors=np.minimum(NUM_CULPRIT_COMMITS * shares / math.fsum(shares), MAX_COMMIT_PRIOR),
        spike_sd=np.full(len(ids), COMMIT_SPIKE_SD),
        slab_sd=SLAB_SD,
        max_active=min(COMMITS_ACTIVE, len(ids)),
        small=SMALL,
        nothing_prior=NOTHING_PRIOR,
    )
