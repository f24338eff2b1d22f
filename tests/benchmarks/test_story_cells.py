"""The tour of the story's cells: what it writes after each window, and when it ends."""

from __future__ import annotations

import itertools
import json
import math
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from fake_world import Script, World

from benchmarks.story_cells import CellTour, visit_plan
from benchmarks.story_effects import Cell, Stop, make_cells, tour
from benchmarks.story_facts import cell_facts
from flashprof.app.visits import VisitReading, serve_visits
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import Toggle

CELL = Cell(name="none", group="none", members=(), values={"queue": 1})


def reading(*, disturbances: tuple[str, ...] = ()) -> VisitReading:
    return VisitReading(
        cell="none",
        mark={},
        begun_ns=0,
        start_ns=10**9,
        end_ns=3 * 10**9,
        num_tokens=1000,
        num_steps=3,
        log_tok_per_s=math.log(500),
        disturbances=disturbances,
    )


def make_tour(path: Path, left_s: float) -> CellTour:
    stops = (Stop(cell=CELL, round=number, counts=number != 2) for number in itertools.count(1))
    return CellTour(stops=stops, until_s=time.monotonic() + left_s, path=path, about={"cells": []})


def test_each_window_is_on_the_disk_before_the_next(tmp_path: Path) -> None:
    route = make_tour(tmp_path / "cells.json", 1000)
    visits = [route.first(), route.take(reading()), route.take(reading()), route.take(reading(disturbances=("busy",)))]
    document = json.loads((tmp_path / "cells.json").read_text())

    assert all(visit is not None and visit.values == {"queue": 1} for visit in visits)
    assert [1, 2, 3] == [one["round"] for one in document["readings"]]
    # The second was thrown away by the tour, the third by the judge of the machine.
    assert [True, False, False] == [one["counts"] for one in document["readings"]]
    assert [2.0] * 3 == [one["length_s"] for one in document["readings"]]


def test_when_the_time_is_up_there_is_no_next_visit(tmp_path: Path) -> None:
    route = make_tour(tmp_path / "cells.json", -1)
    route.first()

    assert route.take(reading()) is None
    assert [1] == [one["round"] for one in json.loads(route.path.read_text())["readings"]]


def test_a_launch_that_is_toured_shows_what_each_toggle_brings(tmp_path: Path) -> None:
    toggles = (
        Toggle(name="fast", help="f", hot=True),
        Toggle(name="idle", help="i", hot=True),
        Toggle(name="early", help="e", hot=True, is_upstream=True),
    )
    world = World(tmp_path)
    noise = np.random.default_rng(2).normal(1, 0.01, 9000)
    world.script = Script(
        step_s=lambda index: 0.1 * float(noise[index]),
        toggle_factor=lambda values: (1.0 if values.get("fast") else 1.2) * (1.0 if values.get("early") else 1.1),
        # As a queue of 4 holds back what an upstream toggle does.
        switch_lag_steps=4,
    )
    cells = make_cells(toggles, [])
    route = CellTour(
        stops=tour(cells, frozenset({"early"}), np.random.default_rng(0)),
        until_s=180.0,
        path=tmp_path / "cells.json",
        about={"cells": [asdict(cell) for cell in cells], "refused": {}},
        clock=lambda: world.clock.now_ns / 1e9,
    )
    recording, _ = world.record(serve_visits(visit_plan(6), route.first(), on_reading=route.take))
    facts = cell_facts(json.loads(route.path.read_text()))
    effects = {effect["cell"]: effect["effect"] for effect in facts["effects"]}

    assert Outcome.COMPLETED == recording.outcome, recording.reason
    assert facts["num_windows"] > facts["num_counted"] > 3 * len(cells)
    assert pytest.approx(0.20, abs=0.03) == effects["fast"]["estimate"]
    assert pytest.approx(1 / 1.2 - 1, abs=0.03) == effects["all,-fast"]["estimate"]
    assert pytest.approx(0.10, abs=0.03) == effects["early"]["estimate"]
    assert pytest.approx(0.0, abs=0.03) == effects["idle"]["estimate"]
