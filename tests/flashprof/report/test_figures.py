"""How times and amounts are written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.report import figures


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.0, "0 ns"),
        (41.4, "41.4 ns"),
        (999.4, "999 ns"),
        (1_234.0, "1.23 µs"),
        (-41_500.0, "−41.5 µs"),
        (999.6, "1.00 µs"),
        (2.5e6, "2.50 ms"),
        (1.5e9, "1,500 ms"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_a_time_has_the_unit_that_suits(ns: float, text: str) -> None:
    assert figures.time_text(ns) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "+0.25"), (0.001, "0.00"), (-3.0, "−3.00"), (0.0, "0"), (1234.0, "+1,234")]
)
def test_a_sign_is_written_unless_nothing_is_left(value: float, text: str) -> None:
    assert figures.signed(value, figures.amount) == text


@given(st.floats())
def test_no_value_is_written_as_nan_or_inf(value: float) -> None:
    written = figures.signed(value, figures.time_text) + figures.signed(value, figures.amount)

    assert "nan" not in written
    assert "inf" not in written
