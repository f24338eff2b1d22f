"""Small losses in a row are seen as their sum, a flat series cries hardly ever, and the baseline never creeps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.stats.trend_rules import MIN_BASE, MIN_GAIN, change_between, follow, level_rate

NOISE = 0.015
NUM_BASE = 30
PER_LEVEL = 3
Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(rng: np.random.Generator, num: int) -> np.ndarray:
    return rng.normal(0, NOISE, num)


def heavy_tailed(rng: np.random.Generator, num: int) -> np.ndarray:
    return rng.standard_t(3, num) * NOISE / 2


def with_odd_ones(rng: np.random.Generator, num: int) -> np.ndarray:
    """One run in twenty is about 10 % slow."""
    values = rng.normal(0, NOISE, num)
    return values - np.where(rng.random(num) < 0.05, rng.exponential(0.1, num), 0.0)


def losses(values: np.ndarray) -> list[int]:
    """Indices of the runs that showed one."""
    return [shift.seen for shift in follow(list(values), [NOISE / 4] * len(values)).shifts if shift.is_loss]


def staircase(num_levels: int, per_level: int = PER_LEVEL, loss: float = 0.01) -> np.ndarray:
    """`NUM_BASE` runs, then as many levels, each lower by *loss*."""
    return np.concatenate([np.zeros(NUM_BASE), np.repeat(np.log1p(-loss) * np.arange(1, num_levels + 1), per_level)])


def threshold_says(values: np.ndarray) -> list[int]:
    """A fixed 3 % on one run: each against the one before."""
    return [index for index in range(1, len(values)) if values[index] - values[index - 1] < np.log(0.97)]


@pytest.mark.parametrize("draw", [normal, heavy_tailed, with_odd_ones])
def test_of_flat_series_of_100_runs_1_percent_tell_of_a_loss(draw: Draw) -> None:
    """Of 150 series 5 or more would be found at a true rate of 1 % in one test of 50; 30,000 had 0.9 %."""
    rng = np.random.default_rng([1, *draw.__name__.encode()])
    num_found = sum(bool(losses(draw(rng, 100))) for _ in range(150))

    assert num_found <= 4


@pytest.mark.parametrize(
    ("noise", "per_level", "least"), [(0.01, 1, 0.55), (0.01, 2, 0.95), (0.015, 3, 0.95), (0.02, 4, 0.9)]
)
def test_ten_losses_of_1_percent_are_seen_before_the_sixth(noise: float, per_level: int, least: float) -> None:
    rng = np.random.default_rng(2)
    seen = []
    for _ in range(40):
        steps = staircase(10, per_level)
        told = losses(steps + rng.normal(0, noise, len(steps)))
        seen.append(any(NUM_BASE < index < NUM_BASE + 5 * per_level for index in told))

    assert least <= np.mean(seen)


def test_a_threshold_of_3_percent_on_one_run_cries_on_flat_series_and_tells_the_losses_from_none() -> None:
    """What others do, beside: it fires in nearly all flat series of 100 runs, and as often on steps as off them."""
    rng = np.random.default_rng(3)
    flat = [bool(threshold_says(rng.normal(0, NOISE, 100))) for _ in range(100)]
    steps = staircase(10)
    fired = [index for _ in range(200) for index in threshold_says(steps + rng.normal(0, NOISE, len(steps)))]
    at_base = sum(index < NUM_BASE for index in fired) / (NUM_BASE - 1)
    at_losses = sum(NUM_BASE <= index < NUM_BASE + 5 * PER_LEVEL for index in fired) / (5 * PER_LEVEL)

    assert 0.95 <= np.mean(flat)
    assert at_losses < 2 * at_base


def test_losses_too_small_for_any_pair_of_runs_add_up_against_one_baseline() -> None:
    """The baseline does not creep after them: all ten are held against the level before the first."""
    steps = staircase(10)
    course = follow(list(steps + normal(np.random.default_rng(4), len(steps))), [0.0] * len(steps))

    assert course.is_lost
    assert NUM_BASE + 2 * PER_LEVEL >= course.baseline[-1]
    assert -0.085 < steps[list(course.level)].mean() - steps[list(course.baseline)].mean() + 0.02 < 0.0


def test_a_ramp_of_single_runs_began_where_its_first_loss_was() -> None:
    """Each run slower than the one before: the place is right to two runs, and the level is the newest of them."""
    steps = staircase(6, per_level=1)
    rng = np.random.default_rng(12)
    begins, is_newest = [], []
    for _ in range(20):
        course = follow(list(steps + rng.normal(0, NOISE / 3, len(steps))), [0.0] * len(steps))
        begins.append(course.shifts[0].at - NUM_BASE)
        is_newest.append(course.level[-1] == len(steps) - 1 and course.level[0] > course.baseline[-1] + 1)

    assert 2 >= max(map(abs, begins))
    assert all(is_newest)


def test_a_large_step_that_looks_like_a_ramp_to_ranks_begins_with_its_first_run() -> None:
    values = normal(np.random.default_rng(13), NUM_BASE + 5)
    values[NUM_BASE:] -= 0.4
    course = follow(list(values), [0.0] * len(values))

    assert [NUM_BASE] == [shift.at for shift in course.shifts]
    assert tuple(range(NUM_BASE)) == course.baseline
    assert tuple(range(NUM_BASE, NUM_BASE + 5)) == course.level


def test_todays_level_is_the_newest_of_a_loss_that_grew() -> None:
    """Ten losses of 1 % with two runs each: the mean of all of them would say 5 %."""
    steps = staircase(10, per_level=2)
    rng = np.random.default_rng(14)
    lost = []
    for _ in range(20):
        course = follow(list(steps + rng.normal(0, 0.01, len(steps))), [0.0] * len(steps))
        lost.append(steps[list(course.level)].mean())

    assert np.mean(lost) < -0.08


def test_todays_level_of_a_loss_that_did_not_grow_is_all_of_it() -> None:
    rng = np.random.default_rng(15)
    kept = []
    for _ in range(20):
        values = rng.normal(0, 0.01, NUM_BASE + 20)
        values[NUM_BASE:] -= 0.08
        kept.append(len(follow(list(values), [0.0] * len(values)).level))

    assert 18 <= np.mean(kept)


def test_a_loss_stays_told_until_it_is_mended_and_the_baseline_is_the_old_one() -> None:
    values = normal(np.random.default_rng(5), 60)
    values[25:40] -= 0.08
    before, after = (follow(list(values[:end]), [0.0] * end) for end in (40, 60))

    assert (True, False) == (before.is_lost, after.is_lost)
    assert tuple(range(25)) == before.baseline
    assert (*range(25), *range(40, 60)) == after.baseline
    assert [(25, True, False), (40, False, True)] == [(s.at, s.is_loss, s.is_mend) for s in after.shifts]


def test_a_loss_that_is_mended_in_part_stays_a_loss() -> None:
    values = normal(np.random.default_rng(6), 75)
    values[25:50] -= 0.15
    values[50:] -= 0.06
    course = follow(list(values), [0.0] * 75)

    assert course.is_lost
    assert tuple(range(50, 75)) == course.level
    assert tuple(range(25)) == course.baseline


def test_a_gain_moves_the_baseline_once_five_runs_confirm_it() -> None:
    values = normal(np.random.default_rng(7), 60)
    values[40:] += 0.1
    starts = {num: follow(list(values[:num]), [0.0] * num).baseline[0] for num in range(40, 61)}

    assert {0} == {start for num, start in starts.items() if num < 40 + MIN_GAIN}
    assert 40 == starts[40 + MIN_GAIN + 1] == starts[60]


def test_what_the_user_accepts_is_the_baseline_from_there_on() -> None:
    values = normal(np.random.default_rng(8), 60)
    values[30:] -= 0.05
    course = follow(list(values), [0.0] * 60, restarts={30})

    assert (tuple(range(30, 60)), False, ()) == (course.baseline, course.is_lost, course.shifts)


def test_one_odd_run_is_no_level() -> None:
    values = normal(np.random.default_rng(9), 60)
    values[[20, 40, 59]] -= 0.4

    assert () == follow(list(values), [0.0] * 60).shifts


def test_runs_that_say_they_are_noisy_weigh_less() -> None:
    values = normal(np.random.default_rng(10), 40)
    values[32:] -= 0.06
    sds = np.where(np.arange(40) >= 32, 0.5, NOISE / 4)

    assert follow(list(values), [NOISE / 4] * 40).is_lost
    assert not follow(list(values), list(sds)).is_lost


@given(
    values=st.lists(st.sampled_from([0.0, 0.01, -0.02, -0.3, 5.0]) | st.floats(-1e3, 1e3), max_size=40),
    cut=st.integers(0, 40),
    restarts=st.sets(st.integers(0, 40), max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_what_was_told_stays_told_as_runs_come(values: list[float], cut: int, restarts: set[int]) -> None:
    sds = [0.0, float("inf"), float("nan"), 1.0] * 10
    whole = follow(values, sds[: len(values)], restarts=restarts)
    part = follow(values[:cut], sds[: len(values[:cut])], restarts=restarts)

    assert part.shifts == whole.shifts[: len(part.shifts)]
    assert all(shift.seen >= cut for shift in whole.shifts[len(part.shifts) :])
    assert sorted(whole.baseline) == list(whole.baseline)
    assert bool(values) == bool(whole.baseline) == bool(whole.level)


@pytest.mark.parametrize("num", [0, 1, MIN_BASE, MIN_BASE + 1])
def test_few_runs_show_nothing(num: int) -> None:
    course = follow([-float(index) for index in range(num)], [0.0] * num)

    assert (tuple(range(num)), False, ()) == (course.baseline, course.is_lost, course.shifts)


def test_runs_that_are_all_the_same_show_nothing() -> None:
    assert () == follow([7.0] * 50, [0.0] * 50).shifts


def test_levels_and_changes_have_intervals_that_cover() -> None:
    """Of 400 95 % intervals between runs, 95 % ± 3."""
    rng = np.random.default_rng(11)
    covered = []
    for _ in range(400):
        values = rng.normal(0, NOISE, 20)
        values[12:] -= 0.05
        change = change_between(list(values), [0.0] * 20, range(12), range(12, 20))
        rate = level_rate(list(values), [0.0] * 20, range(12))
        covered.append((change.low <= np.expm1(-0.05) <= change.high, rate.low <= 1 <= rate.high))

    assert np.all(np.abs(np.mean(covered, axis=0) - 0.95) < 0.03)


def test_one_run_has_no_interval() -> None:
    rate = level_rate([2.0], [0.01], [0])

    assert (np.exp(2.0), 0.0, np.inf) == pytest.approx((rate.estimate, rate.low, rate.high))
