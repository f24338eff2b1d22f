"""The posterior is exact where a formula says so, does not mind order or outliers, and is right as often as it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from flashprof.stats.basis import LEVEL_SD, shared_noise
from flashprof.stats.posterior import Evidence, NoisePrior, Posterior, infer
from flashprof.stats.terms import Terms, commit_terms, toggle_terms

NOISE = NoisePrior()
CALM = NoisePrior(window_sd=0.02, launch_sd=0.0, drift_sd=0.0, scale_sd=0.3)


def few_terms(**changes: object) -> Terms:
    terms = Terms(
        names=(("a",), ("b",), ("c",), ("d",)),
        priors=np.array([0.1, 0.2, 0.3, 0.05]),
        spike_sd=np.array([0.01, 0.02, 0.005, 0.0]),
        slab_sd=0.12,
        max_active=4,
    )
    return replace(terms, **changes)


def few_readings(seed: int, num: int = 7) -> Evidence:
    rng = np.random.default_rng(seed)
    return Evidence(
        rows=rng.integers(0, 2, (num, 4)).astype(float),
        values=9 + rng.normal(0, 0.05, num),
        launches=rng.integers(0, 3, num),
        at_s=np.cumsum(rng.uniform(5, 60, num)),
    )


def toggle_rows(subsets: np.ndarray) -> np.ndarray:
    """Mains, then pairs."""
    num = subsets.shape[1]
    return np.column_stack([subsets, *(subsets[:, i] * subsets[:, j] for i, j in combinations(range(num), 2))]).astype(
        float
    )


def independent(rows: np.ndarray, values: np.ndarray) -> Evidence:
    num = len(values)
    return Evidence(rows=rows, values=values, launches=np.zeros(num, dtype=int), at_s=10.0 * np.arange(num))


def joint(terms: Terms, active: tuple[int, ...], evidence: Evidence, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of the values, and variances of all effects, written down term by term."""
    variances = terms.spike_sd**2
    variances[list(active)] = terms.slab_sd**2
    noise = NOISE.window_sd**2 * np.eye(len(evidence.values))
    noise += shared_noise(NOISE, (evidence.launches,) * 2, (evidence.at_s,) * 2)
    return evidence.rows @ np.diag(variances) @ evidence.rows.T + scale**2 * noise + LEVEL_SD**2, variances


def by_hand(terms: Terms, evidence: Evidence, posterior: Posterior) -> dict[tuple[int, ...], np.ndarray]:
    """Weights of each hypothesis on the posterior's grid of scales."""
    scales = posterior.basis.scales
    prior = np.exp(-0.5 * (np.log(scales) / NOISE.scale_sd) ** 2)
    centred = evidence.values - evidence.values.mean()
    weights = {}
    for size in range(terms.max_active + 1):
        for active in combinations(range(len(terms.names)), size):
            on = np.isin(np.arange(len(terms.names)), active)
            likelihoods = [
                multivariate_normal.pdf(centred, np.zeros(len(centred)), joint(terms, active, evidence, scale)[0])
                for scale in scales
            ]
            weights[active] = np.prod(np.where(on, terms.priors, 1 - terms.priors)) * prior * likelihoods
    total = sum(part.sum() for part in weights.values())
    return {active: part / total for active, part in weights.items()}


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_are_those_of_the_formula(seed: int) -> None:
    terms, evidence = few_terms(), few_readings(seed)

    posterior = infer(terms, evidence, NOISE)

    expected = by_hand(terms, evidence, posterior)
    assert set(expected) == set(posterior.hypotheses)
    for active, probability in zip(posterior.hypotheses, posterior.probabilities, strict=True):
        assert expected[active].sum() == pytest.approx(probability, rel=1e-6)
    assert list(posterior.probabilities) == sorted(posterior.probabilities, reverse=True)


def test_contrast_is_the_regression_of_the_formula() -> None:
    terms, evidence = few_terms(), few_readings(1)
    row = np.array([1.0, 1.0, 0.0, -1.0])

    posterior = infer(terms, evidence, NOISE)

    weights = by_hand(terms, evidence, posterior)
    centred = evidence.values - evidence.values.mean()
    for place, active in enumerate(posterior.hypotheses[:6]):
        means, variances = [], []
        for scale in posterior.basis.scales:
            covariance, effects = joint(terms, active, evidence, scale)
            gain = np.linalg.solve(covariance, evidence.rows @ (effects * row))
            means.append(gain @ centred)
            variances.append(row**2 @ effects - gain @ evidence.rows @ (effects * row))
        shares = weights[active] / weights[active].sum()
        mean = shares @ np.array(means)
        sd = np.sqrt(shares @ (np.array(variances) + (np.array(means) - mean) ** 2))
        assert posterior.contrast(place, row) == pytest.approx((mean, sd), rel=1e-6)


