"""Another level is found late as well as at once, and hardly ever where there is none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flashprof.stats.change_points import MAX_POINTS, change_points

NOISE = 0.02
STEP = -0.05
Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(rng: np.random.Generator, num: int) -> np.ndarray:
    return rng.normal(0, NOISE, num)


def heavy_tailed(rng: np.random.Generator, num: int) -> np.ndarray:
    return rng.standard_t(3, num) * NOISE / 2


def series(rng: np.random.Generator, num: int, *edges: int, step: float = STEP) -> np.ndarray:
    """A level that falls at the first edge, comes back at the second, and so on."""
    values = normal(rng, num)
    for start, end in zip(edges[::2], [*edges[1::2], num], strict=False):
        values[start:end] += step
    return values


def find(values: np.ndarray, rng: np.random.Generator, sds: np.ndarray | None = None) -> tuple[int, ...]:
    return change_points(list(values), [NOISE / 4] * len(values) if sds is None else list(sds), rng)


def share_near(num: int, edges: tuple[int, ...], rng: np.random.Generator, num_series: int = 40) -> float:
    """Of series in which each edge is found, to one run, and nothing else."""
    all_found = [find(series(rng, num, *edges), rng) for _ in range(num_series)]
    near = [
        len(found) == len(edges) and all(abs(a - b) <= 1 for a, b in zip(found, edges, strict=True))
        for found in all_found
    ]
    return float(np.mean(near))


@pytest.mark.parametrize("draw", [normal, heavy_tailed])
@pytest.mark.parametrize("num", [20, 50, 100])
def test_flat_series_have_no_change_point_in_99_of_100(draw: Draw, num: int) -> None:
    """Of 500 series 11 or more would be found at a true rate of 1 % in one test of 75; see also `ALPHA`s."""
    rng = np.random.default_rng([num, draw is normal])
    num_found = sum(bool(find(draw(rng, num), rng)) for _ in range(500))

    assert num_found <= 10


@pytest.mark.parametrize(("num", "edge", "least"), [(20, 10, 0.75), (40, 20, 0.8), (100, 50, 0.8), (100, 94, 0.7)])
def test_a_step_of_5_percent_is_found_where_it_is(num: int, edge: int, least: float) -> None:
    assert least <= share_near(num, (edge,), np.random.default_rng([num, edge]))


def test_a_dip_that_was_mended_is_found_with_both_ends() -> None:
    assert 0.6 <= share_near(60, (25, 38), np.random.default_rng(1))


def test_a_step_that_was_found_stays_where_it_is_as_runs_come() -> None:
    rng = np.random.default_rng(5)
    values = series(rng, 60, 20)

    assert {(20,)} == {find(values[:num], np.random.default_rng(0)) for num in (30, 40, 60)}


def test_one_odd_run_is_no_new_level() -> None:
    rng = np.random.default_rng(2)
    values = normal(rng, 30)
    values[[11, 29]] -= 0.4

    assert () == find(values, rng)


def test_runs_that_say_they_are_noisy_weigh_less() -> None:
    """Four runs with intervals of ± 80 % that lie 20 % low show nothing; with narrow ones they do."""
    rng = np.random.default_rng(3)
    values = normal(rng, 24)
    values[20:] -= 0.2
    sds = np.where(np.arange(24) >= 20, 0.4, NOISE / 4)

    assert (20,) == find(values, rng)
    assert () == find(values, rng, sds)


@pytest.mark.parametrize("num", [0, 1, 2, 3, 5])
def test_few_runs_have_no_change_point(num: int) -> None:
    assert () == find(np.arange(num, dtype=float), np.random.default_rng(0))


def test_runs_that_are_all_the_same_have_none() -> None:
    assert () == change_points([7.0] * 50, [0.0] * 50, np.random.default_rng(0))


def test_of_a_long_series_the_newest_runs_count() -> None:
    values = np.concatenate([np.ones(100), series(np.random.default_rng(4), MAX_POINTS, 200, step=-0.2)])

    assert (300,) == find(values, np.random.default_rng(0))
