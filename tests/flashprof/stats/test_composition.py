"""What batches explain is taken out of tok/s: nothing of the arms' difference with it, and never a NaN."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.comparison import Arm
from flashprof.contracts.events import Step
from flashprof.stats.composition import adjusted_log_rates, fit_step_cost, log_excess
from flashprof.windows.switches import HotWindow, Switch

ARMS = (Arm.BASE, Arm.CANDIDATE, Arm.CANDIDATE, Arm.BASE)


def make_window(arm: Arm, lengths_ns: list[int], tokens: list[int], padding: list[int] | None = None) -> HotWindow:
    switch = Switch(
        command_id=1,
        at_ns=0,
        cell=arm,
        block=1,
        position=0,
        order="ABBA",
        label="1.1 base",
        settle_steps=1,
        window_tokens=1,
    )
    ends_ns = np.cumsum(lengths_ns).tolist()
    padding = padding or [0] * len(tokens)
    steps = tuple(Step(i, *row) for i, row in enumerate(zip(ends_ns, tokens, tokens, padding, strict=True)))
    return HotWindow(switch=switch, start_ns=0, steps=steps)


def draw(
    rng: np.random.Generator, *, num_windows: int = 40, slower: float = 0.0, stops: float = 0.0
) -> list[HotWindow]:
    """Windows of 4 steps in ABBA; a step takes 30 ms and 60 ns a token, with noise of 4 %."""
    windows = []
    for index in range(num_windows):
        arm = ARMS[index % 4]
        tokens = rng.choice([512, 768, 1024, 1536, 2048], 4)
        lengths_s = (0.03 + 60e-6 * tokens) * np.exp(rng.normal(0, 0.04, 4)) * (rng.random(4) < stops) * 79
        lengths_s += (0.03 + 60e-6 * tokens) * np.exp(rng.normal(0, 0.04, 4))
        lengths_s *= 1 + slower if arm is Arm.CANDIDATE else 1
        windows.append(make_window(arm, np.round(lengths_s * 1e9).astype(int).tolist(), tokens.tolist()))
    return windows


def difference(windows: list[HotWindow], rates: tuple[float, ...]) -> float:
    by_arm = {arm: [rate for rate, w in zip(rates, windows, strict=True) if w.switch.cell == arm] for arm in set(ARMS)}
    return float(np.mean(by_arm[Arm.CANDIDATE]) - np.mean(by_arm[Arm.BASE]))


def raw(windows: list[HotWindow]) -> tuple[float, ...]:
    return tuple(window.log_tok_per_s for window in windows)


@pytest.mark.parametrize("slower", [0.0, 0.02, 0.17])
def test_a_planted_difference_stays_and_its_noise_falls(slower: float) -> None:
    rng = np.random.default_rng(1)
    drawn = [draw(rng, slower=slower) for _ in range(200)]
    adjusted = [difference(windows, adjusted_log_rates(windows)) for windows in drawn]
    measured = [difference(windows, raw(windows)) for windows in drawn]

    assert -math.log(1 + slower) == pytest.approx(np.mean(adjusted), abs=4 * np.std(adjusted) / math.sqrt(200))
    assert np.std(adjusted) < 0.5 * np.std(measured)


def test_a_difference_is_not_mistaken_for_one_of_batches() -> None:
    # The slower arm happens to get the longer batches: without a part of its own for each arm, they would explain it.
    rng = np.random.default_rng(9)
    windows = []
    for index in range(200):
        arm = ARMS[index % 4]
        tokens = rng.integers(1400, 2000, 4) if arm is Arm.CANDIDATE else rng.integers(1000, 1600, 4)
        lengths_s = (0.03 + 60e-6 * tokens) * (1.3 if arm is Arm.CANDIDATE else 1.0)
        windows.append(make_window(arm, np.round(lengths_s * 1e9).astype(int).tolist(), tokens.tolist()))

    assert -math.log(1.3) == pytest.approx(difference(windows, adjusted_log_rates(windows)), abs=0.01)


def test_the_level_is_that_of_the_typical_composition() -> None:
    windows = draw(np.random.default_rng(2), num_windows=400)

    assert np.mean(adjusted_log_rates(windows)) == pytest.approx(np.mean(raw(windows)), abs=0.02)


def test_typical_steps_set_one_level_for_all_windows() -> None:
    windows = draw(np.random.default_rng(2), num_windows=60)
    typical = [step for window in windows[20:] for step in window.steps]
    early, late = (adjusted_log_rates(windows[:num], windows, typical=typical) for num in (10, 40))
    own = adjusted_log_rates(windows[:10], windows)

    assert early == pytest.approx(late[:10], abs=0.005)
    assert np.mean(own) == pytest.approx(np.mean(raw(windows[:10])), abs=0.02)
    assert np.ptp(np.array(own) - np.array(early)) == pytest.approx(0, abs=1e-9)


def test_each_cell_has_a_fixed_part_of_its_own() -> None:
    # Four cells of very different cost, the dearer with the longer batches.
    rng = np.random.default_rng(9)
    windows = []
    for index in range(200):
        tokens = rng.integers(1000 + 200 * (index % 4), 1600 + 200 * (index % 4), 4)
        lengths_ns = np.round((0.03 + 0.02 * (index % 4) + 60e-6 * tokens) * 1e9).astype(int)
        window = make_window(Arm.BASE, lengths_ns.tolist(), tokens.tolist())
        windows.append(replace(window, switch=replace(window.switch, cell=f"cell-{index % 4}")))
    cost = fit_step_cost(windows)

    assert cost is not None
    assert 60e-6 == pytest.approx(cost.per_token_s, rel=0.01)


def test_standstills_do_not_bend_the_model() -> None:
    clean, spoilt = (fit_step_cost(draw(np.random.default_rng(3), stops=stops)) for stops in (0.0, 0.05))

    assert clean is not None
    assert spoilt is not None
    assert clean.per_token_s == pytest.approx(60e-6, rel=0.05)
    assert spoilt.per_token_s == pytest.approx(60e-6, rel=0.05)


def test_padding_is_in_the_model_where_it_costs_time_only() -> None:
    rng = np.random.default_rng(4)
    tokens = rng.integers(500, 2000, (30, 4))
    padding = rng.integers(0, 1000, (30, 4))

    def fitted(per_padding_s: float) -> float:
        lengths_s = (0.03 + 60e-6 * tokens + per_padding_s * padding) * np.exp(rng.normal(0, 0.02, tokens.shape))
        lengths_ns = np.round(lengths_s * 1e9).astype(int)
        windows = [
            make_window(ARMS[i % 4], lengths_ns[i].tolist(), tokens[i].tolist(), padding[i].tolist()) for i in range(30)
        ]
        cost = fit_step_cost(windows)
        assert cost is not None
        return cost.per_padding_s

    assert fitted(40e-6) == pytest.approx(40e-6, rel=0.1)
    assert fitted(0.0) == pytest.approx(0.0, abs=2e-6)


@pytest.mark.parametrize("num_windows", [1, 7])
def test_too_few_steps_leave_tok_per_s_as_measured(num_windows: int) -> None:
    windows = draw(np.random.default_rng(5), num_windows=num_windows)

    assert adjusted_log_rates(windows) == raw(windows)


def test_more_steady_steps_help_the_first_windows() -> None:
    windows = draw(np.random.default_rng(6), num_windows=24)

    assert adjusted_log_rates(windows[:4]) == raw(windows[:4])
    assert adjusted_log_rates(windows[:4], windows[4:]) != raw(windows[:4])


def test_batches_that_are_all_alike_leave_tok_per_s_as_measured() -> None:
    windows = [make_window(ARMS[index % 4], [100 + index] * 4, [1000] * 4) for index in range(20)]

    assert adjusted_log_rates(windows) == raw(windows)


def test_a_model_that_makes_a_window_almost_free_is_not_used() -> None:
    windows = draw(np.random.default_rng(8), num_windows=20)
    windows.append(make_window(Arm.BASE, [50_000_000], [10]))

    assert adjusted_log_rates(windows) == raw(windows)


def test_what_batches_explain_is_no_excess() -> None:
    windows = draw(np.random.default_rng(7), num_windows=40)
    plain, adjusted = (
        np.std([excess for window in windows for excess in log_excess(window, cost)])
        for cost in (None, fit_step_cost(windows))
    )

    assert adjusted < 0.5 * plain


def test_a_step_without_tokens_has_no_excess() -> None:
    assert log_excess(make_window(Arm.BASE, [100, 100], [10, 0]), None) == []


steps = st.tuples(st.integers(1, 10**12), st.integers(1, 10**6), st.integers(0, 10**6))


@given(st.lists(st.tuples(st.sampled_from(list(Arm)), st.lists(steps, min_size=1, max_size=20)), max_size=12))
def test_rates_are_always_finite(drawn: list[tuple[Arm, list[tuple[int, int, int]]]]) -> None:
    windows = [make_window(arm, *(list(column) for column in zip(*rows, strict=True))) for arm, rows in drawn]
    rates = adjusted_log_rates(windows)

    assert len(windows) == len(rates)
    assert all(map(math.isfinite, rates))
