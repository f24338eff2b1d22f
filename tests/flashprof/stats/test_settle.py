"""Settle steps: what follows a switch is found in seeded profiles, at the noise of real steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.stats.settle import find_settle_steps, has_standstill, is_warm, settle_steps_of_changes

NUM_TRIALS = 300
NUM_OFFSETS = 20
MAX_STEPS = 15
Shape = Callable[[int], float]


def answers(shape: Shape, *, num_switches: int = 6, first: float = 0.0, seed: int = 1) -> list[int]:
    """Noise of 4.7 % a step with a correlation of 0.5 between neighbours, and a level of its own for each switch."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(NUM_TRIALS):
        noise = rng.normal(0, 0.047 * np.sqrt(0.75), (num_switches, NUM_OFFSETS + 20))
        for offset in range(1, noise.shape[1]):
            noise[:, offset] += 0.5 * noise[:, offset - 1]
        profiles = noise[:, 20:] + rng.normal(-8, 0.02, (num_switches, 1)) + [shape(o) for o in range(NUM_OFFSETS)]
        profiles[0, 0] += first
        found.append(find_settle_steps(profiles.tolist(), MAX_STEPS))
    return found


def share(found: list[int], low: int, high: int) -> float:
    return sum(low <= number <= high for number in found) / len(found)


@pytest.mark.parametrize("num_switches", [3, 6, 7])
def test_level_steps_need_no_settling(num_switches: int) -> None:
    assert share(answers(lambda _: 0.0, num_switches=num_switches), 0, 0) >= 0.85


def test_one_slow_step_is_dropped() -> None:
    found = answers(lambda offset: 0.6 if offset == 0 else 0.0)

    assert share(found, 1, MAX_STEPS) == 1.0
    assert share(found, 1, 1) >= 0.85


@pytest.mark.parametrize("old", [0.2, -0.2])
def test_a_queue_of_eight_is_drained(old: float) -> None:
    found = answers(lambda offset: old if offset < 8 else 0.0)

    assert share(found, 8, MAX_STEPS) >= 0.95
    assert share(found, 8, 9) >= 0.8


def test_a_slow_step_in_front_of_a_queue_does_not_hide_it() -> None:
    found = answers(lambda offset: 1.5 if offset == 0 else 0.2 if offset < 8 else 0.0)

    assert share(found, 8, MAX_STEPS) >= 0.95


def test_a_compile_after_one_switch_only_is_not_taken_for_settling() -> None:
    assert share(answers(lambda _: 0.0, first=5.0), 0, 0) >= 0.85


def test_what_never_becomes_level_takes_all_that_is_allowed() -> None:
    assert share(answers(lambda offset: -0.2 * offset), MAX_STEPS, MAX_STEPS) == 1.0


@pytest.mark.parametrize("profiles", [[], [[0.0] * NUM_OFFSETS], [[0.0] * 3, [0.0] * 3], [[], [0.0] * NUM_OFFSETS]])
def test_too_little_to_see_takes_all_that_is_allowed(profiles: list[list[float]]) -> None:
    assert find_settle_steps(profiles, MAX_STEPS) == MAX_STEPS


@given(
    st.lists(st.lists(st.floats(-20, 20), min_size=0, max_size=30), max_size=6),
    st.integers(min_value=0, max_value=20),
)
def test_any_profiles_give_a_number_within_bounds(profiles: list[list[float]], max_steps: int) -> None:
    assert 0 <= find_settle_steps(profiles, max_steps) <= max_steps


def changes(shape: Callable[[int, float], float], seed: int = 2) -> list[int]:
    """Twelve changes, half of them to something slower by 15 %; *shape* of (offset, old level over the new)."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(60):
        rises = rng.permutation([0.15, -0.15] * 6)
        profiles = [[shape(o, rise) + rng.normal(0, 0.04) for o in range(NUM_OFFSETS)] for rise in rises]
        found.append(settle_steps_of_changes(profiles, rises.tolist(), MAX_STEPS))
    return found


def test_changes_without_old_work_need_no_settling() -> None:
    assert share(changes(lambda *_: 0.0), 0, 0) >= 0.8


def test_old_work_shows_though_it_is_slower_in_one_change_and_faster_in_the_next() -> None:
    found = changes(lambda offset, rise: rise if offset < 7 else 0.0)

    assert share(found, 7, MAX_STEPS) >= 0.95
    assert share(found, 7, 8) >= 0.8


def test_slow_first_steps_show_in_all_changes() -> None:
    assert share(changes(lambda offset, _: 0.3 if offset < 2 else 0.0), 2, MAX_STEPS) >= 0.95


def test_steps_that_are_level_behind_the_first_are_warm() -> None:
    rng = np.random.default_rng(3)
    level = [rng.normal(0, 0.05, 24).tolist() for _ in range(200)]
    falling = [(rng.normal(0, 0.05, 24) - 0.04 * np.arange(24)).tolist() for _ in range(200)]
    first = [[0.5] * 12 + rng.normal(0, 0.05, 12).tolist() for _ in range(200)]

    assert sum(is_warm(values, 12) for values in level) >= 0.9 * 200
    assert sum(is_warm(values, 12) for values in first) >= 0.9 * 200
    assert sum(is_warm(values, 12) for values in falling) <= 0.2 * 200


@pytest.mark.parametrize("place", [0, 5, 23])
def test_a_compile_is_a_standstill_and_not_warm(place: int) -> None:
    values = [0.0] * 24
    values[place] = 1.5

    assert has_standstill(values)
    assert not is_warm(values, 12)


def test_too_few_steps_are_not_warm_and_no_standstill() -> None:
    assert not is_warm([0.0] * 19, 12)
    assert is_warm([0.0] * 20, 12)
    assert not has_standstill([])
