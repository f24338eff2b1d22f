"""Series for the history: ten small losses in a row, flat ones, and runs of real gates about their lane's level."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gate_drift import flat, gaussian, heavy_tails, losses, odd_runs, recorded
from benchmarks.gate_trials import Pair, Trial


def trial(lane: int, *rates: float) -> Trial:
    pairs = tuple(Pair(order="AB", difference=0.0, base_log_tok_per_s=rate, length_s=50.0) for rate in rates)
    return Trial(
        kind="aa-docs",
        number=0,
        lane=lane,
        num_lanes=2,
        budget_s=1.0,
        started="",
        hardware="h",
        commit="c",
        status=0,
        pairs=pairs,
    )


def test_losses_stand_out_of_small_noise_and_are_too_small_for_a_threshold() -> None:
    courses = list(losses(gaussian(0.001), num_each=4, num=5))

    assert all(course.is_told for course in courses)
    assert not any(course.is_called for course in courses)


def test_only_what_is_told_before_the_sixth_loss_counts() -> None:
    """Among the first five of one run each the noise hides the losses; with the five behind them all ten show."""
    courses = list(losses(gaussian(0.02), num_each=1, num=10))

    assert sum(course.is_told for course in courses) < 5


def test_a_threshold_cries_on_flat_series_that_the_history_is_silent_on() -> None:
    courses = list(flat(gaussian(0.015), num=20))

    assert sum(course.is_told for course in courses) <= 2
    assert sum(course.is_called for course in courses) >= 19


@pytest.mark.parametrize("make", [gaussian, heavy_tails])
def test_noise_is_as_large_as_it_says(make: object) -> None:
    values = make(0.02)(np.random.default_rng(1), 20_000)  # type: ignore[operator]

    assert pytest.approx(0.02, rel=0.15) == float(np.std(values))


def test_one_run_in_twenty_is_slow() -> None:
    values = odd_runs(0.001)(np.random.default_rng(1), 20_000)

    assert pytest.approx(0.05, rel=0.2) == float(np.mean(values < -0.004))
    assert values.max() < 0.01


def test_real_runs_are_drawn_about_the_level_of_their_lane() -> None:
    draw = recorded([trial(0, 8.9, 9.1), trial(0, 9.0), trial(1, 5.0, 5.2), trial(1)])
    values = draw(np.random.default_rng(1), 500)

    assert pytest.approx(0.1) == float(values.max())
    assert pytest.approx(-0.1) == float(values.min())
