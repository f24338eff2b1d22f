"""Priors are of the right shape, add up, and follow weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flashprof.stats.terms import MAX_COMMIT_PRIOR, commit_terms, toggle_terms


def test_toggles_come_before_their_pairs() -> None:
    terms = toggle_terms(["a", "b", "c"])

    assert (("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")) == terms.names
    assert np.all(terms.priors[:3] > terms.priors[3:])
    assert np.all(terms.spike_sd[:3] > terms.spike_sd[3:])


def test_one_toggle_has_no_pair_and_one_term_at_most() -> None:
    terms = toggle_terms(["a"])

    assert (("a",),) == terms.names
    assert terms.max_active == 1


def test_commits_share_one_expectation_by_their_weights() -> None:
    alike = commit_terms(["a", "b", "c"])
    weighted = commit_terms(["a", "b", "c"], np.array([1.0, 1.0, 8.0]))

    assert alike.priors.sum() == pytest.approx(weighted.priors.sum())
    assert weighted.priors[2] == pytest.approx(8 * weighted.priors[0])


def test_no_weight_makes_a_commit_certain() -> None:
    terms = commit_terms(["a"], np.array([1e9]))

    assert np.all(terms.priors <= MAX_COMMIT_PRIOR)


def test_a_weight_of_zero_is_refused() -> None:
    with pytest.raises(AssertionError, match="for ever"):
        commit_terms(["a", "b"], np.array([0.0, 1.0]))


@pytest.mark.parametrize("nothing", [None, 0.01, 0.6])
def test_priors_of_all_sets_add_up_to_one(nothing: float | None) -> None:
    terms = replace(toggle_terms(["a", "b"]), nothing_prior=nothing)
    empty, base = terms.log_nothing
    odds = np.exp(terms.log_odds)
    others = sum(math.prod(odds[[i for i in range(3) if mask >> i & 1]]) for mask in range(1, 8))

    assert math.exp(empty) + math.exp(base) * others == pytest.approx(1.0)
    assert nothing is None or math.exp(empty) == pytest.approx(nothing)


def test_a_spike_as_wide_as_the_slab_is_refused() -> None:
    terms = toggle_terms(["a", "b"])

    with pytest.raises(AssertionError):
        replace(terms, spike_sd=np.full(3, terms.slab_sd))


def test_spike_and_extra_make_a_slab() -> None:
    terms = toggle_terms(["a", "b"])

    np.testing.assert_allclose(terms.extra_sd**2 + terms.spike_sd**2, terms.slab_sd**2)
