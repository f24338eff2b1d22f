"""Verdicts on noise that machines made: steps recorded on a CPU and on an H200, cut into A/A comparisons."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from flashprof.contracts.comparison import Block, Comparison, DecisionRule, Method, Verdict
from flashprof.stats.compare import compare_blocks

DATA = Path(__file__).parent / "data"
NUM_COMPARISONS = 1_000
NUM_BLOCKS = 16
WINDOW, DROPPED = 4, 1
RULE = DecisionRule()
TURN = str.maketrans("AB", "BA")


def read_steps(name: str) -> np.ndarray:
    """(num_steps, 2): seconds and tokens."""
    steps = np.array(json.loads((DATA / name).read_text(encoding="utf-8"))["steps"], dtype=np.float64)
    steps[:, 0] /= 1e6
    return steps


def block_noise(steps: np.ndarray, first: int) -> np.ndarray:
    """What ABBA gives for each block from step *first* on, where A and B are the same; batches adjusted for."""
    design = np.column_stack([np.ones(len(steps)), steps[:, 1]])
    expected_s = design @ np.linalg.lstsq(design, steps[:, 0], rcond=None)[0]
    num_steps = NUM_BLOCKS * 4 * (WINDOW + DROPPED)
    taken = np.stack([expected_s, steps[:, 0]])[:, first : first + num_steps]
    windows = taken.reshape(2, NUM_BLOCKS, 4, WINDOW + DROPPED)[..., DROPPED:].sum(axis=-1)
    rates = np.log(windows[0] / windows[1])
    noise: np.ndarray = (rates[:, 1] + rates[:, 2] - rates[:, 0] - rates[:, 3]) / 2
    return noise


def compare(noise: np.ndarray, rng: np.random.Generator, *, effect: float = 0.0) -> Comparison:
    """Look after every block until it is clear; orders by one coin for two blocks, as `decide.orders` tosses it."""
    blocks: list[Block] = []
    comparison = None
    first = ["ABBA" if rng.random() < 0.5 else "BAAB" for _ in range(0, len(noise), 2)]
    orders = [order for drawn in first for order in (drawn, drawn.translate(TURN))]
    for number, (value, order) in enumerate(zip(noise, orders, strict=True)):
        sign = 1 if order == "ABBA" else -1
        blocks.append(
            Block(
                number=number + 1,
                method=Method.HOT,
                order=order,
                launches=("recorded",),
                site="",
                difference=sign * float(value) + math.log1p(-effect),
                base_log_tok_per_s=9.0,
                num_windows=4,
                length_s=3.0,
            )
        )
        comparison = compare_blocks(blocks, RULE, spent_s=3.0 * len(blocks))
        if comparison.verdict is not Verdict.INCONCLUSIVE:
            break
    assert comparison is not None
    return comparison


def comparisons(name: str, *, effect: float = 0.0) -> list[Comparison]:
    steps, rng = read_steps(name), np.random.default_rng(0)
    room = len(steps) - NUM_BLOCKS * 4 * (WINDOW + DROPPED)
    return [
        compare(block_noise(steps, int(rng.integers(room + 1))), rng, effect=effect) for _ in range(NUM_COMPARISONS)
    ]


@pytest.mark.parametrize("name", ["steps_cpu.json", "steps_h200.json"])
def test_without_a_difference_a_comparison_hardly_ever_alarms_and_its_interval_covers(name: str) -> None:
    found = comparisons(name)
    alarms = sum(item.verdict is Verdict.REGRESSION or item.deciding.low > 0 for item in found)
    covered = sum(item.effect.low <= 0 <= item.effect.high for item in found) / NUM_COMPARISONS
    print(f"{name}: {alarms} false alarms of {NUM_COMPARISONS}, coverage {covered:.3f}")

    assert alarms <= 0.01 * NUM_COMPARISONS
    # Comparisons share steps: the interval of this share is wider than that of 1,000 independent ones.
    assert 0.92 <= covered <= 0.98


@pytest.mark.parametrize("name", ["steps_cpu.json", "steps_h200.json"])
def test_a_planted_slow_down_is_found_in_the_same_noise(name: str) -> None:
    found = comparisons(name, effect=0.17)
    share = sum(item.verdict is Verdict.REGRESSION for item in found) / NUM_COMPARISONS
    covered = sum(item.effect.low <= -0.17 <= item.effect.high for item in found) / NUM_COMPARISONS
    print(f"{name}: {share:.3f} found, coverage {covered:.3f}")

    assert share >= 0.9
    assert 0.92 <= covered <= 0.98
