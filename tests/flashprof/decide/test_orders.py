"""Orders of arms: fair, balanced, and the same whenever they are asked for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.decide.orders import block_order

SEEDS = st.integers(-(2**63), 2**63)
NUMBERS = st.integers(1, 10**6)


@given(SEEDS, NUMBERS, st.sampled_from([2, 4, 8, 16]))
def test_an_order_is_one_of_two_mirror_images(seed: int, number: int, num_windows: int) -> None:
    order = block_order(seed, number, num_windows)
    images = {2: {"AB", "BA"}, 4: {"ABBA", "BAAB"}, 8: {"ABBABAAB", "BAABABBA"}}

    assert order in images.get(num_windows, {order})
    assert num_windows / 2 == order.count("A") == order.count("B")


@given(SEEDS, NUMBERS, st.sampled_from([4, 8, 16]))
def test_linear_drift_cancels_within_a_block(seed: int, number: int, num_windows: int) -> None:
    signs = np.array([1 if letter == "B" else -1 for letter in block_order(seed, number, num_windows)])

    assert 0 == signs @ np.arange(num_windows)
    if num_windows >= 8:
        assert 0 == signs @ np.arange(num_windows) ** 2


@given(SEEDS, NUMBERS, st.sampled_from([2, 4, 8]))
def test_the_second_block_of_a_pair_is_the_first_turned_round(seed: int, pair: int, num_windows: int) -> None:
    first, second = (block_order(seed, number, num_windows) for number in (2 * pair - 1, 2 * pair))

    assert first == second.translate(str.maketrans("AB", "BA"))


def test_another_process_draws_the_same_orders() -> None:
    code = "from flashprof.decide.orders import block_order; print(*(block_order(7, n) for n in range(1, 40)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert " ".join(block_order(7, number) for number in range(1, 40)) == done.stdout.strip()


@pytest.mark.parametrize("num_windows", [2, 4, 8])
def test_the_coin_is_fair_and_has_no_memory_of_other_pairs(num_windows: int) -> None:
    coins = np.array(
        [[block_order(seed, number, num_windows)[0] == "A" for number in range(1, 201, 2)] for seed in range(100)]
    )
    same_as_before = coins[:, 1:] == coins[:, :-1]

    # Four standard errors of 10,000 tosses are 2 points.
    assert 0.5 == pytest.approx(coins.mean(), abs=0.02)
    assert 0.5 == pytest.approx(same_as_before.mean(), abs=0.02)


def test_studies_and_lengths_toss_coins_of_their_own() -> None:
    first = [block_order(1, number)[0] for number in range(200)]

    assert 0.5 == pytest.approx(np.mean([block_order(2, n)[0] == first[n] for n in range(200)]), abs=0.15)
    assert 0.5 == pytest.approx(np.mean([block_order(1, n, 2)[0] == first[n] for n in range(200)]), abs=0.15)
