"""Results files: what is met is computed, and what is no measurement is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.emitter import LOOPS, time_rounds, to_measures
from benchmarks.results_file import Goal, Measure, write_results


@pytest.mark.parametrize(
    ("goal", "value", "met", "text"),
    [
        (Goal(high=1.0), 1.0, True, "<= 1"),
        (Goal(high=1.0), 1.001, False, "<= 1"),
        (Goal(low=0.95), 0.95, True, ">= 0.95"),
        (Goal(low=0.95), 0.94, False, ">= 0.95"),
        (Goal(low=93, high=97), 95, True, "93..97"),
        (Goal(low=93, high=97), 98, False, "93..97"),
        (None, 5.0, None, None),
    ],
)
def test_whether_a_goal_is_met_follows_from_the_value(
    goal: Goal | None, value: float, met: bool | None, text: str | None
) -> None:
    shown = Measure(name="x", value=value, unit="ns", goal=goal).as_json()

    assert (met, text) == (shown["met"], shown["goal"])


def test_a_file_holds_the_measures_and_where_they_come_from(tmp_path: Path) -> None:
    measure = Measure(name="emitter_span", value=2.0, unit="ns", goal=Goal(high=1.0), note="n")
    path = write_results("overhead", [measure], {"rounds": [1, 2]}, folder=tmp_path)
    document = json.loads(path.read_text())

    assert path.name == f"overhead_{path.stem.split('_')[1]}_{document['date']}.json"
    assert [path] == list(tmp_path.iterdir())
    assert set(document) == {"kind", "date", "hardware", "command", "versions", "measures", "data"}
    assert document["measures"] == [
        {"name": "emitter_span", "value": 2.0, "unit": "ns", "goal": "<= 1", "met": False, "note": "n"}
    ]
    assert {"python", "commit", "system"} <= set(document["versions"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="'x'"):
        Measure(name="x", value=value, unit="ns")


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_measures_need_names_of_their_own(names: list[str], tmp_path: Path) -> None:
    measures = [Measure(name=name, value=1.0, unit="ns") for name in names]
    with pytest.raises(ValueError, match="names of their own"):
        write_results("overhead", measures, {}, folder=tmp_path)


def test_the_emitter_study_times_every_loop_in_every_round() -> None:
    times = time_rounds(num_rounds=2, seed=1)
    names = [measure.name for measure in to_measures(times)]

    assert {*LOOPS, "disabled"} == set(times)
    assert {2} == {len(rounds) for rounds in times.values()}
    assert all(name.startswith("emitter_") for name in names)
