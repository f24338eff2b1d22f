"""The samplers' part of the overhead study in virtual time: each one's cost is found, and none stays attached."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_world import FakeSampler, Script, World
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.overhead_configurations import DEFAULT, Configuration
from benchmarks.overhead_samplers import SamplerCost, Study, plan_turns
from flashprof.contracts.errors import ToolError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import SampleTarget
from flashprof.store.tail import read_event_logs


class Load:
    """A subject whose steps take longer while something that slows it is attached."""

    def __init__(self, noise: float = 0.0) -> None:
        self.factor = 1.0
        rng = random.Random(3)
        self._noise = [1 + rng.gauss(0, noise) for _ in range(20_000)]

    def step_s(self, index: int) -> float:
        return 0.1 * self.factor * self._noise[index]


class Slowing(FakeSampler):
    """A sampler that costs something."""

    def __init__(self, journal: list[str], load: Load, factor: float) -> None:
        super().__init__(journal)
        self._load, self._factor = load, factor

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        super().start(targets, folder)
        self._load.factor = self._factor

    def stop(self) -> list[str]:
        self._load.factor = 1.0
        return super().stop()


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.samplers = []
    return world


def study_of(world: World, configurations: Sequence[Configuration], num_rounds: int = 3) -> tuple[Study, Path]:
    study = Study(configurations, world.reports / "samples", num_rounds=num_rounds, window_s=1.0)
    recording, folder = world.record(study.run)

    assert Outcome.COMPLETED is recording.outcome, recording.reason
    return study, folder.events


def test_each_cost_is_found_in_the_order_given(world: World) -> None:
    load = Load(noise=0.01)
    world.script = Script(step_s=load.step_s)
    dear, free = Slowing(world.journal, load, 1.25), FakeSampler(world.journal)
    study, events = study_of(
        world, [Configuration(name="dear", samplers=(free, dear)), Configuration(name="free", samplers=(free,))]
    )
    costs = study.costs(read_event_logs(events))

    assert [("dear", 3), ("free", 3)] == [(cost.name, len(cost.differences)) for cost in costs]
    assert [20, 0] == pytest.approx([cost.as_measure().value for cost in costs], abs=1.0)
    assert all(0.001 < cost.half < 0.03 for cost in costs)


def test_a_sampler_stays_attached_between_neighbours_and_is_off_in_bare_windows(world: World) -> None:
    sampler = FakeSampler(world.journal, name="spy")
    study, _ = study_of(world, [Configuration(name="spy", samplers=(sampler,))], num_rounds=2)
    journal = [line for line in world.journal if line.startswith(("spy", "set_toggles"))]
    middle = ["set_toggles {0}.2 spy", "set_toggles {0}.3 spy"]
    turned_in = ["set_toggles {0}.1 spy", "spy on {0}-2", *middle, "spy off", "set_toggles {0}.4 spy"]
    turned_out = [
        *("spy on {0}-1", "set_toggles {0}.1 spy", "spy off", *middle),
        *("spy on {0}-4", "set_toggles {0}.4 spy", "spy off"),
    ]
    expected = [
        line.format(number)
        for number, turn in enumerate(study.turns, start=1)
        for line in (turned_in if turn.order == "ABBA" else turned_out)
    ]

    assert expected == journal


def test_one_that_cannot_attach_is_left_out_and_the_others_go_on(world: World) -> None:
    refusal = ToolError("no permission to trace")
    first, second = FakeSampler(world.journal, name="first"), FakeSampler(world.journal, refusal=refusal)
    study, events = study_of(
        world,
        [
            Configuration(name="both", samplers=(first, second)),
            Configuration(name="first", samplers=(first,), note="a note"),
        ],
    )
    costs = study.costs(read_event_logs(events))

    assert {"both": "no permission to trace"} == study.left_out
    assert ["first"] == [cost.name for cost in costs]
    assert 1 == sum(line.startswith("sampler on") for line in world.journal)
    assert world.journal.count("first off") == sum(line.startswith("first on") for line in world.journal)
    assert costs[0].note.endswith("; a note")


def test_what_samplers_say_is_kept(world: World) -> None:
    sampler = FakeSampler(world.journal, notes=("1.2 s behind",))
    study, _ = study_of(world, [Configuration(name="spy", samplers=(sampler,))], num_rounds=2)

    assert {"1.2 s behind"} == set(study.remarks["spy"])


def test_a_crash_detaches_and_keeps_complete_blocks(world: World) -> None:
    world.script = Script(exits=(40.0, 1))
    sampler = FakeSampler(world.journal)
    study = Study([Configuration(name="spy", samplers=(sampler,))], world.reports / "s", num_rounds=100, window_s=1.0)
    recording, folder = world.record(study.run)
    (cost,) = study.costs(read_event_logs(folder.events))

    assert Outcome.CRASHED is recording.outcome
    assert 1 < len(cost.differences) < 100
    assert world.journal.count("sampler off") == sum(line.startswith("sampler on") for line in world.journal)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(1, 6), st.integers(0, 9))
def test_all_have_their_turns_in_each_round_and_orders_in_mirrored_pairs(
    turns: list[int], num_rounds: int, seed: int
) -> None:
    configurations = [Configuration(name=str(index), samplers=(), turns_a_round=num) for index, num in enumerate(turns)]
    planned = plan_turns(configurations, num_rounds=num_rounds, seed=seed)
    size = sum(turns)

    for start in range(0, len(planned), size):
        names = Counter(turn.configuration.name for turn in planned[start : start + size])

        assert {str(index): num for index, num in enumerate(turns)} == names
    assert size * num_rounds == len(planned)
    for one in configurations:
        orders = [turn.order for turn in planned if turn.configuration is one]

        assert all({"ABBA", "BAAB"} == set(pair) for pair in zip(orders[::2], orders[1::2], strict=False))


def test_only_the_default_has_a_goal_and_a_slow_down_is_a_cost() -> None:
    differences = (math.log(0.98), math.log(0.98))
    default, other = (
        SamplerCost(name=name, differences=differences, half=0.01, note="").as_measure()
        for name in (DEFAULT, "pidstat")
    )

    assert 2.0 == pytest.approx(default.value)
    assert "95 %: 1.0 to 3.0; 2 blocks of 4 windows" == default.note
    assert (False, None) == (default.met, other.met)
