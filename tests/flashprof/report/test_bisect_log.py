"""The journal of a search, line by line."""

from __future__ import annotations

import math

from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, Stage
from flashprof.decide.observations import CallBegan
from flashprof.decide.search_observations import Built, LaunchEnded, Measured, Undone, UserSkipped
from flashprof.report.bisect_log import log_lines


def measured(cell: str, stage: Stage = Stage.SEARCH, **values: object) -> Measured:
    known: dict[str, object] = {"launch": "hot-1", "at_s": 1.0, "length_s": 3.0, "num_tokens": 9, **values}
    return Measured(reading=Reading(cell=cell, stage=stage, log_tok_per_s=math.log(12_060.0), **known))  # type: ignore[arg-type]


def test_every_kind_of_observation_has_its_line() -> None:
    ended = LaunchEnded(
        run_id="hot-1", group="", outcome=Outcome.CRASHED, reason="exit status 1", length_s=61.0, cell="swa"
    )
    observations = (
        CallBegan(),
        measured("swa"),
        measured("good", Stage.PROOF, proof=2, block=3, disturbances=("busy", "hot")),
        ended,
        Built(group="3c" * 20, outcome=Outcome.COMPLETED, length_s=80.0),
        UserSkipped(cell="queue"),
    )

    assert list(log_lines(observations)) == [
        "       a call began",
        "    1  swa  12,060 tok/s in hot-1",
        "    2  good  12,060 tok/s in hot-1, proof 2 block 3; left out: busy; hot",
        "       hot-1 ended after 61 s: crashed in swa. exit status 1",
        "       build of 3c3c3c3c3c3c, 80 s: completed",
        "    3  queue skipped by the user",
    ]


def test_what_was_taken_back_is_said_to_be() -> None:
    observations = (measured("a"), measured("b"), Undone(num=1), measured("c"), Undone(num=2), measured("d"))
    lines = list(log_lines(observations))

    assert [True, True, False, True, False, False] == [line.endswith("(undone)") for line in lines]
    assert lines[2].endswith("the user takes back 1 entry")
    assert lines[4].endswith("the user takes back 2 entries")
