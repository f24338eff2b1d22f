"""Readings of a launch with one cell: the windows that a run would have, found again in its events."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fake_world import STEP_TOKENS, Script, World

from flashprof.app.launch_windows import launch_windows
from flashprof.app.visits import CellVisit, VisitReading
from flashprof.app.window_visits import serve_windows, window_results
from flashprof.contracts.experiment import SubjectKind
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import WindowKind
from flashprof.store.tail import read_event_logs


@dataclass
class Wanted:
    """Takes windows until there are enough."""

    num: int = 3
    readings: list[VisitReading] = field(default_factory=list)

    def visit(self) -> CellVisit:
        return CellVisit(cell="good", mark={"stage": "confirm", "position": len(self.readings)})

    def take(self, reading: VisitReading) -> CellVisit | None:
        self.readings.append(reading)
        return self.visit() if len(self.readings) < self.num else None

    def judge(self, start_ns: int, end_ns: int) -> tuple[str, ...]:
        return (f"{end_ns - start_ns}",)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def own_clock(world: World) -> None:
    world.script = replace(world.script, acknowledges=False)


def only_prints(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(emits=False, step_s=lambda index: 0.1 if index % 2 else 0.12)


def nothing_special(world: World) -> None:
    world.script = Script()


@pytest.mark.parametrize("prepare", [nothing_special, own_clock, only_prints])
def test_readings_are_the_windows_of_a_run(world: World, prepare: Callable[[World], None]) -> None:
    prepare(world)
    wanted = Wanted()
    recording, folder = world.record(serve_windows(2.0, wanted.visit(), on_reading=wanted.take, judge=wanted.judge))
    logs = read_event_logs(folder.events)
    rows = launch_windows(logs, recording.observed, recording.readings.readings, steady_ns=recording.steady_ns)
    measured = [row for row in rows if row.kind is WindowKind.MEASURE]

    assert (Outcome.COMPLETED, "") == (recording.outcome, recording.reason)
    assert ["measure-1", "measure-2", "measure-3"] == [row.label for row in measured]
    assert [(row.start_ns, row.end_ns, row.num_tokens, math.log(row.tok_per_s)) for row in measured] == [
        (reading.start_ns, reading.end_ns, reading.num_tokens, reading.log_tok_per_s) for reading in wanted.readings
    ]
    assert [("good", {"stage": "confirm", "position": place}) for place in range(3)] == [
        (reading.cell, reading.mark) for reading in wanted.readings
    ]
    assert math.log(STEP_TOKENS / 0.1) == pytest.approx(wanted.readings[0].log_tok_per_s, abs=0.15)


@pytest.mark.parametrize("prepare", [nothing_special, own_clock, only_prints])
def test_they_are_found_again(world: World, prepare: Callable[[World], None]) -> None:
    prepare(world)
    wanted = Wanted()
    recording, folder = world.record(serve_windows(2.0, wanted.visit(), on_reading=wanted.take, judge=wanted.judge))
    logs = read_event_logs(folder.events)
    found = window_results(logs, observed=recording.observed, readings=recording.readings.readings, judge=wanted.judge)

    assert tuple(wanted.readings) == found


def test_a_window_costs_what_lies_since_the_one_before(world: World) -> None:
    wanted = Wanted()
    world.record(serve_windows(2.0, wanted.visit(), on_reading=wanted.take))
    first, second, third = wanted.readings

    assert [first.start_ns, first.end_ns, second.end_ns] == [first.begun_ns, second.begun_ns, third.begun_ns]
    assert second.begun_ns < second.start_ns


def test_a_crash_keeps_the_complete_windows(world: World) -> None:
    world.script = Script(exits=(14.0, 1), last_words="RuntimeError: boom")
    wanted = Wanted(num=1000)
    recording, folder = world.record(serve_windows(2.0, wanted.visit(), on_reading=wanted.take))

    assert Outcome.CRASHED is recording.outcome
    assert len(wanted.readings) >= 2
    assert tuple(wanted.readings) == window_results(read_event_logs(folder.events))


def test_windows_of_a_plain_run_are_no_readings(world: World) -> None:
    _, folder = world.record()

    assert () == window_results(read_event_logs(folder.events))


def test_an_empty_window_is_taken_again(world: World) -> None:
    # 10 s without a line: a window and what follows of another.
    world.kind = SubjectKind.FOREIGN
    world.script = Script(emits=False, step_s=lambda index: 10.0 if index == 60 else 0.1)
    wanted = Wanted(num=4)
    recording, _ = world.record(serve_windows(4.0, wanted.visit(), on_reading=wanted.take))

    assert Outcome.COMPLETED is recording.outcome, recording.reason
    assert [0, 1, 2, 3] == [reading.mark["position"] for reading in wanted.readings]


def test_a_subject_that_says_nothing_ends_the_launch(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(load_s=None, emits=False)
    world.plan = replace(world.plan, hang_timeout_s=1000.0)
    wanted = Wanted()
    recording, _ = world.record(serve_windows(2.0, wanted.visit(), on_reading=wanted.take))

    assert Outcome.TOOL_FAILED is recording.outcome
    assert "3 windows of 2 s in a row hold no tokens; try: --set windows.measure_s=6" == recording.reason
    assert [] == wanted.readings
