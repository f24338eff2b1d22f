"""Lines of real gates: read from what the command prints, kept, merged, and judged by a fixed threshold."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import gate_results
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gate_trials import (
    Pair,
    Trial,
    first_difference,
    read_lane,
    read_result,
    read_trials,
    threshold_says,
    write_lane,
)
from flashprof.report.gate_json import gate_to_json

FINITE = st.floats(-1, 1)
PAIRS = st.builds(
    Pair,
    order=st.sampled_from(["AB", "BA"]),
    difference=FINITE,
    base_log_tok_per_s=FINITE,
    length_s=FINITE,
    disturbances=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)
TRIALS = st.builds(
    Trial,
    kind=st.sampled_from(["aa-docs", "planted-5"]),
    number=st.integers(0, 9),
    lane=st.just(0),
    num_lanes=st.just(1),
    settings=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    budget_s=FINITE,
    started=st.text(max_size=5),
    hardware=st.just("2x fake"),
    commit=st.just("abc"),
    status=st.integers(0, 4),
    change=st.none() | st.tuples(FINITE, FINITE, FINITE),
    pairs=st.lists(PAIRS, max_size=3).map(tuple),
)


@given(trials=st.lists(TRIALS, max_size=4))
def test_lines_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, trials: list[Trial]) -> None:
    path = tmp_path_factory.mktemp("lanes") / "lane-0.jsonl"
    nothing = read_lane(path)
    write_lane(path, trials)

    assert [] == nothing
    assert trials == read_lane(path)
    assert [path] == list(path.parent.iterdir())


def test_lanes_of_several_machines_are_read_together_and_copies_once(tmp_path: Path) -> None:
    trial = Trial(
        kind="aa-docs", number=0, lane=0, num_lanes=2, budget_s=9.0, started="t", hardware="h", commit="c", status=0
    )
    other = replace(trial, lane=1, number=1)
    for folder, name, lane in (("one", "lane-0", trial), ("copy", "lane-0", trial), ("two/deep", "lane-1", other)):
        (tmp_path / folder).mkdir(parents=True)
        write_lane(tmp_path / folder / f"{name}.jsonl", [lane])

    assert {trial, other} == set(read_trials([tmp_path]))
    assert 2 == len(read_trials([tmp_path / "one", tmp_path / "copy", tmp_path / "two"]))


def test_a_gates_answer_is_read_from_what_it_prints() -> None:
    result = gate_results.failed()
    fields = read_result(gate_to_json(result))
    change = result.metrics[0].change

    assert change is not None
    assert result.study is not None
    assert (str(result.verdict), False, result.reason) == (fields["verdict"], fields["is_failed"], fields["reason"])
    assert (change.estimate, change.low, change.high) == fields["change"]
    assert [block.difference for block in result.study.blocks] == [pair.difference for pair in fields["pairs"]]
    assert [block.order for block in result.study.blocks] == [pair.order for pair in fields["pairs"]]


def test_an_interval_without_an_end_is_no_change() -> None:
    result = gate_results.failed()
    metric = result.metrics[0]
    assert metric.change is not None
    open_ended = replace(metric, change=replace(metric.change, high=math.inf))

    assert read_result(gate_to_json(replace(result, metrics=(open_ended,))))["change"] is None


def test_a_gate_that_measured_nothing_has_neither_change_nor_pairs() -> None:
    fields = read_result(gate_to_json(gate_results.broken()))

    assert (True, None, ()) == (fields["is_failed"], fields["change"], fields["pairs"])


@pytest.mark.parametrize("printed", ["", "Traceback", "[]", '{"error": "no base"}'])
def test_what_is_no_result_gives_no_verdict(printed: str) -> None:
    assert {} == read_result(printed)


@pytest.mark.parametrize(("change", "says"), [(0.0, False), (-0.0299, False), (-0.0301, True), (0.05, False)])
def test_a_fixed_threshold_looks_at_one_difference(change: float, says: bool) -> None:
    assert says is threshold_says(math.log1p(change))


def test_the_first_pair_is_what_a_fixed_threshold_sees_and_its_order_says_which_came_later() -> None:
    pairs = tuple(Pair(order=order, difference=-0.1, base_log_tok_per_s=9.0, length_s=50.0) for order in ("BA", "AB"))
    trial = Trial(
        kind="aa-docs", number=0, lane=0, num_lanes=1, budget_s=9.0, started="", hardware="", commit="", status=4
    )

    assert first_difference(trial) is None
    assert -0.1 == first_difference(replace(trial, pairs=pairs))
    assert [0.1, -0.1] == [pair.later_minus_earlier for pair in pairs]
