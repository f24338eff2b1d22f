"""A launch's pace is what its phases have in common; what one of them costs more is not."""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import pstdev

import pytest
from block_examples import some_blocks
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import EQUAL_PACE, TOK_PER_S, Threshold
from flashprof.stats.margin import MarginRule, beside_the_whole, gate_verdict, judge_metric
from flashprof.stats.pace import pace_change

STEP = {"forward": 22.0, "backward": 44.0, "loss": 16.0, "receive": 8.0, "mask": 4.0, "optimizer": 6.0}
PHASES = st.dictionaries(st.text(min_size=1, max_size=3), st.floats(1e-3, 1e6), min_size=3, max_size=8)


@given(base=PHASES, log_pace=st.floats(-2, 2))
def test_what_slows_all_phases_alike_is_the_pace(base: dict[str, float], log_pace: float) -> None:
    head = {name: value * math.exp(log_pace) for name, value in base.items()}

    assert pace_change(base, head) == pytest.approx(log_pace, abs=1e-9)


@given(base=PHASES, data=st.data())
def test_it_lies_among_the_phases_changes_and_turns_its_sign_with_them(
    base: dict[str, float], data: st.DataObject
) -> None:
    head = {name: data.draw(st.floats(1e-3, 1e6)) for name in base}
    changes = [math.log(head[name] / base[name]) for name in base]

    found = pace_change(base, head)

    assert min(changes) - 1e-9 <= found <= max(changes) + 1e-9
    assert pace_change(head, base) == pytest.approx(-found, abs=1e-9)


@pytest.mark.parametrize("slower", ["forward", "loss", "mask"])
def test_one_phase_that_costs_three_times_as_much_moves_it_by_less_than_a_tenth(slower: str) -> None:
    head = {**STEP, slower: 3 * STEP[slower]}

    assert 0 <= pace_change(STEP, head) < 0.1


def test_with_fewer_than_three_phases_in_common_there_is_none() -> None:
    assert math.isnan(pace_change({"step": 1.0}, {"step": 2.0}))
    assert math.isnan(pace_change({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 1.0, "c": 0.0, "d": 1.0}))
    assert math.isnan(pace_change({}, STEP))


THRESHOLDS = [Threshold(metric=metric, max_regression=0.03) for metric in (TOK_PER_S, EQUAL_PACE)]
RULE = MarginRule(alpha=0.01, budget_s=1.0, num_metrics=2, num_first=2)
PACE_SD, PHASE_SD = 0.09, 0.03
"""Of a launch, all its phases alike, and of each phase: pairs differ by 13 % in tok/s, by 1.2 % at equal pace."""
MAX_PAIRS = 18
"""Of 20 minutes."""


def launch(rng: random.Random, cost: float = 0.0) -> dict[str, float]:
    """Phases of a launch, with *cost* more of the step in its `loss`."""
    pace = math.exp(rng.gauss(0, PACE_SD))
    work = {name: value * pace * math.exp(rng.gauss(0, PHASE_SD)) for name, value in STEP.items()}
    return {**work, "loss": work["loss"] + cost * sum(work.values())}


def pair(rng: random.Random, cost: float) -> tuple[float, float]:
    """Differences of log tok/s: as they are, and at equal pace."""
    base, head = launch(rng), launch(rng, cost)
    difference = math.log(sum(base.values()) / sum(head.values()))
    return difference, difference + pace_change(base, head)


def gates(cost: float, num: int) -> Counter[Verdict]:
    """Verdicts of gates that are looked at after every pair."""
    verdicts: Counter[Verdict] = Counter()
    for seed in range(num):
        rng = random.Random(seed)
        pairs: list[tuple[float, float]] = []
        verdict = Verdict.INCONCLUSIVE
        while verdict is Verdict.INCONCLUSIVE and len(pairs) < MAX_PAIRS:
            pairs.append(pair(rng, cost))
            found = [
                judge_metric(some_blocks(values), threshold, RULE, place=place, unit="tok/s", spent_s=1.0)
                for place, (threshold, values) in enumerate(zip(THRESHOLDS, zip(*pairs, strict=True), strict=True))
            ]
            verdict = gate_verdict(beside_the_whole(found))
        verdicts[verdict] += 1
    return verdicts


def test_harmless_gates_fail_less_than_once_in_two_hundred_where_launches_differ_by_13_percent() -> None:
    assert gates(0.0, 1000)[Verdict.REGRESSION] <= 5


def test_five_percent_in_one_phase_is_caught_there() -> None:
    assert gates(0.0526, 200)[Verdict.REGRESSION] >= 0.95 * 200


def test_a_cost_in_one_phase_is_left_beside_launches_that_differ_by_a_tenth() -> None:
    pairs = [pair(random.Random(seed), 0.05) for seed in range(400)]
    raw, beside = ([one[place] for one in pairs] for place in range(2))

    assert pstdev(raw) > 4 * pstdev(beside)
    # Never more than it costs, and at most a fifth less.
    assert math.log(1 / 1.05) < sum(beside) / len(beside) < 0.8 * math.log(1 / 1.05)
