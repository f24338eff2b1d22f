"""A change laid out as a staircase: it begins at the base, ends at the candidate, and leaves nothing out."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import localisations
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.report.waterfall_steps import REST, UNEXPLAINED, waterfall

CHARGES = st.lists(st.floats(-1e5, 1e5).filter(lambda ns: abs(ns) > 1e-3), max_size=20)


@given(CHARGES, st.floats(0, 1e5), st.integers(1, 12))
def test_steps_lead_from_base_to_candidate(charges: list[float], half: float, max_steps: int) -> None:
    total = sum(charges)
    parts = [localisations.part(f"p{place}", ns, half, total) for place, ns in enumerate(charges)]
    found = waterfall(localisations.localisation(localisations.interval(total, half), *parts), max_steps=max_steps)

    assert found is not None
    assert found.steps[0].start_ns == 0
    assert found.steps[-1].end_ns == pytest.approx(total, abs=1e-6 * max(1, abs(total)))
    assert all(before.end_ns == after.start_ns for before, after in pairwise(found.steps))
    assert len(found.steps) <= max_steps + 1
    assert all(found.low_ns <= ns <= found.high_ns for step in found.steps for ns in (step.start_ns, step.end_ns))


def test_small_parts_are_put_together_at_the_end() -> None:
    found = waterfall(localisations.one_phase())
    tiny = replace(localisations.one_phase(), parts=localisations.one_phase().parts[:1])

    assert found is not None
    assert [step.name for step in found.steps] == ["drafter mask", "drafter forward"]
    assert [step.is_clear for step in found.steps] == [True, False]
    assert [step.name for step in waterfall(tiny).steps] == ["drafter mask", REST]  # type: ignore[union-attr]


def test_a_change_without_parts_is_unexplained() -> None:
    found = waterfall(localisations.bare())

    assert found is not None
    assert [(step.name, step.share) for step in found.steps] == [(UNEXPLAINED, 1.0)]


def test_a_change_that_is_no_number_is_not_drawn() -> None:
    assert waterfall(localisations.odd()) is None


def test_parts_that_are_no_numbers_are_left_to_the_rest() -> None:
    found = localisations.one_phase()
    nan = replace(found.parts[0], charge=replace(found.parts[0].charge, estimate=math.nan))
    drawn = waterfall(replace(found, parts=(nan, found.parts[1])))

    assert drawn is not None
    assert [step.name for step in drawn.steps] == ["drafter forward", REST]


def test_an_interval_does_not_press_the_bars_together() -> None:
    found = localisations.one_phase()
    wide = replace(found.parts[0], charge=replace(found.parts[0].charge, low=-1e9, high=math.inf))
    drawn = waterfall(replace(found, parts=(wide,)))

    assert drawn is not None
    assert drawn.high_ns - drawn.low_ns <= 2 * found.difference.estimate
    assert drawn.place(-1e12) == 0.0
    assert drawn.place(1e12) == 1.0


def test_where_there_is_room_for_few_the_clear_ones_are_drawn() -> None:
    found = waterfall(localisations.chained(), max_steps=4)

    assert found is not None
    assert [step.name for step in found.steps if step.is_clear] == [
        "target forward",
        "drafter wait_hidden",
        "target gather (main:cuda0)",
        "drafter mask",
    ]
    assert found.steps[-1].change_ns == pytest.approx(12_000.0)
