"""The sentences of a comparison: what decides, how far it has come, what it costs to go on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import study_results
from hypothesis import given
from hypothesis import strategies as st
from study_results import interval

from flashprof.contracts.comparison import Standing, Verdict
from flashprof.report import compare_sentences as sentences


@pytest.mark.parametrize(
    ("share", "num_decimals", "expected"),
    [
        (-0.1733, 1, "−17.3"),
        (0.2119, 1, "+21.2"),
        (-0.00004, 1, "0.0"),
        (-0.00042, 2, "−0.04"),
        (math.nan, 1, "–"),
        (math.inf, 1, "–"),
    ],
)
def test_a_change_has_a_sign(share: float, num_decimals: int, expected: str) -> None:
    assert expected == sentences.change(share, num_decimals)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.19, -0.155, "−19.0 to −15.5 %"),
        (-0.004, -0.0004, "−0.40 to −0.04 %"),
        (-0.0097, 0.0031, "−0.97 to +0.31 %"),
        (-0.3, math.inf, "no bound yet"),
    ],
)
def test_rounding_never_contradicts_the_verdict(low: float, high: float, expected: str) -> None:
    assert expected == sentences.span(interval((low + high) / 2, low, high), 0.01)


@given(st.floats(-0.5, 0.5), st.floats(0.0, 0.5), st.floats(0.0, 0.1))
def test_an_end_that_is_not_zero_is_written_as_zero_only_below_a_thousandth(
    low: float, width: float, tolerance: float
) -> None:
    written = sentences.span(interval(low, low, low + width), tolerance).removesuffix(" %").split(" to ")
    ends = [float(text.replace("−", "-")) for text in written]

    assert [] == [end for end, true in zip(ends, (low, low + width), strict=True) if end == 0 and abs(true) > 1e-5]
    assert [] == [end for end, true in zip(ends, (low, low + width), strict=True) if abs(end - 100 * true) > 0.0501]


@pytest.mark.parametrize(
    ("spent_s", "to_resolve_s", "expected"),
    [
        (598.0, 231.0, "to resolve: about 3.9 min more; the same command with --budget 14 continues"),
        (30.0, 90.0, "to resolve: about 90 s more; the same command with --budget 10 continues"),
        (598.0, None, "to resolve: how much longer it takes cannot be told"),
        (598.0, math.inf, "to resolve: how much longer it takes cannot be told"),
    ],
)
def test_an_inconclusive_answer_names_the_budget_that_continues(
    spent_s: float, to_resolve_s: float | None, expected: str
) -> None:
    result = study_results.inconclusive()
    item = replace(result.comparisons[0], to_resolve_s=to_resolve_s)

    assert sentences.to_resolve(replace(result, spent_s=spent_s, comparisons=(item,))).startswith(expected)


def test_a_resolved_answer_costs_nothing_more() -> None:
    assert "" == sentences.to_resolve(study_results.regression())
    assert "" == sentences.to_resolve(study_results.failed_arm())


def test_launches_that_do_not_confirm_leave_the_screened_effect_as_the_answer() -> None:
    result = study_results.regression()
    hot, cold = result.comparisons
    wide = replace(
        cold, verdict=Verdict.INCONCLUSIVE, effect=interval(-0.1, -0.3, 0.1), num_launches=4, to_resolve_s=600.0
    )
    result = replace(result, standing=Standing.SCREENED, comparisons=(hot, wide))

    assert "−17.1 % tok/s" in sentences.answer(result)
    assert sentences.standing(result).startswith("screened in 1 launch, 6 blocks, 24 windows; 4 launches")
    assert "to confirm: about 10.0 min more; the same command with --budget 20 continues" == sentences.to_resolve(
        result
    )


def test_an_answer_of_cold_launches_alone_is_confirmed_by_them() -> None:
    result = study_results.regression()
    cold = replace(result, comparisons=result.comparisons[1:])

    assert "confirmed by 8 launches, 4 blocks, 40 windows" == sentences.standing(cold)


def test_a_retried_launch_is_no_failed_study() -> None:
    assert not sentences.is_failed(study_results.regression())
    assert sentences.is_failed(study_results.failed_arm())


def test_left_out_blocks_give_their_reasons_and_many_are_counted() -> None:
    blocks = study_results.hot_blocks(*[0.0] * 9, left_out=tuple(range(1, 10)))

    assert "hot block 1 left out: other processes used 1.1 cores (typically 0.1)" == sentences.left_out(blocks)[0]
    assert "and 3 more blocks left out" == sentences.left_out(blocks)[-1]
    assert () == sentences.left_out(study_results.hot_blocks(0.0))


def test_the_largest_change_of_a_phase_comes_first_and_unchanged_ones_last() -> None:
    ordered = [(change.phase, change.is_changed) for change in sentences.by_weight(study_results.phases())]

    assert ["wait_queue", "mask", "wait_hidden"] == [name for name, is_changed in ordered if is_changed]
    assert [True, True, True, False, False] == [is_changed for _, is_changed in ordered]


def test_a_phase_is_written_with_as_many_decimals_as_its_interval() -> None:
    forward = study_results.phases()[0]

    assert ("drafter", "forward", "work", "21.3", "+0.04", "−0.21 to +0.29") == sentences.phase_cells(forward)
