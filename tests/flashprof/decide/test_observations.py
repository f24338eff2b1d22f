"""Observations: what is written down is what is read, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_facts import cold_failed, cold_pair, hot_block, hot_ended

from flashprof.contracts.comparison import Arm, Block, Method
from flashprof.contracts.errors import FormatError
from flashprof.contracts.outcome import Outcome
from flashprof.decide.actions import LaunchCold, MeasureHot
from flashprof.decide.observations import (
    CallBegan,
    ColdFailed,
    ColdLaunch,
    HotBlock,
    HotEnded,
    Observation,
    cut_off,
    observation_from_json,
    observation_to_json,
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
LENGTHS_S = st.floats(0, 1e9)
TEXTS = st.text(max_size=20)
MANY_TEXTS = st.lists(TEXTS, max_size=3).map(tuple)
BLOCKS = st.builds(
    Block,
    number=st.integers(1),
    method=st.sampled_from(Method),
    order=TEXTS,
    launches=MANY_TEXTS,
    site=TEXTS,
    difference=NUMBERS,
    base_log_tok_per_s=NUMBERS,
    num_windows=st.integers(0),
    length_s=LENGTHS_S,
    disturbances=MANY_TEXTS,
)
FAILURES = st.sampled_from([outcome for outcome in Outcome if not outcome.is_measurement])
ARM = {"arm": st.sampled_from(Arm), "block": st.integers(1), "run_id": TEXTS, "length_s": LENGTHS_S}
OBSERVATIONS = st.one_of(
    st.just(CallBegan()),
    st.builds(HotBlock, block=BLOCKS, launch_s=LENGTHS_S),
    st.builds(HotEnded, run_id=TEXTS, outcome=st.sampled_from(Outcome), reason=TEXTS, length_s=LENGTHS_S),
    st.builds(ColdFailed, **ARM, outcome=FAILURES, reason=TEXTS),
    st.builds(
        ColdLaunch, **ARM, site=TEXTS, log_tok_per_s=NUMBERS, num_windows=st.integers(0), disturbances=MANY_TEXTS
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)


@given(OBSERVATIONS)
def test_an_observation_survives_its_line(observation: Observation) -> None:
    line = json.dumps(observation_to_json(observation), allow_nan=False)
    again = observation_from_json(json.loads(line))

    assert observation == again
    assert type(observation) is type(again)


@given(OBSERVATIONS, st.data())
def test_a_line_with_one_value_changed_is_an_observation_or_a_format_error(
    observation: Observation, data: st.DataObject
) -> None:
    raw: dict[str, Any] = json.loads(json.dumps(observation_to_json(observation)))
    raw[data.draw(st.sampled_from([*raw, "new"]))] = data.draw(JSON)
    try:
        again = observation_from_json(raw)
    except FormatError:
        return

    assert again == observation_from_json(json.loads(json.dumps(observation_to_json(again))))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"kind": "hot_blocks"},
        {"kind": ["hot_block"]},
        {"kind": "hot_block"},
        {"kind": "hot_block", "block": None},
        {"kind": "call_began", "more": 1},
        {**observation_to_json(hot_ended()), "length_s": "60"},
        {**observation_to_json(hot_ended()), "outcome": "fine"},
        {**observation_to_json(cold_failed(Arm.BASE, 1, Outcome.HUNG)), "outcome": "completed"},
        {**observation_to_json(cold_pair(1)[0]), "log_tok_per_s": float("-inf")},
        {**observation_to_json(cold_pair(1)[0]), "block": 1.5},
    ],
)
def test_what_is_no_observation_is_a_format_error(raw: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        observation_from_json(raw)


def test_a_failure_cannot_be_written_down_as_a_number() -> None:
    with pytest.raises(AssertionError):
        hot_block(1, float("nan"))
    with pytest.raises(AssertionError):
        cold_failed(Arm.BASE, 1, Outcome.COMPLETED)


def test_a_launch_that_was_cut_off_is_known_by_its_name() -> None:
    hot = MeasureHot(launch=3, first_block=9, site="here").run_id
    cold = LaunchCold(arm=Arm.CANDIDATE, block=12, attempt=2, site="here").run_id

    assert HotEnded(
        run_id="hot-3", outcome=Outcome.INTERRUPTED, reason="FlashProf itself was killed.", length_s=4.0
    ) == cut_off(hot, length_s=4.0)
    assert (Arm.CANDIDATE, 12, "cold-12-candidate-2") == (
        (end := cut_off(cold, length_s=4.0)).arm,
        end.block,
        end.run_id,
    )


@pytest.mark.parametrize("name", ["", "hot-", "hot-1 ", "cold-1-base", "cold-1-other-1", "2026-11-30-tiny", "hot-1\n"])
def test_a_name_that_no_study_gave_is_a_format_error(name: str) -> None:
    with pytest.raises(FormatError):
        cut_off(name, length_s=1.0)
