"""Verdicts from blocks: never at odds with themselves, and said in numbers. How often they are right: calibration."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from block_examples import ABBA, BAAB, a_block, some_blocks
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.comparison import DecisionRule, Method, Verdict
from flashprof.stats.compare import NOT_INTERLEAVED, compare_blocks, compare_existing
from flashprof.stats.sequential import anytime_factor

RULE = DecisionRule()
FLOOR = math.log1p(-RULE.tolerance)


@given(
    differences=st.lists(st.floats(-0.3, 0.3), max_size=30),
    alpha=st.floats(0.001, 0.2),
    tolerance=st.floats(0, 0.3),
    level=st.floats(0.5, 0.999),
)
def test_what_is_stated_never_contradicts_the_verdict(
    differences: list[float], alpha: float, tolerance: float, level: float
) -> None:
    rule = DecisionRule(alpha=alpha, tolerance=tolerance, level=level)
    comparison = compare_blocks(some_blocks(differences), rule, spent_s=10.0)
    stated, deciding = comparison.effect, comparison.deciding

    assert not stated.low < deciding.low
    assert not stated.high > deciding.high
    assert stated.level == min(level, 1 - alpha)
    if comparison.verdict is Verdict.REGRESSION:
        assert stated.high < 0
    if comparison.verdict is Verdict.NO_REGRESSION:
        assert stated.low > -tolerance


@given(
    differences=st.lists(st.floats(-0.3, 0.3) | st.just(math.nan), max_size=12),
    mask=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_blocks_that_are_left_out_change_nothing_but_the_count(differences: list[float], mask: list[bool]) -> None:
    blocks = [
        replace(block, disturbances=("swapping",) if is_disturbed else ())
        for block, is_disturbed in zip(some_blocks(differences), mask, strict=False)
    ]
    kept = [block for block in blocks if not block.disturbances and math.isfinite(block.difference)]
    everything, clean = (compare_blocks(some, RULE, spent_s=10.0) for some in (blocks, kept))

    assert len(blocks) - len(kept) == everything.num_left_out
    assert len(kept) == everything.num_blocks
    assert repr((clean.effect, clean.deciding, clean.verdict, clean.reason)) == repr(
        (everything.effect, everything.deciding, everything.verdict, everything.reason)
    )


def test_a_clear_slow_down_is_a_regression_with_its_effect_as_a_ratio() -> None:
    slow_down = math.log(0.83)
    comparison = compare_blocks(some_blocks([slow_down + x for x in (0.01, -0.01, 0.01, -0.01)]), RULE, spent_s=80.0)

    assert comparison.verdict is Verdict.REGRESSION
    assert comparison.reason == "slower by at least 11 %, 99 % sure"
    assert comparison.effect.estimate == pytest.approx(-0.17)
    assert comparison.deciding.level == 0.99
    assert comparison.base_tok_per_s == pytest.approx(4_000)
    assert (1, 4, 16) == (comparison.num_launches, comparison.num_blocks, comparison.num_windows)
    assert comparison.to_resolve_s is None


def test_faster_is_no_regression_and_says_by_how_much() -> None:
    comparison = compare_blocks(some_blocks([0.2, 0.21, 0.2, 0.19, 0.2]), RULE, spent_s=80.0)

    assert comparison.verdict is Verdict.NO_REGRESSION
    assert comparison.reason.startswith("faster by at least 19 %")


def test_a_slow_down_within_the_tolerance_is_no_regression_even_if_it_is_certain() -> None:
    differences = [-0.005 + x for x in (1e-4, -1e-4) * 4]
    comparison = compare_blocks(some_blocks(differences), RULE, spent_s=80.0)

    assert comparison.deciding.high < 0
    assert comparison.verdict is Verdict.NO_REGRESSION
    assert comparison.reason == "slower by at most 0.521 %, 99 % sure, and 1 % is tolerated"


@pytest.mark.parametrize(
    ("differences", "reason"),
    [
        ([], "0 blocks count: 4 are the least that can decide, 99 % sure"),
        ([-0.2], "1 block counts: 4 are the least that can decide, 99 % sure"),
        ([-0.2, -0.2, -0.2], "3 blocks count: 4 are the least that can decide, 99 % sure"),
    ],
)
def test_too_few_blocks_are_inconclusive_with_infinite_ends(differences: list[float], reason: str) -> None:
    comparison = compare_blocks(some_blocks(differences), RULE, spent_s=1.0)

    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.reason == reason
    assert (-1.0, math.inf) == (comparison.deciding.low, comparison.deciding.high)


def test_nothing_is_decided_while_all_blocks_ran_in_one_order() -> None:
    differences = [-0.2, -0.21, -0.2, -0.21, -0.2]
    same = compare_blocks(some_blocks(differences, ABBA), RULE, spent_s=100.0)
    turned = compare_blocks([*some_blocks(differences[:-1], ABBA), a_block(5, -0.2, BAAB)], RULE, spent_s=100.0)

    assert same.verdict is Verdict.INCONCLUSIVE
    assert same.reason == "all 5 blocks ran ABBA: drift would look the same as a difference until one is turned"
    assert same.to_resolve_s == 20.0
    assert turned.verdict is Verdict.REGRESSION


def test_an_open_comparison_says_what_is_possible_and_what_more_it_takes() -> None:
    differences = [0.01 * x for x in (1, -1, 0.5, -0.5, 1, -1)]
    comparison = compare_blocks(some_blocks(differences), RULE, spent_s=120.0)

    assert comparison.reason == (
        "between 2.7 % slower and 2.77 % faster, 99 % sure: neither slower for certain, nor at most the tolerated 1 %;"
        " about 14 more blocks would tell if what was seen stays"
    )
    assert comparison.to_resolve_s == pytest.approx(14 * 20.0)


def test_what_it_takes_is_the_first_number_of_blocks_that_would_decide() -> None:
    seen = [0.01 * x for x in (1, -1, 0.5, -0.5, 1, -1)]
    sd = float(np.std(seen, ddof=1))
    num_needed = next(num for num in range(7, 100) if anytime_factor(num, alpha=0.01) * sd < -FLOOR)
    comparison = compare_blocks(some_blocks(seen), RULE, spent_s=120.0)

    assert comparison.to_resolve_s == pytest.approx((num_needed - 6) * 20.0)


def test_left_out_blocks_are_expected_to_cost_as_much_again() -> None:
    differences = [0.01 * x for x in (1, -1, 0.5, -0.5, 1, -1)]
    clean = some_blocks(differences)
    disturbed = [a_block(7 + n, 0.5, disturbances=["swapping"]) for n in range(6)]
    alone, mixed = (compare_blocks(blocks, RULE, spent_s=240.0) for blocks in (clean, [*clean, *disturbed]))

    assert alone.to_resolve_s is not None
    assert 2 * alone.to_resolve_s == mixed.to_resolve_s


def test_what_would_take_a_hundred_times_as_long_is_not_promised() -> None:
    rule = replace(RULE, tolerance=0.0)
    comparison = compare_blocks(some_blocks([0.05, -0.05, 0.05, -0.05, 1e-6]), rule, spent_s=100.0)

    assert comparison.to_resolve_s is None
    assert comparison.reason.endswith("at this noise 100 times the blocks would not tell")


def test_a_block_without_a_finite_difference_is_left_out_and_said_so() -> None:
    comparison = compare_blocks(some_blocks([-0.2, math.nan, -0.2, math.inf]), RULE, spent_s=80.0)

    assert (2, 2) == (comparison.num_blocks, comparison.num_left_out)
    assert ("left out for having no finite difference: 2 of 4 blocks",) == comparison.notes


def test_cold_blocks_count_each_launch_once() -> None:
    blocks = [
        replace(block, method=Method.COLD, order=("AB", "BA")[n % 2], launches=(f"a{n}", f"b{n}"))
        for n, block in enumerate(some_blocks([-0.2, -0.21, -0.2, -0.22, -0.2]))
    ]
    comparison = compare_blocks(blocks, RULE, spent_s=80.0)

    assert Method.COLD is comparison.method
    assert comparison.num_launches == 10
    assert comparison.verdict is Verdict.REGRESSION


def test_hot_and_cold_blocks_are_not_mixed() -> None:
    hot = some_blocks([-0.2, -0.2])

    with pytest.raises(AssertionError, match="different questions"):
        compare_blocks([*hot, replace(hot[0], method=Method.COLD)], RULE, spent_s=1.0)


BASE, SLOWER = [8.0, 8.01, 7.99, 8.0], [7.8, 7.81, 7.79, 7.8]


def test_existing_launches_are_judged_by_their_own_spread() -> None:
    from scipy.stats import ttest_ind

    comparison = compare_existing(BASE, SLOWER, RULE, launch_sd=5.0, launch_freedom=3)
    expected = ttest_ind(SLOWER, BASE, equal_var=False).confidence_interval(0.99)

    assert comparison.verdict is Verdict.REGRESSION
    assert math.expm1(expected.low) == pytest.approx(comparison.deciding.low)
    assert math.expm1(expected.high) == pytest.approx(comparison.deciding.high)
    assert comparison.base_tok_per_s == pytest.approx(math.exp(8.0))
    assert comparison.num_launches == 8
    assert "fixed sample" in comparison.deciding.method
    assert NOT_INTERLEAVED in comparison.notes


@pytest.mark.parametrize("num_bytes", [1.0, 8 * 139 * 2**30, 2.0**60])
def test_the_base_of_what_there_should_be_little_of_keeps_its_digits(num_bytes: float) -> None:
    log = -math.log(num_bytes)
    blocks = [replace(block, base_log_tok_per_s=log) for block in some_blocks([0.01, -0.01])]

    for comparison in (
        compare_existing([log, log], [log], RULE, launch_sd=None, launch_freedom=0),
        compare_blocks(blocks, RULE, spent_s=1.0),
    ):
        assert num_bytes == pytest.approx(1 / comparison.base_tok_per_s, rel=1e-12)


def test_a_base_beyond_all_doubles_is_infinite() -> None:
    assert compare_existing([800.0], [800.0], RULE, launch_sd=None, launch_freedom=0).base_tok_per_s == math.inf


def test_existing_intervals_cover_what_they_say() -> None:
    rng = np.random.default_rng(47)
    effects = [
        compare_existing(
            rng.normal(8, 0.01, 4).tolist(), rng.normal(7.9, 0.02, 5).tolist(), RULE, launch_sd=None, launch_freedom=0
        ).effect
        for _ in range(4_000)
    ]
    covered = np.mean([effect.low <= math.expm1(-0.1) <= effect.high for effect in effects])

    assert covered == pytest.approx(0.95, abs=0.015)


def test_single_launches_need_a_calibrated_spread() -> None:
    alone, calibrated, noisy = (
        compare_existing([8.0], [7.8], RULE, launch_sd=sd, launch_freedom=6) for sd in (None, 0.01, 0.1)
    )

    assert alone.verdict is Verdict.INCONCLUSIVE
    assert alone.reason == (
        "1 and 1 launches do not show how much launches differ: 3 a side do, or `flashprof calibrate`"
    )
    assert alone.effect.estimate == pytest.approx(math.expm1(-0.2))
    assert (-1.0, math.inf) == (alone.deciding.low, alone.deciding.high)
    assert calibrated.verdict is Verdict.REGRESSION
    # t with 6 degrees of freedom at 99 %: 3.707.
    assert calibrated.deciding.high == pytest.approx(math.expm1(-0.2 + 3.707 * 0.01 * math.sqrt(2)), abs=1e-5)
    assert noisy.verdict is Verdict.INCONCLUSIVE
    assert noisy.reason.startswith("between 51.5 % slower and 38.3 % faster, 99 % sure")


def test_a_side_without_launches_has_no_estimate() -> None:
    comparison = compare_existing([8.0], [math.nan], RULE, launch_sd=0.01, launch_freedom=6)

    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert math.isnan(comparison.effect.estimate)
    assert (1, 1) == (comparison.num_launches, comparison.num_left_out)
