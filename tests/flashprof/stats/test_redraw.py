"""Redrawn comparisons hold the recorded blocks, turned round by a fair coin, and nothing else."""

from __future__ import annotations

import math

import numpy as np
from calm_noise import block
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.comparison import Method
from flashprof.stats.redraw import disjoint_stretches, drawn_pairs, planted, random_pairings, redrawn_stretches

LAUNCHES = [[block(0.001 * number, number=number) for number in range(1, 11)], [], [block(0.5), block(0.6)]]


def test_disjoint_stretches_use_each_block_once_as_it_was() -> None:
    stretches = list(disjoint_stretches(LAUNCHES, 4))

    assert [4, 4] == [len(stretch) for stretch in stretches]
    assert LAUNCHES[0][:8] == [item for stretch in stretches for item in stretch]


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_redrawn_blocks_are_recorded_ones_turned_round(num_blocks: int, seed: int) -> None:
    recorded = {item.difference for blocks in LAUNCHES for item in blocks}

    for stretch in redrawn_stretches(LAUNCHES, num_blocks, 3, np.random.default_rng(seed)):
        assert num_blocks == len(stretch)
        assert {abs(item.difference) for item in stretch} <= recorded
        assert all((item.order == "ABBA") == (item.difference > 0) for item in stretch)


def test_the_coin_is_fair_and_neighbours_stay_together() -> None:
    stretches = list(redrawn_stretches(LAUNCHES[:1], 2, 4000, np.random.default_rng(1)))
    turned = sum(stretch[0].difference < 0 for stretch in stretches)
    steps = [abs(stretch[1].difference) - abs(stretch[0].difference) for stretch in stretches]

    assert 1850 < turned < 2150
    assert sum(math.isclose(step, 0.001) for step in steps) > 0.85 * len(steps)


def test_pairings_use_a_launch_once() -> None:
    means = [1.0, 2.0, 4.0, 8.0, 16.0]

    for pairs in random_pairings(means, 20, np.random.default_rng(2), pair_s=90.0):
        used = [end for pair in pairs for end in (pair.base_log_tok_per_s, pair.base_log_tok_per_s + pair.difference)]

        assert 2 == len(pairs)
        assert 4 == len(set(used))
        assert set(used) <= set(means)
        assert {Method.COLD} == {pair.method for pair in pairs}
        assert {pair.order for pair in pairs} <= {"AB", "BA"}


def test_drawn_pairs_scatter_by_the_sd_of_two_launches() -> None:
    [pairs] = drawn_pairs(0.01, 2000, 1, np.random.default_rng(3), pair_s=90.0)
    sd = float(np.std([pair.difference for pair in pairs]))

    assert math.isclose(sd, 0.01 * math.sqrt(2), rel_tol=0.1)
    assert 90.0 == pairs[0].length_s


def test_planting_moves_the_candidate_only() -> None:
    before = block(0.01)
    after = planted(before, -0.05)

    assert math.isclose(after.difference, -0.04)
    assert before.base_log_tok_per_s == after.base_log_tok_per_s
