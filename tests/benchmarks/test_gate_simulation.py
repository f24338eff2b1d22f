"""Simulated gates and the noise in them: what is drawn, what is cut from recordings, what the gate makes of it."""

from __future__ import annotations

import math
from itertools import islice, pairwise, repeat

import numpy as np
import pytest

from benchmarks.gate_noise import (
    DRAWN,
    GATES,
    MIN_GATES,
    PAIR_SD,
    gate_noise,
    heavy_tails,
    lane_noise,
    make_noise,
    noise_names,
    pair_sd,
)
from benchmarks.gate_simulation import LAUNCH_S, run_gate, simulate
from benchmarks.gate_trials import Pair, Trial
from flashprof.contracts.comparison import Verdict


def trial(*later_minus_earlier: float, disturbed: int = -1) -> Trial:
    """Pairs of both orders, whose later launch differs by so much."""
    pairs = tuple(
        Pair(
            order="BA" if place % 2 else "AB",
            difference=-step if place % 2 else step,
            base_log_tok_per_s=9.0,
            length_s=50.0,
            disturbances=("busy",) if place == disturbed else (),
        )
        for place, step in enumerate(later_minus_earlier)
    )
    return Trial(
        kind="aa-docs",
        number=0,
        lane=0,
        num_lanes=1,
        budget_s=1.0,
        started="",
        hardware="h",
        commit="c",
        status=0,
        pairs=pairs,
    )


def test_what_costs_nothing_may_land_and_what_is_planted_may_not() -> None:
    harmless, loss = (run_gate(repeat(0.0), effect, seed=1) for effect in (0.0, -0.05))

    assert (Verdict.NO_REGRESSION, Verdict.REGRESSION) == (harmless.verdict, loss.verdict)
    assert 0.0 == harmless.first_difference
    assert pytest.approx(math.log1p(-0.05)) == loss.first_difference


def test_the_budget_is_what_launches_cost() -> None:
    noise = heavy_tails(np.random.default_rng(1))
    short = run_gate(noise, -0.05, seed=1, budget_s=2 * 2 * LAUNCH_S)

    assert (Verdict.INCONCLUSIVE, 2) == (short.verdict, short.num_pairs)


@pytest.mark.parametrize("name", DRAWN)
def test_gates_are_rarely_wrong_and_more_often_right_than_one_pair(name: str) -> None:
    harmless, loss = (list(simulate(DRAWN[name], effect, num=60)) for effect in (0.0, -0.05))

    assert 0 == sum(gate.verdict is Verdict.REGRESSION for gate in harmless)
    assert 57 <= sum(gate.verdict is Verdict.REGRESSION for gate in loss)
    assert 51 <= sum(gate.covers for gate in harmless)
    assert 0 < sum(gate.first_difference < math.log(0.97) for gate in harmless)


def test_a_gate_of_one_number_is_the_same_whoever_runs_it() -> None:
    assert list(simulate(heavy_tails, 0.0, num=3)) == list(simulate(heavy_tails, 0.0, num=5))[:3]


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_noise_is_as_large_as_it_says(name: str) -> None:
    assert pytest.approx(PAIR_SD, rel=0.25) == pair_sd(DRAWN[name])


def test_launches_of_one_recording_differ_less_than_those_of_any() -> None:
    close, apart = (pair_sd(lane_noise("vm", gap=gap)) for gap in (5, None))

    assert 0.01 < close < apart < 0.3


def test_pairs_of_real_gates_keep_their_order_of_time_and_disturbed_ones_are_left_out() -> None:
    noise = gate_noise([trial(0.1, 0.2, 9.0, 0.3, disturbed=2), trial()])
    launches = list(islice(noise(np.random.default_rng(2)), 200))
    seconds = launches[1::2]

    assert {0.0} == set(launches[::2])
    assert {0.1, 0.2, 0.3} == set(seconds)
    # From wherever it begins it goes on in order.
    assert all(pytest.approx(0.1) == b - a or a == 0.3 for a, b in pairwise(seconds))


def test_noise_of_gates_is_there_once_enough_were_recorded() -> None:
    few, enough = [trial()] * MIN_GATES + [trial(0.1)] * (MIN_GATES - 1), [trial(0.1)] * MIN_GATES

    assert GATES not in noise_names(few)
    assert {*noise_names(few), GATES} == {*noise_names(enough)}
    assert {*DRAWN} < {*noise_names(few)}
    assert all(math.isfinite(pair_sd(make_noise(name, enough), num=5)) for name in noise_names(enough))
