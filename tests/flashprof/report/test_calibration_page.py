"""
The calibration's page and console text against golden files, and on little data.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import calibrations
import pytest
from golden import check_golden

from flashprof.contracts.calibration import Calibration, Share
from flashprof.report.calibration_console import render_calibration
from flashprof.report.calibration_page import render_page
from flashprof.report.calibration_sentences import finds, headline, pct

MAKERS = [calibrations.quiet, calibrations.scant]


@pytest.mark.parametrize("make", MAKERS)
def test_the_page_is_the_golden_one(make: Callable[[], Calibration]) -> None:
    check_golden(f"calibration_{make.__name__}.md.txt", render_page(make()))


@pytest.mark.parametrize("make", MAKERS)
def test_the_console_text_is_the_golden_one(make: Callable[[], Calibration]) -> None:
    check_golden(f"calibration_{make.__name__}.txt", render_calibration(make(), color=False, width=100))


def test_too_many_false_alarms_are_said_first() -> None:
    full = calibrations.quiet()
    broken = replace(full.trials[0], false_alarms=Share(count=40, total=400, low=0.072, high=0.134))

    text = headline(replace(full, trials=(*full.trials[1:], broken)))

    assert "comparisons cry wolf here: at most 40 of 400 (7.2 % to 13 %)" in text


def test_intervals_that_are_too_narrow_are_said_first() -> None:
    full = calibrations.quiet()
    narrow = replace(full.trials[0], coverage=Share(count=340, total=400, low=0.81, high=0.88))

    assert headline(replace(full, trials=(narrow,))).startswith("stated intervals are too narrow here")


def test_a_machine_that_finds_nothing_is_told_so() -> None:
    full = calibrations.quiet()
    never = tuple(replace(point, minutes=()) for point in full.power)

    assert "no slow-down up to 17 % is found within 10 min" == finds(replace(full, power=never))
    assert "\nNo slow-down up to 17 % is found within 10 min.\n" in render_page(replace(full, power=never))
    assert "finds with 90 % power, hot: a slow-down of" in finds(full)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.00714, "0.71 %"),
        (0.01, "1 %"),
        (0.0123, "1.2 %"),
        (-0.0061, "−0.61 %"),
        (0.951, "95 %"),
        (1.0, "100 %"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_shares_are_written_with_two_digits(share: float, text: str) -> None:
    assert text == pct(share)


def test_what_a_machine_calls_itself_is_no_markup() -> None:
    assert "<of some kind>" not in render_page(calibrations.quiet())
