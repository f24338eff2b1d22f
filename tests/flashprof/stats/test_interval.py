"""Intervals: they cover as often as they say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from flashprof.contracts.results import Interval
from flashprof.stats.interval import sampling_cost, throughput_interval

NUM_TRIALS = 4_000
# Three standard errors of a coverage of 95 % over 4,000 trials are 1 point: 93 to 97 % is no accident.
COVERAGE = pytest.approx(0.95, abs=0.02)


def covered(intervals: Iterator[Interval | None], truth: float) -> float:
    inside = [interval is not None and interval.low <= truth <= interval.high for interval in intervals]
    return sum(inside) / len(inside)


def test_the_throughput_interval_of_five_windows_covers_95_percent() -> None:
    rng = np.random.default_rng(11)
    trials = np.exp(rng.normal(np.log(4_000), 0.05, (NUM_TRIALS, 5)))

    assert covered((throughput_interval(trial) for trial in trials.tolist()), 4_000) == COVERAGE


@pytest.mark.parametrize(("measure_noise", "profile_noise"), [(0.05, 0.05), (0.02, 0.08), (0.08, 0.02)])
def test_the_sampling_cost_of_five_against_four_windows_covers_95_percent(
    measure_noise: float, profile_noise: float
) -> None:
    rng = np.random.default_rng(12)
    measure = np.exp(rng.normal(np.log(4_000), measure_noise, (NUM_TRIALS, 5))).tolist()
    profile = np.exp(rng.normal(np.log(4_000 * 0.97), profile_noise, (NUM_TRIALS, 4))).tolist()
    costs = (sampling_cost(*pair) for pair in zip(measure, profile, strict=True))

    assert covered(costs, 0.03) == COVERAGE


def test_the_estimate_is_the_geometric_mean() -> None:
    interval = throughput_interval([1_000.0, 4_000.0])

    assert interval is not None
    assert interval.estimate == pytest.approx(2_000.0)
    assert interval.num_samples == 2


def test_a_higher_level_gives_a_wider_interval() -> None:
    narrow, wide = (throughput_interval([1.0, 2.0, 3.0], level=level) for level in (0.8, 0.99))

    assert narrow is not None
    assert wide is not None
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_slower_profile_is_a_positive_cost() -> None:
    cost = sampling_cost([100.0, 101.0, 99.0], [90.0, 91.0, 89.0])

    assert cost is not None
    assert 0 < cost.low < cost.estimate < cost.high
    assert cost.estimate == pytest.approx(0.1, abs=0.001)


def test_windows_without_spread_give_a_point() -> None:
    cost = sampling_cost([100.0, 100.0], [90.0, 90.0])

    assert cost is not None
    assert (cost.low, cost.high) == (pytest.approx(0.1), pytest.approx(0.1))


@pytest.mark.parametrize("values", [[], [100.0], [100.0, 0.0], [100.0, float("nan")], [100.0, float("inf")]])
def test_what_cannot_be_estimated_has_no_interval(values: list[float]) -> None:
    assert throughput_interval(values) is None
    assert sampling_cost([1.0, 2.0], values) is None
