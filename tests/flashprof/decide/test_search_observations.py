"""The lines of a search's journal: each reads back as it was written, and nonsense is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, Stage
from flashprof.decide.observations import CallBegan
from flashprof.decide.search_observations import (
    Built,
    LaunchEnded,
    Measured,
    SearchObservation,
    Undone,
    UserSkipped,
    search_observation_from_json,
    search_observation_to_json,
)

TEXTS, SECONDS, OUTCOMES = st.text(max_size=20), st.floats(0, 1e9), st.sampled_from(Outcome)
READINGS = st.builds(
    Reading,
    cell=TEXTS,
    launch=TEXTS,
    stage=st.sampled_from(Stage),
    block=st.integers(0, 9),
    position=st.integers(0, 9),
    proof=st.integers(0, 9),
    at_s=SECONDS,
    length_s=SECONDS,
    log_tok_per_s=st.floats(-20, 20),
    num_tokens=st.integers(0, 10**9),
    disturbances=st.lists(TEXTS, max_size=2).map(tuple),
)
OBSERVATIONS = st.one_of(
    st.just(CallBegan()),
    st.builds(Measured, reading=READINGS),
    st.builds(LaunchEnded, run_id=TEXTS, group=TEXTS, outcome=OUTCOMES, reason=TEXTS, length_s=SECONDS, cell=TEXTS),
    st.builds(Built, group=TEXTS, outcome=OUTCOMES, reason=TEXTS, length_s=SECONDS),
    st.builds(UserSkipped, cell=TEXTS),
    st.builds(Undone, num=st.integers(1, 99)),
)


@given(OBSERVATIONS)
def test_a_line_reads_back_as_it_was_written(observation: SearchObservation) -> None:
    line = json.dumps(search_observation_to_json(observation))

    assert observation == search_observation_from_json(json.loads(line))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"kind": "guessed"},
        {"kind": "undone", "num": 0},
        {"kind": "undone", "num": "1"},
        {"kind": "measured", "reading": {"cell": "a"}},
        {"kind": "measured"},
        {"kind": "built", "group": "g", "outcome": "splendid", "length_s": 1.0},
        {"kind": "user_skipped", "cell": "a", "more": 1},
    ],
)
def test_nonsense_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(FormatError):
        search_observation_from_json(raw)


def test_a_window_without_throughput_is_no_reading() -> None:
    with pytest.raises(AssertionError):
        Measured(
            reading=Reading(
                cell="a",
                launch="hot-1",
                stage=Stage.SEARCH,
                at_s=0.0,
                length_s=1.0,
                log_tok_per_s=-math.inf,
                num_tokens=0,
            )
        )
