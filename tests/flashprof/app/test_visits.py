"""Visits in virtual time: any cells in any order, and events alone give the same readings again."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice, pairwise
from pathlib import Path

import pytest
from fake_world import STEP_TOKENS, Script, World

from flashprof.app.measure import Schedule
from flashprof.app.visits import STANDSTILL, CellVisit, VisitPlan, VisitReading, serve_visits, visit_results
from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import Ack, EventLog, Header, Step
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import ToggleValues
from flashprof.store.run_folder import RunFolder
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import Switch, cut_windows, find_switches, switch_detail

CELLS: dict[str, ToggleValues] = {
    "good": {"swa": True, "compile": True},
    "swa": {"swa": False, "compile": True},
    "compile": {"swa": True, "compile": False},
    "bad": {"swa": False, "compile": False},
}
COST = {"good": 1.0, "swa": 1.2, "compile": 1.0, "bad": 1.3}


def factor_of(values: ToggleValues) -> float:
    return next((COST[cell] for cell, wanted in CELLS.items() if wanted == values), 1.0)


def noisy_steps(sd: float = 0.02, seed: int = 1) -> Callable[[int], float]:
    rng = random.Random(seed)
    factors = [1 + rng.gauss(0, sd) for _ in range(9000)]
    return lambda index: 0.1 * factors[index]


@dataclass
class Search:
    """Visits the cells of a list, one after the other."""

    cells: Sequence[str]
    plan: VisitPlan = field(default_factory=VisitPlan)
    readings: list[VisitReading] = field(default_factory=list)
    disturbed: tuple[str, ...] = ()

    def visit(self) -> CellVisit | None:
        number = len(self.readings)
        if number == len(self.cells):
            return None
        cell = self.cells[number]
        return CellVisit(cell=cell, values=CELLS[cell], mark={"stage": "search", "block": number})

    def take(self, reading: VisitReading) -> CellVisit | None:
        self.readings.append(reading)
        return self.visit()

    def judge(self, start_ns: int, end_ns: int) -> tuple[str, ...]:
        return self.disturbed if (end_ns - start_ns) % 2 else ()

    def schedule(self) -> Schedule:
        first = self.visit()
        assert first is not None
        return serve_visits(self.plan, first, on_reading=self.take, judge=self.judge)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.script = Script(step_s=noisy_steps(), toggle_factor=factor_of)
    return world


def many(num: int, cells: Sequence[str] = tuple(CELLS)) -> list[str]:
    return list(islice(cycle(cells), num))


def logs_of(folder: RunFolder) -> list[EventLog]:
    return read_event_logs(folder.events)


def rates(readings: Sequence[VisitReading], cell: str) -> list[float]:
    return [reading.log_tok_per_s for reading in readings if reading.cell == cell]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def test_readings_show_what_each_cell_costs(world: World) -> None:
    search = Search(many(24))
    recording, _ = world.record(search.schedule())

    assert (Outcome.COMPLETED, "") == (recording.outcome, recording.reason)
    assert many(24) == [reading.cell for reading in search.readings]
    assert [{"stage": "search", "block": number} for number in range(24)] == [
        reading.mark for reading in search.readings
    ]
    assert {(12, 12 * STEP_TOKENS)} == {(reading.num_steps, reading.num_tokens) for reading in search.readings}
    for cell, cost in COST.items():
        expected = math.log(STEP_TOKENS / 0.1 / cost)
        assert expected == pytest.approx(mean(rates(search.readings, cell)), abs=0.015)


def test_events_alone_give_the_same_readings_again(world: World) -> None:
    search = Search(many(20), disturbed=("somebody else",))
    _, folder = world.record(search.schedule())

    assert tuple(search.readings) == visit_results(logs_of(folder), judge=search.judge)
    assert {(), ("somebody else",)} == {reading.disturbances for reading in search.readings}


def test_a_launch_that_was_killed_keeps_its_first_readings(world: World) -> None:
    search = Search(many(9))
    _, folder = world.record(search.schedule())
    events = folder.events / "trainer-0.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    nums_found = []
    for num_lines in range(1, len(lines), 17):
        events.write_text("".join(lines[:num_lines]))
        found = visit_results(logs_of(folder))
        nums_found.append(len(found))

        assert tuple(search.readings[: len(found)]) == found
    assert {*range(10)} == set(nums_found)


def test_a_crash_keeps_the_complete_readings(world: World) -> None:
    world.script = replace(world.script, exits=(60.0, 1), last_words="RuntimeError: boom")
    search = Search(many(1000))
    recording, folder = world.record(search.schedule())

    assert Outcome.CRASHED is recording.outcome
    assert len(search.readings) > 4
    assert tuple(search.readings) == visit_results(logs_of(folder))


def test_only_the_first_visit_of_a_cell_is_warmed_up(world: World) -> None:
    _, folder = world.record(Search(["good", "bad", "good", "bad", "bad"]).schedule())

    assert ["warm-up good", "1 good", "warm-up bad", "2 bad", "3 good", "4 bad", "5 bad"] == [
        switch.label for switch in find_switches(logs_of(folder))
    ]


def test_a_warm_cell_is_seen_in_two_dozen_steps(world: World) -> None:
    world.script = replace(world.script, step_s=lambda _: 0.1)
    search = Search(list(CELLS))
    _, folder = world.record(search.schedule())
    visits = cut_windows(logs_of(folder))
    begun = [switch for switch in find_switches(logs_of(folder)) if not switch.block]
    num_steps = [
        window.steps[0].step - begun_at.settle_steps - steps_before(logs_of(folder), begun_at)
        for window, begun_at in zip(visits, begun, strict=True)
    ]

    # 12 + 12 steps, one that settles, and at most three until the command is sent, read and obeyed.
    assert all(24 <= num + 12 <= 29 for num in num_steps)
    assert all(reading.begun_ns == switch.at_ns for reading, switch in zip(search.readings, begun, strict=True))


def steps_before(logs: Sequence[EventLog], switch: Switch) -> int:
    return sum(step.end_ns <= switch.at_ns for step in logs[0].steps)


@pytest.mark.parametrize(("after_steps", "compile_s"), [(1, 90.0), (4, 50.0)])
def test_compiling_at_the_first_use_is_waited_for(world: World, after_steps: int, compile_s: float) -> None:
    compiled: list[int] = []
    world.script = Script(step_s=lambda index: compile_s if index in compiled else 0.1)

    def plant() -> None:
        compiled.append(len(read_event_logs(world.reports / ".run.part" / "events")[0].steps) + after_steps)

    world.plan = replace(world.plan, start_timeout_s=600.0, steady_timeout_s=100.0)
    world.when_stage("warming up swa", plant)
    search = Search(["good", "swa", "good", "swa"])
    recording, _ = world.record(search.schedule())
    waited_s = (search.readings[1].start_ns - search.readings[1].begun_ns) / 1e9

    assert Outcome.COMPLETED is recording.outcome, recording.reason
    assert compile_s + 3 < waited_s < compile_s + 10
    assert {()} == {reading.disturbances for reading in search.readings}
    assert [math.log(STEP_TOKENS / 0.1)] * 4 == pytest.approx(
        [reading.log_tok_per_s for reading in search.readings], abs=1e-6
    )


def test_a_standstill_in_a_cells_first_window_is_no_evidence_but_later_it_is(world: World) -> None:
    compiled: dict[str, int] = {}
    world.script = Script(step_s=lambda index: 5.0 if index in compiled.values() else 0.1)

    def plant() -> None:
        last = world.journal[-1] if world.journal else ""
        if last in ("set_toggles 2 swa", "set_toggles 3 swa") and last not in compiled:
            compiled[last] = len(read_event_logs(world.reports / ".run.part" / "events")[0].steps) + 4

    world.clock.on_sleep.append(plant)
    search = Search(["good", "swa", "swa"])
    _, folder = world.record(search.schedule())
    lengths_s = [(reading.end_ns - reading.start_ns) / 1e9 for reading in search.readings]

    assert [(), (STANDSTILL,), ()] == [reading.disturbances for reading in search.readings]
    assert [1.2, 6.1, 6.1] == pytest.approx(lengths_s)
    assert tuple(search.readings) == visit_results(logs_of(folder))


def test_a_cell_that_does_not_settle_is_measured_all_the_same(world: World) -> None:
    world.script = replace(world.script, step_s=lambda index: 0.1 + 0.01 * max(0, index - 60))
    world.plan = replace(world.plan, steady_timeout_s=8.0)
    search = Search(["good", "swa"])
    recording, _ = world.record(search.schedule())

    assert 2 == len(search.readings)
    assert any("cell swa had not settled 8 s after" in note for note in recording.notes)


@pytest.mark.parametrize("lag", [0, 1, 7])
def test_settle_steps_are_found_and_told_by_later_switches(world: World, lag: int) -> None:
    world.script = replace(world.script, switch_lag_steps=lag)
    search = Search(many(30))
    recording, folder = world.record(search.schedule())
    switches = [switch for switch in find_switches(logs_of(folder)) if switch.block]
    told = [(later.block, later.settle_steps) for earlier, later in pairwise(switches) if earlier.cell != later.cell]

    # Four first visits, then twelve changes.
    assert {12} == {settle_steps for block, settle_steps in told if 4 < block <= 16}
    assert {max(1, lag)} == {settle_steps for block, settle_steps in told if block > 16}
    assert 1 == sum(f"{max(1, lag)} steps are dropped" in note for note in recording.notes)


def test_the_cell_in_force_needs_no_long_settling(world: World) -> None:
    plan = VisitPlan(min_settle_steps=3)
    _, folder = world.record(Search(["good", "good", "bad", "good", "good"], plan=plan).schedule())
    switches = find_switches(logs_of(folder))

    assert [12, 1, 1, 12, 1, 12, 1] == [switch.settle_steps for switch in switches]


def test_at_least_what_the_plan_says_is_dropped(world: World) -> None:
    _, folder = world.record(Search(many(20), plan=VisitPlan(min_settle_steps=5)).schedule())

    assert 5 == find_switches(logs_of(folder))[-1].settle_steps


def test_a_refused_toggle_is_a_usage_error_with_its_reason(world: World) -> None:
    world.script = Script(refuses={"swa": "cold: it needs a new start"})
    with pytest.raises(UsageError) as caught:
        world.record(Search(["good"], plan=VisitPlan(remedy="--cold swa")).schedule())

    assert ("swa: cold: it needs a new start", "--cold swa") == (caught.value.offered, caught.value.next_command)


def test_a_window_that_never_fills_ends_the_launch(world: World) -> None:
    search = Search(many(9), plan=VisitPlan(window_timeout_s=0.5))
    recording, _ = world.record(search.schedule())

    assert Outcome.TIMED_OUT is recording.outcome
    assert "window 1 good did not get its 12,000 tokens within 0 s" in recording.reason


def test_a_plan_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError):
        VisitPlan(max_settle_steps=0)


class Trainer:
    """Steps of uneven batches: 30 ms, and 60 ns a token, times what the cell costs."""

    def __init__(self, seed: int) -> None:
        header = Header(role="drafter", rank=0, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
        self.log = EventLog(header=header)
        self.rng = random.Random(seed)
        self.now_ns = 1

    def train(self, cost: float, num_steps: int) -> None:
        for _ in range(num_steps):
            tokens = self.rng.choice([512, 768, 1024, 1536, 2048])
            self.now_ns += round((0.03 + 60e-6 * tokens) * cost * math.exp(self.rng.gauss(0, 0.03)) * 1e9)
            self.log.steps.append(Step(len(self.log.steps), self.now_ns, tokens, tokens, 0))

    def visit(self, cell: str, block: int) -> None:
        switch = Switch(
            command_id=len(self.log.acks) + 1,
            at_ns=self.now_ns,
            cell=cell,
            block=block,
            position=0,
            order="",
            label=f"{block} {cell}",
            settle_steps=1,
            window_tokens=12_000,
        )
        self.log.acks.append(Ack(switch.command_id, "set_toggles", 0, self.now_ns, switch_detail(switch)))
        self.train(COST[cell], 30)


def test_what_batches_explain_is_taken_out_at_one_level_for_all_readings() -> None:
    trainer = Trainer(seed=3)
    trainer.train(1.0, 200)
    for cell in COST:
        trainer.visit(cell, 0)
        trainer.visit(cell, len(trainer.log.acks))
    for cell in many(160):
        trainer.visit(cell, len(trainer.log.acks))
    readings = visit_results([trainer.log])
    raw = [math.log(reading.num_tokens / (reading.end_ns - reading.start_ns) * 1e9) for reading in readings]

    # A model of one window's own level would leave it as measured.
    assert readings[0].log_tok_per_s != pytest.approx(raw[0], abs=1e-3)

    for cell, cost in COST.items():
        found = rates(readings, cell)
        as_measured = [value for value, reading in zip(raw, readings, strict=True) if reading.cell == cell]
        assert -math.log(cost) == pytest.approx(mean(found) - mean(rates(readings, "good")), abs=0.01)
        assert spread(found) < 0.6 * spread(as_measured)


def spread(values: Sequence[float]) -> float:
    return math.sqrt(mean([(value - mean(values)) ** 2 for value in values]))


def test_a_mark_comes_back_as_plain_json(world: World) -> None:
    search = Search(["good"])
    _, folder = world.record(search.schedule())
    (switch,) = [switch for switch in find_switches(logs_of(folder)) if switch.block]

    assert {"stage": "search", "block": 0} == json.loads(json.dumps(dict(switch.mark)))
