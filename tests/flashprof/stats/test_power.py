"""Comparisons that are rehearsed stop, err and find as the judge that they are given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calm_noise import block, z_judge
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.calibration import PowerPoint
from flashprof.contracts.comparison import DecisionRule, Verdict
from flashprof.stats.power import (
    SPARSE_LOOKS,
    clear_share,
    find_power,
    judge_errors,
    rehearse,
    share_of,
    smallest_effect,
)

RULE = DecisionRule(tolerance=0.01)


def point(effect: float, minutes: tuple[float, ...], num_trials: int = 10) -> PowerPoint:
    return PowerPoint(method="hot", effect=effect, num_trials=num_trials, minutes=minutes, coverage=0.95)


def test_a_comparison_stops_when_it_is_clear() -> None:
    blocks = [block(-0.05, number=number) for number in range(1, 20)]

    trial = rehearse(blocks, z_judge, RULE)

    assert trial.comparison.verdict is Verdict.REGRESSION
    assert trial.comparison.num_blocks == 2
    assert trial.spent_s == pytest.approx(10.0)


def test_a_comparison_that_is_never_clear_sees_all_its_blocks() -> None:
    blocks = [block(-0.01, number=number) for number in range(1, 10)]

    trial = rehearse(blocks, z_judge, RULE, look_ratio=SPARSE_LOOKS)

    assert not trial.is_clear
    assert trial.comparison.num_blocks == 9


def test_a_gain_is_a_false_alarm_too() -> None:
    summary = judge_errors("gains", [[block(0.05)] * 5, [block(0.0)] * 40], z_judge, RULE, note="")

    assert summary is not None
    assert (1, 2) == (summary.false_alarms.count, summary.false_alarms.total)
    assert 1 == summary.coverage.count
    assert 40 == summary.num_blocks


def test_no_comparison_gives_no_rate() -> None:
    assert judge_errors("none", [[block(0.0)]], z_judge, RULE, note="") is None


def test_larger_slow_downs_are_found_sooner() -> None:
    rng = np.random.default_rng(1)
    trials = [[block(float(value)) for value in rng.normal(0, 0.01, 60)] for _ in range(40)]

    small, large = (find_power(trials, effect, z_judge, RULE, start_s=60.0) for effect in (0.02, 0.1))

    assert large.minutes_for(0.9) == pytest.approx(1 + 2 * 5 / 60)
    assert small.minutes_for(0.9) is not None
    assert small.minutes_for(0.9) > large.minutes_for(0.9)  # type: ignore[operator]
    assert large.power(1.0) == 0.0
    assert large.power(1.2) == 1.0
    assert small.coverage > 0.85


def test_equal_arms_are_cleared_with_enough_blocks_only() -> None:
    rng = np.random.default_rng(2)
    trials = [[block(float(value)) for value in rng.normal(0, 0.01, 40)] for _ in range(20)]

    assert 1.0 == clear_share(trials, z_judge, DecisionRule(tolerance=0.03))
    assert clear_share(trials, z_judge, DecisionRule(tolerance=0.001)) < 0.2


def test_minutes_for_a_power_count_those_that_never_got_there() -> None:
    mixed = point(0.05, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0))

    assert 9.0 == mixed.minutes_for(0.9)
    assert 5.0 == mixed.minutes_for(0.5)
    assert mixed.minutes_for(0.95) is None


def test_the_smallest_effect_lies_between_planted_ones() -> None:
    points = [point(0.1, (1.0,) * 10), point(0.02, (4.0,) * 10), point(0.01, (9.0,) * 5)]

    assert smallest_effect(points, 0.5) is None
    assert smallest_effect(points, 1.0) == pytest.approx(0.1)
    assert smallest_effect(points, 2.0) == pytest.approx(math.sqrt(0.1 * 0.02))
    assert smallest_effect(points, 100.0) == pytest.approx(0.02)


def test_chance_among_trials_cannot_make_a_large_effect_harder_than_a_small_one() -> None:
    points = [point(0.1, (3.0,) * 10), point(0.05, (2.0,) * 10)]

    assert smallest_effect(points, 2.5) is None
    assert smallest_effect(points, 3.0) == pytest.approx(0.05)


@given(st.integers(0, 400), st.integers(1, 400))
def test_shares_lie_within_their_exact_intervals(count: int, total: int) -> None:
    share = share_of(min(count, total), total)

    assert 0 <= share.low <= share.share <= share.high <= 1


def test_the_exact_interval_is_the_published_one() -> None:
    none, some = share_of(0, 400), share_of(5, 100)

    # The rule of three, and a table of Clopper–Pearson limits.
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 400))
    assert (some.low, some.high) == pytest.approx((0.01643, 0.11284), abs=1e-5)
