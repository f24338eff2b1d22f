"""Sequential inference: the e-value is what it is said to be, its sequence covers for ever, the two intervals agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flashprof.stats.sequential import (
    PRIOR_SD,
    End,
    Moments,
    anytime_factor,
    anytime_half_width,
    fewest,
    log_e_value,
    moments,
    stated_factors,
    t_quantile,
)

ALPHAS = st.floats(0.001, 0.2)
DIFFERENCES = st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=40)


@pytest.mark.parametrize(("num", "t"), [(2, 3.0), (4, 0.0), (4, 6.0), (9, 2.5), (30, 4.0)])
def test_the_e_value_is_the_likelihood_ratio_of_t_integrated_over_the_effect(num: int, t: float) -> None:
    """Independent of the closed form: noncentral t densities, weighed by the prior on the effect."""
    from scipy.stats import nct, norm
    from scipy.stats import t as student

    effects = np.linspace(-12 * PRIOR_SD, 12 * PRIOR_SD, 4_001)
    weights = norm.pdf(effects, scale=PRIOR_SD) * (effects[1] - effects[0])
    ratio = nct.pdf(t, num - 1, math.sqrt(num) * effects) @ weights / student.pdf(t, num - 1)
    data = Moments(num=num, mean=t / math.sqrt(num), sd=1.0)

    assert ratio == pytest.approx(math.exp(log_e_value(data)), rel=1e-4)


@pytest.mark.parametrize("num", [2, 3, 4])
def test_the_e_value_is_one_on_average_where_the_mean_is_the_null(num: int) -> None:
    rng = np.random.default_rng(21)
    draws = rng.normal(0.3, 2.0, (40_000, num)).tolist()
    mean = np.mean([math.exp(log_e_value(moments(draw), null=0.3)) for draw in draws])

    assert mean == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_sequence_misses_the_mean_at_any_time_at_most_as_often_as_alpha_says(alpha: float) -> None:
    num_runs, num_max = 20_000, 100
    rng = np.random.default_rng(22)
    draws = rng.standard_normal((num_runs, num_max))
    counts = np.arange(1, num_max + 1)
    means = draws.cumsum(axis=1) / counts
    sds = np.sqrt(np.maximum((draws**2).cumsum(axis=1) - counts * means**2, 1e-12) / np.maximum(counts - 1, 1))
    factors = np.array([anytime_factor(num, alpha=alpha) for num in counts])
    usable = np.isfinite(factors)
    missed = float((np.abs(means) > factors * sds).any(axis=1, where=usable).mean())
    print(f"alpha {alpha}: missed at some time {missed:.4f}")

    # Not idle either: looking for ever uses up at least a third of what is allowed.
    assert alpha / 3 <= missed <= alpha


@given(differences=DIFFERENCES, alpha=ALPHAS)
def test_the_ends_of_the_sequence_are_where_the_e_value_reaches_its_bound(
    differences: list[float], alpha: float
) -> None:
    data = moments(differences)
    half = anytime_half_width(data, alpha=alpha)
    assume(math.isfinite(half) and half > 1e-6)

    assert -math.log(alpha) == pytest.approx(log_e_value(data, null=data.mean + half), rel=1e-6)
    assert -math.log(alpha) == pytest.approx(log_e_value(data, null=data.mean - half), rel=1e-6)


@given(
    differences=DIFFERENCES,
    shift=st.floats(-1, 1),
    scale=st.floats(0.01, 100) | st.floats(-100, -0.01),
)
def test_units_and_level_of_the_differences_do_not_matter(differences: list[float], shift: float, scale: float) -> None:
    data = moments(differences)
    assume(data.sd > 1e-3)
    moved = moments([shift + scale * value for value in differences])

    assert log_e_value(data, null=0.1) == pytest.approx(log_e_value(moved, null=shift + scale * 0.1), abs=1e-6)


@pytest.mark.parametrize(("alpha", "least"), [(0.2, 2), (0.05, 3), (0.01, 4), (0.001, 5)])
def test_the_fewest_that_can_decide(alpha: float, least: int) -> None:
    assert least == fewest(alpha)
    assert math.isinf(anytime_factor(least - 1, alpha=alpha))
    assert math.isfinite(anytime_factor(least, alpha=alpha))


def test_more_differences_narrow_the_sequence() -> None:
    factors = [anytime_factor(num, alpha=0.01) for num in range(4, 3_000)]

    assert sorted(factors, reverse=True) == factors


@pytest.mark.parametrize("differences", [[], [0.1]])
def test_without_replication_there_is_no_evidence_and_no_end(differences: list[float]) -> None:
    data = moments(differences)

    assert log_e_value(data) == 0.0
    assert math.isinf(anytime_half_width(data, alpha=0.01))


@pytest.mark.parametrize("num", [2, 3, 5])
def test_without_spread_the_e_value_is_its_limit(num: int) -> None:
    log_k = math.log(1 + num * PRIOR_SD**2)
    nearly = Moments(num=num, mean=1.0, sd=1e-9)

    assert log_e_value(nearly) == pytest.approx(log_e_value(moments([1.0] * num)))
    assert (num - 1) / 2 * log_k == pytest.approx(log_e_value(moments([1.0] * num)))
    assert -log_k / 2 == pytest.approx(log_e_value(moments([0.0] * num)))


def test_three_equal_differences_decide_nothing_and_four_all() -> None:
    three, four = (anytime_half_width(moments([0.1] * num), alpha=0.01) for num in (3, 4))

    assert math.isinf(three)
    assert four == 0.0


def test_a_value_that_is_not_finite_is_our_fault() -> None:
    with pytest.raises(AssertionError, match="not finite"):
        moments([0.1, math.nan])


@given(num=st.integers(2, 500), alpha=ALPHAS, share=st.floats(0.1, 1), crossed=st.sampled_from([None, *End]))
def test_the_stated_interval_lies_within_the_deciding_one(
    num: int, alpha: float, share: float, crossed: End | None
) -> None:
    factors = stated_factors(num, level=share * (1 - alpha), alpha=alpha, crossed=crossed)

    assert all(0 < factor <= anytime_factor(num, alpha=alpha) for factor in factors)


def test_at_the_first_look_the_stated_interval_is_the_t_interval() -> None:
    plain = t_quantile(3, tail=0.025) / 2
    stated = stated_factors(4, level=0.95, alpha=0.01, crossed=End.HIGH)

    assert (pytest.approx(plain), pytest.approx(plain)) == stated


def test_after_many_looks_it_reaches_further_towards_the_threshold_that_decided() -> None:
    plain = stated_factors(20, level=0.95, alpha=0.01, crossed=None)
    low = stated_factors(20, level=0.95, alpha=0.01, crossed=End.LOW)
    high = stated_factors(20, level=0.95, alpha=0.01, crossed=End.HIGH)

    assert plain[0] == plain[1] == low[1] == high[0]
    # 17 looks: a tail of 2.5 % becomes one of 0.6 %.
    assert low[0] == high[1] == pytest.approx(t_quantile(19, tail=0.025 / math.sqrt(17)) / math.sqrt(20))


def test_a_level_above_the_deciding_one_is_refused() -> None:
    with pytest.raises(AssertionError, match="within the deciding one"):
        stated_factors(5, level=0.95, alpha=0.1, crossed=None)