def test_effect_is_the_contrast_of_one_term() -> None:
    posterior = infer(few_terms(), few_readings(2), NOISE)
    place = posterior.hypotheses.index((1, 2))

    means, sds = posterior.effect(place)

    assert (means[1], sds[1]) == posterior.contrast(place, np.array([0.0, 0.0, 1.0, 0.0]))
    assert means.shape == sds.shape == (2,)
    assert posterior.effect(posterior.hypotheses.index(()))[0].shape == (0,)


def test_small_effects_are_weighed_as_by_sampling() -> None:
    terms = few_terms(spike_sd=np.zeros(4), small=0.05, max_active=1)
    evidence = few_readings(3)
    plain = infer(replace(terms, small=0.0), evidence, replace(NOISE, scale_sd=0.0))

    posterior = infer(terms, evidence, replace(NOISE, scale_sd=0.0))

    rng = np.random.default_rng(0)
    prior_left = np.mean(1 - np.exp(-0.5 * (rng.normal(0, terms.slab_sd, 200_000) / terms.small) ** 2))
    expected = {}
    for place, active in enumerate(plain.hypotheses):
        mean, sd = (part[0] for part in plain.effect(place)) if active else (0.0, 0.0)
        left = np.mean(1 - np.exp(-0.5 * (rng.normal(mean, sd, 200_000) / terms.small) ** 2)) / prior_left
        expected[active] = plain.probabilities[place] * (left if active else 1.0)
    total = sum(expected.values())
    for active, probability in zip(posterior.hypotheses, posterior.probabilities, strict=True):
        assert expected[active] / total == pytest.approx(probability, rel=0.03)


def test_without_readings_it_is_the_prior() -> None:
    terms = commit_terms([str(number) for number in range(500)])
    nothing = Evidence(rows=np.zeros((0, 500)), values=np.zeros(0), launches=np.zeros(0, dtype=int), at_s=np.zeros(0))

    posterior = infer(terms, nothing, NOISE)

    singles = [p for h, p in zip(posterior.hypotheses, posterior.probabilities, strict=True) if len(h) == 1]
    assert () == posterior.hypotheses[0]
    # Of the pairs only those of the 40 best singles are looked at.
    assert terms.nothing_prior == pytest.approx(posterior.probabilities[0], rel=0.05)
    assert len(singles) == 500
    assert max(singles) == pytest.approx(min(singles))


def test_order_of_readings_does_not_matter() -> None:
    terms, evidence = toggle_terms(["a", "b", "c", "d"]), few_readings(4, num=12)
    evidence = replace(evidence, rows=toggle_rows(evidence.rows))
    order = np.random.default_rng(0).permutation(12)
    shuffled = Evidence(
        rows=evidence.rows[order],
        values=evidence.values[order],
        launches=evidence.launches[order],
        at_s=evidence.at_s[order],
    )

    first, second = infer(terms, evidence, NOISE), infer(terms, shuffled, NOISE)

    assert first.hypotheses[0] == second.hypotheses[0]
    np.testing.assert_allclose(first.probabilities[:20], second.probabilities[:20], rtol=1e-6)


def test_the_level_and_the_clock_do_not_matter() -> None:
    terms, evidence = few_terms(small=0.05), few_readings(5)
    moved = replace(evidence, values=evidence.values + 4.0, at_s=evidence.at_s + 1.8e9)

    first, second = infer(terms, evidence, NOISE), infer(terms, moved, NOISE)

    assert first.hypotheses == second.hypotheses
    np.testing.assert_allclose(first.probabilities, second.probabilities, rtol=1e-5)


def test_a_pair_is_told_from_two_mains() -> None:
    names = ["a", "b", "c", "d"]
    subsets = np.array([[mask >> bit & 1 for bit in range(4)] for mask in range(16)] * 2)
    rows = toggle_rows(subsets)
    rng = np.random.default_rng(6)
    noise = rng.normal(0, 0.01, 32)

    pair = infer(toggle_terms(names), independent(rows, 9 - 0.18 * rows[:, 4] + noise), NOISE)
    mains = infer(toggle_terms(names), independent(rows, 9 - 0.09 * (rows[:, 0] + rows[:, 1]) + noise), NOISE)

    assert (4,) == pair.hypotheses[0]
    assert (0, 1) == mains.hypotheses[0]
    assert pair.probabilities[0] > 0.9
    assert mains.probabilities[0] > 0.9


