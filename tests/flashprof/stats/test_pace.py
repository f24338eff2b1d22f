"""A launch's pace is what its phases have in common; what one of them costs more is not."""

from __future__ import annotations

import math
import random
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_cost_in_one_phase_is_left_beside_launches_that_differ_by_a_tenth() -> None:
    rng = random.Random(3)
    raw, beside = [], []
    for _ in range(200):
        base, head = (
            {name: value * pace * math.exp(rng.gauss(0, 0.03)) for name, value in STEP.items()}
            for pace in (math.exp(rng.gauss(0, 0.1)), math.exp(rng.gauss(0, 0.1)))
        )
        head["loss"] += 0.05 * sum(head.values())
        difference = math.log(sum(base.values()) / sum(head.values()))
        raw.append(difference)
        beside.append(difference + pace_change(base, head))

    assert pstdev(raw) > 4 * pstdev(beside)
    # Never more than it costs, and at most a fifth less.
    assert math.log(1 / 1.05) < sum(beside) / len(beside) < 0.8 * math.log(1 / 1.05)
