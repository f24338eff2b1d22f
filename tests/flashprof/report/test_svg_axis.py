"""Which stretch of numbers a small picture shows."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from flashprof.report.svg_axis import axis_of

NUMBERS = st.floats(-1e3, 1e3)


@given(st.lists(NUMBERS, max_size=6), st.lists(st.floats(), max_size=6))
def test_all_that_must_be_seen_is_on_the_axis(core: list[float], rest: list[float]) -> None:
    axis = axis_of(core, rest, least=0.01)
    ticks = axis.ticks()
    reach = max(core, default=0) - min(core, default=0)

    assert all(axis.low <= value <= axis.high for value in core)
    assert axis.high - axis.low >= 0.0099
    assert axis.high - axis.low <= reach + 2 * max(reach / 2, 0.01) + 1e-9
    assert 1 <= len(ticks) <= 12


def test_places_are_within_the_picture() -> None:
    axis = axis_of([0.0, 10.0], [math.inf, math.nan], least=0.01)

    assert [axis.pct(value) for value in (0.0, 10.0, -5.0, 1e9, math.nan)] == [1.0, 99.0, 1.0, 99.0, 1.0]
    assert axis.ticks() == [0, 2, 4, 6, 8, 10]
