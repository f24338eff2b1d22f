"""A line over the last runs is found by ranks, and fitted to numbers, as least squares would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.stats.trend_scores import ramp_chances, shift_chances, squares_along, squares_between

NUM = 30
LENGTHS = np.arange(2, 9)


def flat(seed: int, num: int = NUM) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.01, num)


def ramp(length: int) -> np.ndarray:
    values = flat(length)
    values[-length:] -= 0.05 * np.arange(1, length + 1)
    return values


@pytest.mark.parametrize("length", [4, 6, 8])
def test_the_line_that_is_there_takes_away_most(length: int) -> None:
    squares = squares_along(ramp(length), np.zeros(NUM), range(NUM), LENGTHS)

    assert length == LENGTHS[np.argmax(squares)]


@given(seed=st.integers(0, 1000), length=st.integers(1, 20), noisy=st.sets(st.integers(0, NUM - 1)))
@settings(deadline=None, max_examples=40)
def test_a_line_takes_away_what_least_squares_say(seed: int, length: int, noisy: set[int]) -> None:
    """With weights, which are the same for all that are equally noisy: a factor of all squares does not count."""
    values, own = flat(seed), np.zeros(NUM)
    own[list(noisy)] = 0.5
    scatter = np.median(np.abs(np.diff(values))) / 0.954
    root = np.sqrt(scatter**2 / (scatter**2 + own**2))
    line = np.maximum(np.arange(1, NUM + 1) - (NUM - length), 0)
    left = [
        float(np.sum((root * values - design @ np.linalg.lstsq(design, root * values, rcond=None)[0]) ** 2))
        for design in (root[:, None], np.stack([root, root * line], axis=1))
    ]
    squares = squares_along(values, own, range(NUM), np.array([length]))

    assert left[0] - left[1] == pytest.approx(squares[0], rel=1e-6, abs=1e-12)


@given(seed=st.integers(0, 1000), power=st.sampled_from([1, 3, 5]))
@settings(deadline=None, max_examples=30)
def test_only_the_order_of_the_runs_counts(seed: int, power: int) -> None:
    """Whatever the noise is like, chances are the same: a series and its odd powers have the same ranks."""
    values = flat(seed)
    plain = ramp_chances(values, np.zeros(NUM), range(NUM), LENGTHS)
    bent = ramp_chances(values**power * 1e3, np.zeros(NUM), range(NUM), LENGTHS)

    assert plain == pytest.approx(bent)


def test_a_step_is_surer_as_two_levels_than_as_a_ramp() -> None:
    values = flat(3)
    values[-12:] -= 0.05
    step_p, _ = shift_chances(values, np.zeros(NUM), range(NUM), ())

    assert step_p.min() < ramp_chances(values, np.zeros(NUM), range(NUM), LENGTHS).min()


def test_runs_that_gain_are_no_ramp() -> None:
    assert 0.5 < ramp_chances(-ramp(6), np.zeros(NUM), range(NUM), LENGTHS).min()


def test_a_line_of_runs_that_say_they_are_noisy_is_less_sure() -> None:
    own = np.where(np.arange(NUM) >= NUM - 5, 0.5, 0.0)
    sure, unsure = (ramp_chances(ramp(5), noise, range(NUM), LENGTHS).min() for noise in (np.zeros(NUM), own))

    assert sure < 1e-4
    assert 0.01 < unsure


def test_the_parts_of_the_best_split_are_apart_most() -> None:
    values = flat(9)
    values[20:] -= 0.1

    assert 19 == np.argmax(squares_between(values, np.zeros(NUM), range(NUM)))


def test_runs_that_are_all_the_same_are_as_likely_on_a_line_as_off_it() -> None:
    chances = ramp_chances(np.full(NUM, 7.0), np.zeros(NUM), range(NUM), LENGTHS)

    assert [0.5] * len(LENGTHS) == pytest.approx(list(chances))
