"""Changes of frames and boxes are as sure as they say: intervals cover, and A/A is not called clear."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from flashprof.stats.stack_noise import ArmWindows, Changes, changes, clear_of_chance, noise_of, questions

SHARES = np.array([0.3, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02])
CALLERS = np.array([[1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]])
Floats = NDArray[np.float64]


def arm(
    rng: np.random.Generator,
    *,
    num: int,
    num_samples: int,
    rate_cv: float = 0.05,
    frame_cv: float = 0.0,
    launch_cv: float = 0.0,
    num_launches: int = 1,
) -> tuple[ArmWindows, Floats]:
    """Windows whose rate differs, and whose frames do beyond it, with counts as a sampler draws them."""
    places = np.arange(num) % num_launches
    rates = 1000 * np.exp(rng.normal(0, rate_cv, num) + rng.normal(0, launch_cv, num_launches)[places])
    shares = SHARES * np.exp(rng.normal(0, frame_cv, (num, len(SHARES))))
    counts = rng.multinomial(num_samples, shares / shares.sum(axis=1, keepdims=True)).T.astype(float)
    windows = ArmWindows(
        launches=tuple(f"launch {place}" for place in places),
        ns_per_token=rates,
        num_samples=np.full(num, float(num_samples)),
    )
    return windows, counts


def own_and_inclusive(one: tuple[ArmWindows, Floats], other: tuple[ArmWindows, Floats]) -> tuple[Changes, Changes]:
    arms = (one[0], other[0])
    noise = noise_of(arms, one[1], other[1])
    return changes(arms, one[1], other[1], noise), changes(arms, CALLERS @ one[1], CALLERS @ other[1], noise)


def fixed(counts: list[list[float]], *, ns_per_token: float = 1000.0) -> tuple[ArmWindows, Floats]:
    table = np.array(counts)
    num = table.shape[1]
    windows = ArmWindows(launches=("a",) * num, ns_per_token=np.full(num, ns_per_token), num_samples=table.sum(axis=0))
    return windows, table


def alike(num_samples: float, num_all: float, *, num: int) -> Changes:
    """Both arms with the same windows: one frame and the rest."""
    windows, counts = fixed([[num_samples] * num, [num_all - num_samples] * num])
    arms = (windows, windows)
    return changes(arms, counts, counts, noise_of(arms, counts, counts))


@pytest.mark.parametrize(
    ("num", "num_samples", "frame_cv"),
    [
        pytest.param(1, 60, 0.07, id="one window of 4 s"),
        pytest.param(2, 60, 0.07, id="two windows of 4 s"),
        pytest.param(2, 900, 0.07, id="two windows of 60 s"),
        pytest.param(4, 60, 0.0, id="four windows of 4 s, counts and rate only"),
        pytest.param(4, 240, 0.1, id="four windows of 16 s, uneven frames"),
        pytest.param(10, 900, 0.1, id="ten windows of 60 s, uneven frames"),
    ],
)
def test_intervals_cover_and_alike_arms_are_not_clear(num: int, num_samples: int, frame_cv: float) -> None:
    rng, num_trials = np.random.default_rng(6), 400
    num_clear, covered = 0, []
    is_large = num * num_samples * SHARES > 8
    for _ in range(num_trials):
        one, other = (arm(rng, num=num, num_samples=num_samples, frame_cv=frame_cv) for _ in range(2))
        own, inclusive = own_and_inclusive(one, other)
        covered += [*(np.abs(own.estimate) <= own.half)[is_large], *(np.abs(inclusive.estimate) <= inclusive.half)]
        names = [questions(one[1], other[1]), questions(CALLERS @ one[1], CALLERS @ other[1])]
        num_clear += any(clear.any() for clear in clear_of_chance([own, inclusive], names))

    assert 0.94 <= np.mean(covered) <= 0.98
    assert num_clear <= 0.05 * num_trials


def test_launches_are_the_units_where_each_arm_has_three() -> None:
    rng, num_trials = np.random.default_rng(6), 400
    covered = []
    for _ in range(num_trials):
        one, other = (arm(rng, num=8, num_samples=900, rate_cv=0.01, launch_cv=0.05, num_launches=4) for _ in range(2))
        own, _ = own_and_inclusive(one, other)
        covered += [*(np.abs(own.estimate) <= own.half)]
        assert (8, True) == (own.num_units, "launches" in own.method)

    assert 0.94 <= np.mean(covered) <= 0.985


def test_a_frame_with_nine_samples_is_uncertain_by_a_third() -> None:
    own = alike(9, 600, num=1)

    assert 0.3 < own.half[0] / 2 / math.sqrt(2) / own.base[0] < 0.45


def test_more_windows_tell_more() -> None:
    halves = [alike(90, 600, num=num).half[0] for num in (1, 2, 4, 16)]

    assert sorted(halves, reverse=True) == halves
    assert halves[0] / halves[3] > 3.5


def test_a_planted_frame_is_clear_and_the_rest_is_not() -> None:
    rng = np.random.default_rng(6)
    (one, base), (other, rest) = (arm(rng, num=4, num_samples=300) for _ in range(2))
    slower = replace(other, ns_per_token=other.ns_per_token * 1.15, num_samples=other.num_samples + 45)
    base, candidate = np.vstack([base, np.zeros(4)]), np.vstack([rest, np.full(4, 45.0)])

    found = changes((one, slower), base, candidate, noise_of((one, slower), base, candidate))

    (clear,) = clear_of_chance([found], [questions(base, candidate)])
    assert [len(SHARES)] == np.flatnonzero(clear).tolist()


def judged(p_values: list[float], names: list[str] | None = None, *, is_asked: list[bool] | None = None) -> list[bool]:
    zeros = np.zeros(len(p_values))
    part = Changes(
        base=zeros,
        candidate=zeros,
        half=zeros,
        p_values=np.array(p_values),
        is_asked=np.array(is_asked or [True] * len(p_values), dtype=bool),
        num_units=2,
        method="",
    )
    (clear,) = clear_of_chance([part], [names or list(range(len(p_values)))])
    return clear.tolist()


def test_holm_asks_less_of_each_next_one() -> None:
    assert [True, False, False, False, True] == judged([0.012, 0.9, 0.02, 0.03, 0.001])


def test_what_is_not_asked_neither_counts_nor_is_clear() -> None:
    assert [True, False, False] == judged([0.02, 1e-9, 0.9], is_asked=[True, False, False])
    assert [] == judged([])


def test_a_question_counts_once_in_however_many_tables_it_is() -> None:
    assert [True, True, True] == judged([0.03, 0.03, 0.02], ["a", "a", "b"])
    assert [False, False, False] == judged([0.03, 0.03, 0.02])


def test_rows_with_the_same_samples_ask_the_same() -> None:
    wrapper, callee, other = [9.0, 8.0], [9.0, 8.0], [9.0, 7.0]
    names = questions(np.array([wrapper, callee, other]), np.full((3, 2), 5.0))

    assert names[0] == names[1] != names[2]


def test_too_few_samples_are_not_asked() -> None:
    one, other = fixed([[3.0], [4.0], [93.0]]), fixed([[4.0], [4.0], [92.0]])
    arms = (one[0], other[0])

    assert [False, True, True] == changes(arms, one[1], other[1], noise_of(arms, one[1], other[1])).is_asked.tolist()
