"""How often verdicts and stated intervals are right: simulated comparisons that are looked at after every block."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from block_examples import ABBA, BAAB, a_block
from numpy.typing import NDArray

from flashprof.contracts.comparison import DecisionRule, Verdict
from flashprof.stats.compare import compare_blocks
from flashprof.stats.sequential import End, anytime_factor, stated_factors

RULE = DecisionRule()
FLOOR = math.log1p(-RULE.tolerance)
NUM_RUNS = 10_000
NUM_MAX = 60

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, Floats], Floats]


@dataclass(frozen=True)
class Ends:
    """Of many sequential comparisons at once, where each stopped: by verdict, or at the last of its blocks."""

    num: NDArray[np.int64]
    mean: Floats
    sd: Floats
    is_regression: NDArray[np.bool_]
    is_no_regression: NDArray[np.bool_]

    def stated(self) -> tuple[Floats, Floats]:
        """Both ends of the stated interval."""
        tables = []
        for end in (None, End.HIGH, End.LOW):
            factors = [stated_factors(num, level=0.95, alpha=0.01, crossed=end) for num in range(2, NUM_MAX + 1)]
            tables.append([(math.nan, math.nan)] * 2 + factors)
        crossed = self.is_regression + 2 * self.is_no_regression
        below, above = np.array(tables)[crossed, self.num].T
        return self.mean - below * self.sd, self.mean + above * self.sd

    def covered(self, truth: float) -> float:
        """Share of stated intervals that hold *truth*."""
        low, high = self.stated()
        return float(((low <= truth) & (truth <= high)).mean())


def sequential(differences: Floats, orders: Floats, *, floor: float, num_max: int = NUM_MAX) -> Ends:
    """
    The same as `compare_blocks` after every block, vectorised; a test below makes sure that it is the same.

    Args:
        differences: One comparison a row.
        orders: 1 or −1 a block.
        floor: log(1 − tolerance).
        num_max: Budget, in blocks.
    """
    counts = np.arange(1, num_max + 1)
    rows = np.arange(len(differences))
    kept = differences[:, :num_max]
    means = kept.cumsum(axis=1) / counts
    # About the first value, so that a large mean costs no digits.
    moved = kept - kept[:, :1]
    squares = (moved**2).cumsum(axis=1) - counts * (moved.cumsum(axis=1) / counts) ** 2
    sds = np.sqrt(np.maximum(squares, 1e-24) / np.maximum(counts - 1, 1))
    factors = np.array([anytime_factor(num, alpha=RULE.alpha) for num in counts])
    num_turned = (orders[:, :num_max] > 0).cumsum(axis=1)
    may_decide = (num_turned > 0) & (num_turned < counts)
    halves = factors * sds
    no_regression = may_decide & (means - halves > floor)
    regression = may_decide & (means + halves < 0) & ~no_regression
    decided = no_regression | regression
    stop = np.where(decided.any(axis=1), decided.argmax(axis=1), num_max - 1)
    return Ends(
        num=stop + 1,
        mean=means[rows, stop],
        sd=sds[rows, stop],
        is_regression=regression[rows, stop],
        is_no_regression=no_regression[rows, stop],
    )


def coins(rng: np.random.Generator, num_runs: int = NUM_RUNS) -> Floats:
    return rng.choice((-1.0, 1.0), size=(num_runs, NUM_MAX))


def gaussian(rng: np.random.Generator, orders: Floats) -> Floats:
    return rng.standard_normal(orders.shape)


def heavy_tails(rng: np.random.Generator, orders: Floats) -> Floats:
    return rng.standard_t(3, orders.shape)


def outliers(rng: np.random.Generator, orders: Floats) -> Floats:
    return rng.standard_normal(orders.shape) * np.where(rng.random(orders.shape) < 0.1, 10, 1)


def changing_spread(rng: np.random.Generator, orders: Floats) -> Floats:
    return rng.standard_normal(orders.shape) * np.exp(0.7 * rng.standard_normal(orders.shape))


def growing_spread(rng: np.random.Generator, orders: Floats) -> Floats:
    return rng.standard_normal(orders.shape) * (1 + np.arange(NUM_MAX) / 3)


def drift(strength: float) -> Noise:
    """The same in each block: turned with the order, and with it the sign."""
    return lambda rng, orders: rng.standard_normal(orders.shape) + strength * orders


def fading_drift(rng: np.random.Generator, orders: Floats) -> Floats:
    return rng.standard_normal(orders.shape) + 10 * np.exp(-np.arange(NUM_MAX) / 5) * orders


def autocorrelated(correlation: float) -> Noise:
    def draw(rng: np.random.Generator, orders: Floats) -> Floats:
        noise = rng.standard_normal(orders.shape)
        for index in range(1, NUM_MAX):
            fresh = math.sqrt(1 - correlation**2) * noise[:, index]
            noise[:, index] = correlation * noise[:, index - 1] + fresh
        return noise * orders

    return draw


NOISES: dict[str, Noise] = {
    "gaussian": gaussian,
    "t with 3 degrees of freedom": heavy_tails,
    "a tenth 10 times as noisy": outliers,
    "spread changes by lognormal 0.7": changing_spread,
    "spread grows 20 times": growing_spread,
    "drift 1 sd": drift(1),
    "drift 5 sd": drift(5),
    "drift 20 sd": drift(20),
    "drift 10 sd that fades": fading_drift,
    "AR(1) 0.5": autocorrelated(0.5),
    "AR(1) 0.9": autocorrelated(0.9),
    "AR(1) 0.99": autocorrelated(0.99),
}


@pytest.mark.parametrize("name", NOISES)
def test_at_most_one_percent_of_comparisons_without_a_difference_are_alarms(name: str) -> None:
    """Looked at after every block, 60 blocks long. Without a tolerance each decision is a regression or a gain."""
    rng = np.random.default_rng(41)
    orders = coins(rng)
    ends = sequential(NOISES[name](rng, orders), orders, floor=0.0)
    alarms = (ends.is_regression | ends.is_no_regression).mean()
    print(f"{name}: {100 * alarms:.2f} % false alarms")

    assert alarms <= 0.01


def test_stated_intervals_cover_93_to_97_percent_whatever_the_effect_and_whenever_it_stops() -> None:
    rng = np.random.default_rng(42)
    covered: dict[tuple[float, float, int], float] = {}
    # Effect and tolerance in sd of a block's difference: 0.5 is 1 % at a sd of 2 %.
    for tolerance in (0.25, 0.5, 1.0, 2.0, 4.0):
        for effect in (-20.0, -5.0, -1.0, -tolerance / 2, -0.25, 0.0, 0.5, 2.0):
            orders = coins(rng)
            differences = effect + gaussian(rng, orders)
            for num_max in (4, 10, 40, 60):
                ends = sequential(differences, orders, floor=-tolerance, num_max=num_max)
                covered[tolerance, effect, num_max] = ends.covered(effect)
    lowest, highest = min(covered, key=covered.__getitem__), max(covered, key=covered.__getitem__)
    for name, where in (("lowest", lowest), ("highest", highest)):
        print(f"{name} coverage {100 * covered[where]:.2f} % at tolerance, effect, budget {where}")
    print(f"mean of {len(covered)}: {100 * np.mean(list(covered.values())):.2f} %")

    # A standard error of a coverage of 93 % over 10,000 comparisons is 0.26 points.
    assert 0.93 - 0.0026 <= covered[lowest]
    assert covered[highest] <= 0.97


@pytest.mark.parametrize("name", ["t with 3 degrees of freedom", "drift 1 sd", "AR(1) 0.5"])
@pytest.mark.parametrize("effect", [-5.0, -1.0, 0.0])
def test_they_still_cover_without_a_gaussian(name: str, effect: float) -> None:
    rng = np.random.default_rng(43)
    orders = coins(rng)
    covered = sequential(effect + NOISES[name](rng, orders), orders, floor=-1.0).covered(effect)
    print(f"{name}, effect {effect} sd: {100 * covered:.2f} %")

    assert 0.92 <= covered <= 0.99


# The last column is what a t-test at 1 % with a number of blocks chosen beforehand needs for a power of 90 %.
@pytest.mark.parametrize(
    ("slow_down", "sd", "median", "p90", "fixed"),
    [
        (0.02, 0.01, 8, 12, 8),
        (0.05, 0.01, 5, 6, 4),
        (0.17, 0.01, 4, 5, 3),
        (0.02, 0.02, 19, 33, 19),
        (0.05, 0.02, 7, 9, 6),
        (0.17, 0.02, 4, 5, 3),
    ],
)
def test_blocks_needed_to_find_a_slow_down(slow_down: float, sd: float, median: int, p90: int, fixed: int) -> None:
    rng = np.random.default_rng(44)
    orders = coins(rng)
    ends = sequential(math.log1p(-slow_down) + sd * gaussian(rng, orders), orders, floor=FLOOR)
    found = ends.is_regression.mean()
    needed = np.quantile(ends.num, [0.5, 0.9])
    print(f"{slow_down:.0%} at sd {sd:.0%}: {found:.3f} found, {needed} blocks, fixed-n t-test {fixed}")

    assert found >= 0.98
    assert needed[0] <= median
    assert needed[1] <= p90


def test_blocks_needed_to_exclude_a_slow_down() -> None:
    rng = np.random.default_rng(45)
    orders = coins(rng)
    ends = sequential(0.01 * gaussian(rng, orders), orders, floor=FLOOR)
    needed = np.quantile(ends.num, [0.5, 0.9])
    print(f"no change at sd 1 %: {ends.is_no_regression.mean():.3f} found, {needed} blocks")

    assert ends.is_no_regression.mean() >= 0.98
    assert needed[0] <= 20
    assert needed[1] <= 33


@pytest.mark.parametrize("effect", [-0.05, -0.01, 0.0, 0.02])
def test_looking_block_by_block_gives_what_was_calibrated(effect: float) -> None:
    rng = np.random.default_rng(46)
    orders = coins(rng, 40)
    differences = effect + 0.01 * gaussian(rng, orders)
    ends = sequential(differences, orders, floor=FLOOR)
    verdicts = np.array([Verdict.INCONCLUSIVE, Verdict.REGRESSION, Verdict.NO_REGRESSION])
    expected = verdicts[ends.is_regression + 2 * ends.is_no_regression]
    lows, highs = ends.stated()
    for row, num in enumerate(ends.num):
        names = [ABBA if order > 0 else BAAB for order in orders[row]]
        blocks = [a_block(index + 1, differences[row, index], names[index]) for index in range(num)]
        looks = [compare_blocks(blocks[:seen], RULE, spent_s=1.0) for seen in range(1, num + 1)]
        last = looks[-1]

        assert all(look.verdict is Verdict.INCONCLUSIVE for look in looks[:-1])
        assert expected[row] == last.verdict
        assert math.expm1(ends.mean[row]) == pytest.approx(last.effect.estimate)
        assert (math.expm1(lows[row]), math.expm1(highs[row])) == pytest.approx((last.effect.low, last.effect.high))
