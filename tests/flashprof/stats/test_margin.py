"""How often gates are right: simulated ones that are looked at after every pair, and single verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from block_examples import a_block, some_blocks

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import EQUAL_PACE, START_UP, TOK_PER_S, MetricVerdict, Threshold
from flashprof.decide.orders import block_order
from flashprof.stats.margin import MarginRule, beside_the_whole, gate_verdict, judge_launches, judge_metric

PAIR_S, BUDGET_S = 70.0, 1200.0
NUM_MAX = math.ceil(BUDGET_S / PAIR_S)
RULE = MarginRule(alpha=0.01, budget_s=BUDGET_S)
TOK = Threshold(metric=TOK_PER_S, max_regression=0.03)
PAIR_SD = 0.02
NUM_GATES = 1000
NUM_PLANTED = 300

Noise = Callable[[np.random.Generator, int], float]
"""(rng, 1 or −1 by the pair's order) → log difference."""


def gaussian(rng: np.random.Generator, turn: int) -> float:
    del turn
    return PAIR_SD * float(rng.normal())


def heavy_tails(rng: np.random.Generator, turn: int) -> float:
    del turn
    return PAIR_SD * float(rng.standard_t(3)) / math.sqrt(3)


def drift(rng: np.random.Generator, turn: int) -> float:
    """The same in each pair: turned with the order, and with it the sign."""
    return PAIR_SD * (float(rng.normal()) / 2 + turn)


NOISES = (gaussian, heavy_tails, drift)


def judge(differences: Sequence[float], threshold: Threshold = TOK, rule: MarginRule = RULE) -> MetricVerdict:
    blocks = some_blocks(differences)
    return judge_metric(blocks, threshold, rule, place=0, unit="tok/s", spent_s=PAIR_S * len(blocks))


def simulated(
    noise: Noise, change: float, rule: MarginRule = RULE, *, num: int = NUM_PLANTED
) -> tuple[Counter[Verdict], list[int]]:
    """Verdicts of many gates, and after how many pairs each stopped."""
    rng = np.random.default_rng(7)
    verdicts: Counter[Verdict] = Counter()
    lengths = []
    for seed in range(num):
        blocks = []
        for number in range(1, NUM_MAX + 1):
            order = block_order(seed, number, 2)
            difference = math.log1p(change) + noise(rng, 1 if order == "AB" else -1)
            blocks.append(a_block(number, difference, order))
            found = judge_metric(blocks, TOK, rule, place=0, unit="tok/s", spent_s=PAIR_S * number)
            if found.verdict is not Verdict.INCONCLUSIVE:
                break
        verdicts[found.verdict] += 1
        lengths.append(len(blocks))
    return verdicts, lengths


@pytest.mark.parametrize("noise", NOISES)
def test_harmless_changes_fail_less_than_once_in_a_hundred(noise: Noise) -> None:
    verdicts, _ = simulated(noise, 0.0, num=NUM_GATES)

    assert verdicts[Verdict.REGRESSION] <= 0.001 * NUM_GATES
    assert verdicts[Verdict.NO_REGRESSION] >= 0.85 * NUM_GATES


@pytest.mark.parametrize("noise", NOISES)
def test_five_percent_is_caught_within_the_usual_budget(noise: Noise) -> None:
    verdicts, _ = simulated(noise, -0.05)

    assert verdicts[Verdict.REGRESSION] >= 0.95 * NUM_PLANTED
    assert 0 == verdicts[Verdict.NO_REGRESSION]


def test_seventeen_percent_is_caught_at_once() -> None:
    verdicts, lengths = simulated(gaussian, -0.17)

    assert NUM_PLANTED == verdicts[Verdict.REGRESSION]
    assert median(lengths) <= 5


def test_one_run_against_a_fixed_threshold_cries_wolf_and_misses() -> None:
    rng = np.random.default_rng(7)
    floor = math.log1p(-0.03)
    false = sum(gaussian(rng, 1) < floor for _ in range(NUM_GATES))
    caught = sum(math.log1p(-0.05) + gaussian(rng, 1) < floor for _ in range(NUM_GATES))

    # The same machine without statistics: 6 % of harmless changes fail, and one loss of six is missed.
    assert 0.04 * NUM_GATES < false
    assert caught < 0.9 * NUM_GATES


def test_other_metrics_cost_the_first_no_pair() -> None:
    alone = simulated(gaussian, -0.05)[1]
    among_four = simulated(gaussian, -0.05, replace(RULE, num_metrics=4))[1]

    assert median(among_four) <= median(alone) + 1


def test_alpha_is_shared_and_never_exceeded() -> None:
    rule = MarginRule(alpha=0.01, budget_s=1.0, num_metrics=5)

    assert 0.01 == MarginRule(alpha=0.01, budget_s=1.0).share(0)
    assert pytest.approx(0.01) == sum(map(rule.share, range(5)))
    assert rule.share(0) > 10 * rule.share(1)


def test_worse_for_certain_by_less_than_allowed_is_no_failure() -> None:
    found = judge([-0.0101, -0.0099, -0.0100, -0.0102, -0.0098])

    assert Verdict.NO_REGRESSION is found.verdict
    assert found.comparison is not None
    assert found.comparison.deciding.high < 0
    assert "3 % is allowed" in found.reason


def test_an_estimate_above_the_threshold_is_no_failure_while_it_may_be_noise() -> None:
    found = judge([-0.10, 0.02, -0.09, 0.03, -0.08])

    assert Verdict.INCONCLUSIVE is found.verdict
    assert found.change is not None
    assert found.change.estimate < -0.03
    assert "more pair" in found.reason
    assert found.comparison is not None
    assert found.comparison.to_resolve_s is not None
    assert found.comparison.to_resolve_s >= 20.0


def test_worse_for_certain_but_near_the_threshold_stays_open() -> None:
    found = judge([-0.028, -0.031, -0.0275, -0.0295, -0.027])

    assert Verdict.INCONCLUSIVE is found.verdict
    assert found.comparison is not None
    assert found.comparison.deciding.high < 0


def test_what_is_better_says_by_how_much() -> None:
    found = judge([0.10, 0.11, 0.10, 0.11, 0.10])

    assert Verdict.NO_REGRESSION is found.verdict
    assert found.reason.startswith("better by at least")


def test_fewer_pairs_than_can_decide_say_so() -> None:
    found = judge([-0.2])

    assert Verdict.INCONCLUSIVE is found.verdict
    assert "1 block counts" in found.reason


def test_nothing_measured_has_no_change() -> None:
    found = judge([])

    assert (Verdict.INCONCLUSIVE, None) == (found.verdict, found.change)


def test_more_seconds_are_worse_and_are_told_as_seconds() -> None:
    threshold = Threshold(metric=START_UP, max_regression=0.10)
    # Of 1/x: 25 % more seconds, from 30 s.
    blocks = [
        replace(block, base_log_tok_per_s=-math.log(30.0))
        for block in some_blocks([-math.log(1.25) + wobble for wobble in (0.001, -0.001, 0.002, -0.002, 0.0)])
    ]
    found = judge_metric(blocks, threshold, RULE, place=0, unit="s", spent_s=1.0)

    assert Verdict.REGRESSION is found.verdict
    assert found.change is not None
    assert pytest.approx((30.0, 37.5, 0.25), rel=0.01) == (found.base, found.head, found.change.estimate)
    assert 0 < found.change.low < found.change.estimate < found.change.high
    assert "worse by 25 %" in found.reason


def test_the_threshold_of_seconds_is_one_of_seconds() -> None:
    just_allowed = Threshold(metric=START_UP, max_regression=1.0)
    # 90 % more: 47 % fewer starts a second.
    found = judge([-math.log(1.9) + wobble for wobble in (0.001, -0.001, 0.002, -0.002)], just_allowed)

    assert Verdict.NO_REGRESSION is found.verdict


def test_the_worst_metric_is_the_gates() -> None:
    good, bad, open_ = judge([0.1] * 4), judge([-0.1, -0.101, -0.1, -0.101]), judge([0.0])

    assert Verdict.NO_REGRESSION is gate_verdict([good, good])
    assert Verdict.INCONCLUSIVE is gate_verdict([good, open_])
    assert Verdict.REGRESSION is gate_verdict([good, open_, bad])
    assert Verdict.INCONCLUSIVE is gate_verdict([])


def test_harmless_changes_fail_less_than_once_in_a_hundred_against_a_stored_baseline() -> None:
    rng = np.random.default_rng(7)
    num_failed = 0
    for _ in range(NUM_PLANTED):
        base, head = list(rng.normal(0, 0.02, 8)), list(rng.normal(0, 0.02, 15))
        for num in range(1, len(head) + 1):
            found = judge_launches(base, head[:num], TOK, RULE, place=0, unit="tok/s")
            if found.verdict is not Verdict.INCONCLUSIVE:
                break
        num_failed += found.verdict is Verdict.REGRESSION

    assert num_failed <= 0.01 * NUM_PLANTED


def test_a_stored_baseline_shows_five_percent() -> None:
    base = [8.0, 8.005, 7.995, 8.002, 7.998]
    few = judge_launches(base, [7.95, 7.949], TOK, RULE, place=0, unit="tok/s")
    enough = judge_launches(base, [7.95, 7.949, 7.948, 7.951], TOK, RULE, place=0, unit="tok/s")

    assert Verdict.INCONCLUSIVE is few.verdict
    assert Verdict.REGRESSION is enough.verdict


def test_every_look_at_a_stored_baseline_costs_a_part_of_alpha() -> None:
    base = [8.0, 8.02, 7.98, 8.01, 7.99]
    found = [judge_launches(base, [7.98] * num, TOK, RULE, place=0, unit="tok/s") for num in range(3, 200)]
    alphas = [item.comparison.rule.alpha for item in found if item.comparison is not None]

    assert 0.005 == alphas[0]
    assert sum(alphas) < 0.01


def at_equal_pace(mean: float, *, whole: float) -> tuple[MetricVerdict, MetricVerdict]:
    """Verdicts of both metrics: clear at equal pace, and hardly known of tok/s as a whole."""
    found = []
    for metric, level, noise in ((TOK_PER_S, whole, 0.2), (EQUAL_PACE, mean, 0.001)):
        blocks = some_blocks([level + noise * (-1) ** number for number in range(6)])
        threshold = Threshold(metric=metric, max_regression=0.03)
        rule = MarginRule(alpha=0.01, budget_s=1.0, num_metrics=2)
        found.append(judge_metric(blocks, threshold, rule, place=len(found), unit="tok/s", spent_s=1.0))
    return found[0], found[1]


def test_what_is_slower_at_equal_pace_fails_a_gate_whose_tok_per_s_are_open() -> None:
    metrics = beside_the_whole(at_equal_pace(-0.06, whole=-0.02))

    assert [Verdict.INCONCLUSIVE, Verdict.REGRESSION] == [metric.verdict for metric in metrics]
    assert Verdict.REGRESSION is gate_verdict(metrics)


def test_it_does_not_where_tok_per_s_are_not_worse() -> None:
    metrics = beside_the_whole(at_equal_pace(-0.06, whole=0.02))

    assert Verdict.INCONCLUSIVE is metrics[1].verdict
    assert metrics[1].reason.endswith("but tok/s are not worse so far: parts of a step may be, beside others")
    assert Verdict.INCONCLUSIVE is gate_verdict(metrics)


def test_it_neither_passes_a_gate_nor_keeps_one_from_passing() -> None:
    whole, even = at_equal_pace(0.0, whole=-0.02)
    is_open = replace(even, verdict=Verdict.INCONCLUSIVE)
    passed = replace(whole, verdict=Verdict.NO_REGRESSION)

    assert Verdict.NO_REGRESSION is even.verdict
    assert Verdict.INCONCLUSIVE is gate_verdict([whole, even])
    assert Verdict.NO_REGRESSION is gate_verdict([passed, is_open])


def test_tok_per_s_at_either_pace_share_the_part_of_the_first() -> None:
    alone = MarginRule(alpha=0.01, budget_s=1.0, num_metrics=2, num_first=2)
    beside = MarginRule(alpha=0.01, budget_s=1.0, num_metrics=4, num_first=2)

    assert [0.005, 0.005] == [alone.share(place) for place in range(2)]
    assert pytest.approx([0.004, 0.004, 0.001, 0.001]) == [beside.share(place) for place in range(4)]
