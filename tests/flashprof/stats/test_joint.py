"""Both switches of a cause together: half the pairs where it costs the same in both, no more false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashprof.contracts.comparison import Block, Comparison, DecisionRule, Method, Verdict
from flashprof.stats.compare import compare_blocks
from flashprof.stats.joint import judge_together

RULE = DecisionRule(alpha=0.01)


def block(number: int, difference: float, *, disturbances: tuple[str, ...] = ()) -> Block:
    return Block(
        number=number,
        method=Method.COLD,
        order="AB" if number % 2 else "BA",
        launches=(f"r{number}a", f"r{number}b"),
        site="here",
        difference=difference,
        base_log_tok_per_s=9.5,
        num_windows=6,
        length_s=60.0,
        disturbances=disturbances,
    )


def side(*differences: float) -> list[Block]:
    return [block(number, difference) for number, difference in enumerate(differences, 1)]


def together(*sides: list[Block]) -> tuple[Comparison, ...]:
    shown = judge_together(sides, RULE)

    assert shown is not None
    return shown


def test_two_pairs_of_each_switch_show_what_four_of_one_would() -> None:
    alone, back = side(-0.170, -0.180), side(-0.175, -0.185)
    shown = together(alone, back)

    assert [compare_blocks(blocks, RULE, spent_s=0.0).verdict for blocks in (alone, back)] == [Verdict.INCONCLUSIVE] * 2
    assert [item.verdict for item in shown] == [Verdict.REGRESSION] * 2
    assert shown[0].effect.estimate == pytest.approx(math.expm1(-0.175))
    assert shown[0].effect.low < shown[0].effect.estimate < shown[0].effect.high < 0
    assert shown[0].reason.endswith("by the 4 pairs of both switches")
    assert [item.num_blocks for item in shown] == [2, 2]


def test_a_cause_that_acts_in_one_place_only_is_not_shown() -> None:
    assert judge_together([side(0.0, 0.002, -0.001, 0.001), side(-0.17, -0.18, -0.17, -0.18)], RULE) is None


def test_where_one_switch_was_never_made_nothing_is_shown() -> None:
    assert judge_together([side(*[-0.17, -0.18] * 4), []], RULE) is None


def test_disturbed_pairs_do_not_count() -> None:
    disturbed = [block(number, -0.17, disturbances=("a neighbour",)) for number in (1, 2, 3)]

    assert judge_together([disturbed, disturbed], RULE) is None


@pytest.mark.parametrize("sd", [0.005, 0.03])
def test_false_alarms_that_never_stop_looking_stay_below_alpha(sd: float) -> None:
    rng = np.random.default_rng(0)
    num_alarms = 0
    for _ in range(600):
        blocks = [side(*rng.normal(0, sd, 10)) for _ in range(2)]
        num_alarms += any(judge_together([found[:num] for found in blocks], RULE) for num in range(1, 11))

    assert num_alarms / 600 <= 0.01


def test_intervals_cover_when_the_number_of_pairs_is_fixed() -> None:
    rng = np.random.default_rng(1)
    held = [
        item.effect.low <= math.expm1(-0.15) <= item.effect.high
        for _ in range(300)
        for item in together(*(side(*rng.normal(-0.15, 0.01, 4)) for _ in range(2)))
    ]

    assert 0.93 <= sum(held) / len(held) <= 0.97