@pytest.mark.parametrize("pause", [0.27, 0.5])
def test_one_odd_window_does_not_blame_a_toggle(pause: float) -> None:
    terms = toggle_terms(list("abcdef"))
    named, probabilities = 0, []
    for seed in range(12):
        rows = toggle_rows(np.random.default_rng(seed).integers(0, 2, (20, 6)))
        values = 9 - 0.12 * rows[:, 2] + np.random.default_rng(100 + seed).normal(0, 0.02, 20)
        values[seed] -= pause
        posterior = infer(terms, independent(rows, values), NOISE)
        named += posterior.hypotheses[0] == (2,)
        probabilities.append(posterior.probabilities[0])

    # As Gaussian noise the pause makes everything uncertain: 10 and 4 of 12 are named, at 0.7 and 0.15.
    assert named >= 11
    assert np.median(probabilities) > 0.85


def test_a_shared_launch_is_no_effect() -> None:
    launches = np.repeat([0, 1, 2, 3], 6)
    rows = np.isin(launches, [2, 3]).astype(float)[:, None] * np.array([1.0, 0.0, 0.0, 0.0])
    rows[::2, 1] = 1.0
    luck = np.array([0.01, -0.01, -0.09, -0.11])[launches]
    evidence = Evidence(
        rows=rows,
        values=9 + luck + np.random.default_rng(9).normal(0, 0.003, 24),
        launches=launches,
        at_s=np.arange(24.0),
    )
    shaky = NoisePrior(window_sd=0.01, launch_sd=0.06, drift_sd=0.0, scale_sd=0.0)

    blind = infer(few_terms(), replace(evidence, launches=np.arange(24)), replace(shaky, launch_sd=0.0))
    aware = infer(few_terms(), evidence, shaky)

    assert sum(p for h, p in zip(blind.hypotheses, blind.probabilities, strict=True) if 0 in h) > 0.9
    assert sum(p for h, p in zip(aware.hypotheses, aware.probabilities, strict=True) if 0 in h) < 0.5


def test_two_commits_far_apart_are_both_found() -> None:
    terms = commit_terms([str(number) for number in range(200)])
    cells = np.repeat([0, 40, 60, 61, 100, 140, 150, 151, 200], 4)
    rows = (np.arange(200) < cells[:, None]).astype(float)
    values = 9 - 0.1 * rows[:, 60] - 0.15 * rows[:, 150] + np.random.default_rng(10).normal(0, 0.01, len(cells))

    posterior = infer(terms, independent(rows, values), NOISE)

    assert (60, 150) == posterior.hypotheses[0]


def test_stated_probabilities_are_right_as_often_as_they_say() -> None:
    rng = np.random.default_rng(11)
    terms = replace(toggle_terms(["a", "b", "c", "d"]), max_active=3)
    stated, right, sure, sure_right = 0.0, 0, [], 0
    num_trials = 400
    for _ in range(num_trials):
        truth, effects = drawn(terms, rng)
        rows = toggle_rows(rng.integers(0, 2, (16, 4)))
        scale = np.exp(rng.normal(0, CALM.scale_sd))
        values = 9 + rows @ effects + rng.normal(0, scale * CALM.window_sd, 16)
        posterior = infer(terms, independent(rows, values), CALM)
        stated += posterior.probabilities[0]
        right += posterior.hypotheses[0] == truth
        if posterior.probabilities[0] > 0.9:
            sure.append(posterior.probabilities[0])
            sure_right += posterior.hypotheses[0] == truth

    print(f"all: {stated / num_trials:.3f} stated, {right / num_trials:.3f} right")
    print(f"{len(sure)} over 0.9: {np.mean(sure):.3f} stated, {sure_right / len(sure):.3f} right")
    assert stated / num_trials == pytest.approx(right / num_trials, abs=0.05)
    assert np.mean(sure) == pytest.approx(sure_right / len(sure), abs=0.03)


def drawn(terms: Terms, rng: np.random.Generator) -> tuple[tuple[int, ...], np.ndarray]:
    """A hypothesis and its effects, from the prior."""
    nothing, _ = terms.log_nothing
    is_nothing = rng.random() < np.exp(nothing)
    while True:
        active = rng.random(len(terms.names)) < terms.priors
        if is_nothing or 0 < active.sum() <= terms.max_active:
            break
    effects = rng.normal(0, terms.spike_sd)
    for term in np.flatnonzero(active & (not is_nothing)):
        while True:
            effects[term] = rng.normal(0, terms.slab_sd)
            if rng.random() > np.exp(-0.5 * (effects[term] / terms.small) ** 2):
                break
    return () if is_nothing else tuple(np.flatnonzero(active).tolist()), effects
