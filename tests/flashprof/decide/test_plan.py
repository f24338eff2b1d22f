"""Plans: which methods, where, and a forecast that says what it rests on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.comparison import DecisionRule, Method, Verdict
from flashprof.contracts.errors import UsageError
from flashprof.contracts.study import MethodChoice
from flashprof.decide.plan import MAX_BLOCKS, Costs, Noise, StudyPlan, blocks_needed, estimate

PLAN = StudyPlan(base="none", candidate="compile,swa")
COSTS = Costs(startup_s=12, warmup_s=8, hot_block_s=21, cold_windows_s=25, source="3 earlier runs")
NOISE = Noise(block_sd={Method.HOT: 0.01, Method.COLD: 0.02}, source="flashprof calibrate, 2026-11-30")


@pytest.mark.parametrize(
    ("change", "methods"),
    [
        ({}, (Method.HOT, Method.COLD)),
        ({"method": MethodChoice.HOT}, (Method.HOT, Method.COLD)),
        ({"method": MethodChoice.COLD}, (Method.COLD,)),
        ({"cold_toggles": ("expandable",)}, (Method.COLD,)),
        ({"confirmed": ()}, (Method.HOT,)),
        ({"confirmed": (), "cold_toggles": ("expandable",)}, (Method.COLD,)),
    ],
)
def test_methods_follow_from_what_is_asked_and_from_what_can_be_switched(
    change: dict[str, object], methods: tuple[Method, ...]
) -> None:
    assert methods == replace(PLAN, **change).methods


def test_cold_toggles_cannot_be_screened_hot() -> None:
    with pytest.raises(UsageError, match="cannot be switched while") as caught:
        replace(PLAN, method=MethodChoice.HOT, cold_toggles=("expandable",))

    assert "--method cold" == caught.value.next_command


def test_blocks_go_round_the_sites() -> None:
    plan = replace(PLAN, sites=("gpu 0", "gpu 1"))

    assert ["gpu 0", "gpu 1", "gpu 0"] == [plan.site(number) for number in (1, 2, 3)]


def test_a_plan_is_json() -> None:
    assert ["regression"] == json.loads(json.dumps(asdict(PLAN)))["confirmed"]


@given(st.floats(0.001, 0.5), st.floats(0.0001, 0.2))
def test_more_noise_a_smaller_effect_and_a_stricter_rule_need_more_blocks(effect: float, sd: float) -> None:
    needed = blocks_needed(effect, sd, alpha=0.01)

    assert 4 <= needed <= MAX_BLOCKS
    assert needed <= blocks_needed(effect, sd * 1.1, alpha=0.01)
    assert needed <= blocks_needed(effect * 0.9, sd, alpha=0.01)
    assert needed <= blocks_needed(effect, sd, alpha=0.005)


def test_a_forecast_with_known_noise_and_costs() -> None:
    lines = estimate(PLAN, COSTS, NOISE).lines
    few, many = (blocks_needed(effect, 0.01, alpha=0.01) for effect in (0.05, 0.01))

    assert ["screen", "blocks", "confirm", "blocks", "launch", "noise", "total"] == [line[:8].strip() for line in lines]
    assert "A none, B compile,swa: " in lines[0]
    assert f"5 % slower shows after about {few} blocks (2 min); less than 1 % slower after about {many}" in lines[1]
    assert "45 s a launch" in lines[2]
    assert "only if the screening says regression" in lines[2]
    assert "12 s to start, 8 s to settle: measured in 3 earlier runs" in lines[4]
    assert "hot blocks 1 %, cold blocks 2 % (flashprof calibrate, 2026-11-30)" in lines[5]


def test_without_calibration_a_forecast_gives_ranges_and_says_that_it_guesses() -> None:
    told = "\n".join(estimate(PLAN, Costs(), Noise()).lines)
    few, more = (blocks_needed(0.05, sd, alpha=0.01) for sd in (0.005, 0.03))

    assert f"{few} to {more} blocks" in told
    assert "a guess, since no run of this cell was measured yet" in told
    assert "hot blocks 0.5 % to 3 %, cold blocks 1 % to 6 %: not measured on this machine" in told


def test_a_tolerance_of_nothing_says_that_no_number_of_blocks_is_enough() -> None:
    plan = replace(PLAN, rule=DecisionRule(tolerance=0.0))

    assert f"less than 0 % slower after about {MAX_BLOCKS} or more blocks" in estimate(plan, COSTS, NOISE).lines[1]


def test_reused_blocks_are_named_and_not_paid_again() -> None:
    plan = replace(PLAN, rule=DecisionRule(budget_s=6_000))
    needed = blocks_needed(0.01, 0.01, alpha=0.01)
    anew = estimate(plan, COSTS, NOISE)
    again = estimate(plan, COSTS, NOISE, reused={Method.HOT: 7, Method.COLD: 0}, spent_s=440)

    assert "reused    7 hot blocks, measured by earlier calls in 7 min" in again.lines
    assert pytest.approx(20 + needed * 21) == anew.expected_s
    assert pytest.approx(7 * 21) == anew.expected_s - again.expected_s


def test_a_slow_down_costs_its_confirmation_and_its_absence_only_when_asked_for() -> None:
    plan = replace(PLAN, rule=DecisionRule(budget_s=1e6))
    both = replace(plan, confirmed=(Verdict.REGRESSION, Verdict.NO_REGRESSION))
    hot, cold = (blocks_needed(0.05, sd, alpha=0.01) for sd in (0.01, 0.02))

    assert pytest.approx(20 + hot * 21 + cold * 90) == estimate(plan, COSTS, NOISE).slower_s
    assert estimate(plan, COSTS, NOISE).expected_s < estimate(both, COSTS, NOISE).expected_s


@pytest.mark.parametrize(
    ("plan", "over_s"),
    [(PLAN, 90), (replace(PLAN, confirmed=()), 41), (replace(PLAN, method=MethodChoice.COLD), 90)],
    ids=["pair", "hot launch", "cold"],
)
def test_the_worst_case_is_the_budget_and_what_is_under_way(plan: StudyPlan, over_s: float) -> None:
    assert 600 + over_s == estimate(plan, COSTS, NOISE).worst_s
    assert 100 + over_s == estimate(plan, COSTS, NOISE, spent_s=500).worst_s
    assert 0 == estimate(plan, COSTS, NOISE, spent_s=700).worst_s


@given(
    st.sampled_from(MethodChoice),
    st.sampled_from([(), (Verdict.REGRESSION,), (Verdict.REGRESSION, Verdict.NO_REGRESSION)]),
    st.floats(1, 1e5),
    st.floats(0, 1e5),
)
def test_what_is_expected_is_never_more_than_the_worst(
    method: MethodChoice, confirmed: tuple[Verdict, ...], budget_s: float, spent_s: float
) -> None:
    plan = StudyPlan(base="a", candidate="b", method=method, confirmed=confirmed, rule=DecisionRule(budget_s=budget_s))
    forecast = estimate(plan, Costs(), Noise(), spent_s=spent_s)

    assert 0 <= forecast.expected_s <= forecast.worst_s
    assert 0 <= forecast.slower_s <= forecast.worst_s
