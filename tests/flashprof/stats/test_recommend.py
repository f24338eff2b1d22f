"""Recommended settings follow from the evidence, and say so where there is none."""

from __future__ import annotations

from dataclasses import replace

import calibrations
import pytest

from flashprof.contracts.calibration import Setting, Share, Spread
from flashprof.stats.recommend import Evidence, recommend

QUIET = calibrations.quiet()
EVIDENCE = Evidence(
    noise=QUIET.noise,
    trials=QUIET.trials,
    power=QUIET.power,
    clear_shares={0.005: 0.4, 0.01: 0.93},
    settle_steps=3,
    window_s=1.25,
    overhead_s=20.0,
    rule=QUIET.rule,
)


def settings(evidence: Evidence) -> dict[str, Setting]:
    return {setting.name: setting for setting in recommend(evidence)}


def test_each_setting_has_a_value_and_a_reason() -> None:
    found = settings(EVIDENCE)

    assert 1200 == found["window_tokens"].value
    assert 4 == found["window_steps"].value
    assert 3 == found["settle_steps"].value
    assert 0.01 == found["alpha"].value
    assert 0.01 == found["tolerance"].value
    assert all(setting.reason for setting in found.values())


def test_a_window_that_is_hardly_noisier_and_shorter_is_better() -> None:
    short, middle, long = QUIET.noise.windows
    nearly = replace(short, sd_per_20_s=middle.sd_per_20_s * 1.04)
    noise = replace(QUIET.noise, windows=(nearly, middle, long))

    assert 2 == settings(replace(EVIDENCE, noise=noise))["window_steps"].value


def test_a_budget_is_what_nine_of_ten_needed() -> None:
    found = settings(EVIDENCE)

    # The 18th of 20 takes 2.6 min.
    assert found["budget_2_pct"].value == pytest.approx(2.6)
    assert found["budget_5_pct"].value == pytest.approx(0.8)


def test_what_was_not_found_has_no_budget() -> None:
    power = tuple(replace(point, minutes=point.minutes[:10]) for point in QUIET.power)

    assert settings(replace(EVIDENCE, power=power))["budget_2_pct"].value is None
    assert settings(replace(EVIDENCE, power=()))["budget_5_pct"].value is None


def test_dear_launches_are_measured_for_longer() -> None:
    cheap, dear = (settings(replace(EVIDENCE, overhead_s=s))["measure_s"].value for s in (20.0, 500.0))

    assert cheap is not None
    assert dear is not None
    assert 10 <= cheap < dear <= 120


def test_launches_that_do_not_differ_are_measured_for_long() -> None:
    none = Spread(sd=0.0, low=0.0, high=0.01, freedom=5)

    assert 120 == settings(replace(EVIDENCE, noise=replace(QUIET.noise, launch=none)))["measure_s"].value
    assert settings(replace(EVIDENCE, noise=replace(QUIET.noise, launch=None)))["measure_s"].value is None


def test_false_alarms_above_the_promise_ask_for_a_stricter_one() -> None:
    broken = replace(QUIET.trials[0], false_alarms=Share(count=30, total=400, low=0.05, high=0.1))

    alpha = settings(replace(EVIDENCE, trials=(*QUIET.trials, broken)))["alpha"]

    assert 0.005 == alpha.value
    assert "30 of 400" in alpha.reason


def test_no_tolerance_without_one_that_was_clear() -> None:
    assert settings(replace(EVIDENCE, clear_shares={0.05: 0.1}))["tolerance"].value is None


def test_without_steps_no_window_is_recommended() -> None:
    found = settings(replace(EVIDENCE, noise=replace(QUIET.noise, windows=())))

    assert found["window_tokens"].value is None
    assert "too few" in found["window_tokens"].reason
