"""Sources of noise with known components are told apart again, and odd data give no nonsense."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from calm_noise import GAP_S, WINDOW_S, block, launch

from flashprof.stats.noise import MeasuredLaunch, launch_means, launch_spread, noise_budget, window_choices


def with_steps(measured: MeasuredLaunch, rng: np.random.Generator, *, sd: float, correlation: float) -> MeasuredLaunch:
    """Steps of about 0.1 s whose time goes with their tokens, times AR(1) noise, all through the launch."""
    num_steps = round(measured.windows[-1].end_ns / 1e8)
    noise = np.zeros(num_steps)
    for index in range(1, num_steps):
        noise[index] = correlation * noise[index - 1] + rng.normal(0, sd * math.sqrt(1 - correlation**2))
    tokens = rng.integers(500, 1500, num_steps)
    seconds = (0.02 + 0.08 * tokens / 1000) * np.exp(noise)
    ends_ns = np.round(np.cumsum(seconds) * 1e9).astype(int)
    return replace(measured, step_ends_ns=ends_ns.tolist(), step_tokens=tokens.tolist())


def test_window_and_pair_noise_are_recovered() -> None:
    rng = np.random.default_rng(1)

    budget = noise_budget([launch(rng, window_sd=0.01, name=name) for name in "abcd"])

    block_s = 4 * (WINDOW_S + GAP_S)
    assert budget.window.sd == pytest.approx(0.01, rel=0.1)
    assert budget.block.sd == pytest.approx(0.01, rel=0.15)
    assert budget.pair.sd == pytest.approx(0.01 * math.sqrt(block_s / 20), rel=0.15)
    assert budget.block.low < 0.01 < budget.block.high
    assert budget.block_s == pytest.approx(block_s)
    assert abs(budget.window_autocorrelation) < 0.1


def wandering(rng: np.random.Generator, name: str, *, sd: float, correlation: float) -> MeasuredLaunch:
    """Windows whose level is an AR(1) series."""
    calm = launch(rng, name=name)
    noise = [rng.normal(0, sd)]
    for _ in calm.windows[1:]:
        noise.append(correlation * noise[-1] + rng.normal(0, sd * math.sqrt(1 - correlation**2)))
    windows = tuple(replace(item, log_tok_per_s=9 + x) for item, x in zip(calm.windows, noise, strict=True))
    return replace(calm, windows=windows)


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.5, 0.7])
def test_intervals_of_window_noise_hold_the_truth_where_windows_wander(correlation: float) -> None:
    rng = np.random.default_rng(14)
    num_trials, truth, held = 200, 0.03, 0
    for _ in range(num_trials):
        launches = [wandering(rng, name, sd=truth, correlation=correlation) for name in "abcdef"]
        spread = noise_budget(launches).window
        held += spread.low <= truth <= spread.high

    print(f"window sd at {correlation}: the 95 % interval held the truth in {held} of {num_trials}")
    assert 0.90 * num_trials <= held <= 0.99 * num_trials


def test_intervals_of_launch_noise_hold_the_truth_with_unequal_counts() -> None:
    rng = np.random.default_rng(2)
    num_trials, truth = 200, 0.02
    held = 0
    for _ in range(num_trials):
        launches = [
            launch(rng, num_blocks=int(rng.integers(5, 20)), level=rng.normal(9, truth), window_sd=0.03, name=name)
            for name in "abcdef"
        ]
        spread = noise_budget(launches).launch
        assert spread is not None
        held += spread.low <= truth <= spread.high

    print(f"launch sd: the 95 % interval held the truth in {held} of {num_trials}")
    assert 0.91 * num_trials <= held <= 0.99 * num_trials


def test_equal_launches_have_a_launch_noise_that_may_be_zero() -> None:
    rng = np.random.default_rng(3)

    spread = noise_budget([launch(rng, name=name) for name in "abcde"]).launch

    assert spread is not None
    assert spread.low == 0
    assert spread.sd < 0.002


def test_what_two_runs_differ_by_holds_the_noise_of_their_windows() -> None:
    rng = np.random.default_rng(4)
    launches = [launch(rng, name=str(index), num_blocks=5, window_sd=0.02) for index in range(40)]

    short, long = launch_spread(launches, run_s=1.0), launch_spread(launches, run_s=16.0)

    assert short is not None
    assert long is not None
    assert short.sd == pytest.approx(0.02, rel=0.3)
    assert long.sd == pytest.approx(0.02 / 4, rel=0.3)
    assert long.freedom == 39


def test_only_whole_launches_speak_of_launches() -> None:
    rng = np.random.default_rng(5)
    launches = [launch(rng, name="a"), launch(rng, name="b", is_whole=False)]

    budget = noise_budget(launches)

    assert budget.launch is None
    assert launch_spread(launches, 10.0) is None
    assert len(launch_means(launches, 10.0)) == 1
    assert budget.num_launches == 2


def test_drift_is_seen_and_leaves_pairs_alone() -> None:
    rng = np.random.default_rng(6)

    budget = noise_budget([launch(rng, window_sd=0.002, drift_per_min=-0.01, name=name) for name in "abcd"])

    assert budget.drift_per_min is not None
    assert budget.drift_per_min.low < -0.01 < budget.drift_per_min.high
    assert budget.drift_per_min.high < -0.009
    assert budget.steepest_drift_per_min < -0.01
    assert budget.block.sd == pytest.approx(0.002, rel=0.2)
    assert budget.window_autocorrelation > 0.5


def test_step_noise_is_what_tokens_do_not_explain() -> None:
    rng = np.random.default_rng(7)
    launches = [with_steps(launch(rng, name=name), rng, sd=0.05, correlation=0.5) for name in "ab"]

    budget = noise_budget(launches)

    assert budget.step is not None
    assert budget.step.sd == pytest.approx(0.05, rel=0.1)
    assert budget.step.low < 0.05 < budget.step.high
    assert budget.step_autocorrelation == pytest.approx(0.5, abs=0.07)


def test_short_windows_make_quieter_pairs_where_the_level_wanders() -> None:
    rng = np.random.default_rng(8)
    launches = [with_steps(launch(rng, name=name), rng, sd=0.05, correlation=0.98) for name in "abcd"]

    choices = {choice.num_steps: choice for choice in window_choices(launches)}

    # The level wanders within 50 steps: both arms of windows of 4 still see the same one, of 32 no more.
    assert choices[32].sd_per_20_s > 1.3 * choices[4].sd_per_20_s
    assert choices[4].num_tokens == pytest.approx(4000, rel=0.1)


def test_long_windows_waste_less_where_steps_are_independent() -> None:
    rng = np.random.default_rng(9)
    launches = [with_steps(launch(rng, name=name), rng, sd=0.05, correlation=0.0) for name in "abcd"]

    choices = window_choices(launches)

    # Four windows of one step make a difference of 5 %; with 2 steps lost before each, 17 such blocks take 20 s.
    assert choices[0].num_steps == 1
    assert choices[0].sd_per_20_s == pytest.approx(0.05 * math.sqrt(4 * 3 * 0.1 / 20), rel=0.1)
    assert choices[-1].sd_per_20_s < choices[0].sd_per_20_s


def test_disturbed_blocks_and_windows_are_left_out() -> None:
    rng = np.random.default_rng(10)
    clean = launch(rng)
    wild = replace(clean.windows[7], log_tok_per_s=5.0, disturbances=("a neighbour",))
    disturbed = replace(
        clean,
        windows=(*clean.windows[:7], wild, *clean.windows[8:]),
        blocks=(*clean.blocks, block(3.0, disturbances=("a neighbour",))),
    )

    budget = noise_budget([disturbed])

    assert budget.window.sd < 0.015
    assert budget.block.sd < 0.015
    assert budget.num_windows == len(clean.windows) - 1


def test_heavy_tails_widen_the_interval() -> None:
    rng = np.random.default_rng(11)
    calm = launch(rng, num_blocks=200)
    tails = tuple(replace(item, difference=float(rng.standard_t(3)) / 100) for item in calm.blocks)

    gaussian, heavy = noise_budget([calm]).block, noise_budget([replace(calm, blocks=tails)]).block

    assert heavy.freedom < 0.7 * gaussian.freedom
    assert heavy.high / heavy.low > gaussian.high / gaussian.low


def test_noise_without_any_spread_is_zero() -> None:
    still = launch(np.random.default_rng(12), window_sd=0.0)

    budget = noise_budget([still, replace(still, launch="b")])

    assert budget.window.sd == pytest.approx(0.0, abs=1e-12)
    assert budget.block.sd == 0.0
    assert budget.launch is not None
    assert budget.launch.sd == 0.0


def test_one_block_is_no_noise() -> None:
    with pytest.raises(ValueError, match="two blocks"):
        noise_budget([launch(np.random.default_rng(13), num_blocks=1)])
