"""The dispatcher with targets played by the test: order, stopping, commands, targets that die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from trainer_config import some_config

from flashprof.contracts.control import CommandName, CommandWriter
from flashprof.contracts.errors import SubjectError
from flashprof.contracts.events import EventLog, decode
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import connect
from pipeline.config import HostPlace, TrainConfig
from pipeline.data.batches import BatchPlan, batch_rule, batches_from
from pipeline.presets import TINY
from pipeline.roles.dispatcher import TARGET_TOGGLES, Dispatcher, Lines
from pipeline.topology import Topology
from pipeline.transport.messages import Order, WorkItem

CONTEXT = get_context("fork")
NUM_SAMPLES = 40
NOBODY = connect("nobody")


@pytest.fixture(scope="module")
def dataset() -> datasets.Dataset:
    rng = np.random.default_rng(0)
    lengths = rng.integers(40, 400, NUM_SAMPLES)
    rows = {
        "input_ids": [np.full(length, index + 3, dtype=np.int32) for index, length in enumerate(lengths)],
        "loss_mask": [np.ones(length, dtype=np.uint8) for length in lengths],
        "length": lengths.astype(np.int32),
    }
    features = datasets.Features(
        {
            "input_ids": datasets.List(datasets.Value("int32")),
            "loss_mask": datasets.List(datasets.Value("uint8")),
            "length": datasets.Value("int32"),
        }
    )
    return datasets.Dataset.from_dict(rows, features=features)


@dataclass
class Stage:
    """A dispatcher with its pipes, and what the fake targets got."""

    dispatcher: Dispatcher
    pipes: Sequence[Connection]
    """The targets' ends."""
    drafter: Connection
    """The first drafter's end of its status pipe."""
    orders: Connection
    """The first drafter's end."""
    control: CommandWriter
    events: Callable[[], EventLog]
    stop: threading.Event
    last_place: tuple[int, int, int]
    """Of the item with which the fake drafters are done."""
    items: list[WorkItem] = field(default_factory=list)

    def play_target(self, pipe: Connection, num_items: int | None = None) -> None:
        """Ask, take, and forget work; after *num_items*, die having asked once more."""
        while num_items is None or num_items > 0:
            pipe.send("request")
            item = pipe.recv()
            if item is None:
                return
            self.items.append(item)
            if (item.step, item.drafter, item.part) == self.last_place:
                self.drafter.send(item.step + 1)
            num_items = None if num_items is None else num_items - 1
        pipe.send("request")
        pipe.close()

    def run(self) -> int:
        """Run the dispatcher with all targets played, then dismiss them."""
        players = [threading.Thread(target=self.play_target, args=(pipe,), daemon=True) for pipe in self.pipes]
        for player in players:
            player.start()
        num_steps = self.dispatcher.run()
        for pipe in self.dispatcher._lines.targets:
            pipe.send(None)
        for player in players:
            player.join(10)
        return num_steps

    def received_orders(self) -> list[Order]:
        received = []
        while self.orders.poll():
            received.append(self.orders.recv())
        return received


Build = Callable[..., Stage]


def make_config(
    cache: Path, topology: str, *, num_steps: int, start_step: int, accumulate: int, host: HostPlace
) -> TrainConfig:
    num_targets, num_drafters = map(int, topology.split("+"))
    data, recipe = replace(TINY.data, token_budget=1024), replace(TINY.recipe, accumulate=accumulate)
    return some_config(
        preset=replace(TINY, data=data, recipe=recipe),
        topology=Topology(num_targets, num_drafters),
        num_steps=num_steps,
        cache=cache,
        start_step=start_step,
        host=host,
    )


def first_batches(config: TrainConfig, lengths_N: Any) -> Iterator[BatchPlan]:
    data = config.preset.data
    return batches_from(
        lengths_N,
        np.arange(NUM_SAMPLES),
        batch_rule(data, 0),
        first=config.num_batches_before,
    )


@pytest.fixture
def build(dataset: datasets.Dataset, tmp_path: Path) -> Build:
    def make(
        *,
        topology: str = "1+1",
        num_steps: int = 6,
        start_step: int = 0,
        accumulate: int = 1,
        host: HostPlace | None = None,
        planted: ToggleValues | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Stage:
        config = make_config(
            tmp_path,
            topology,
            num_steps=num_steps,
            start_step=start_step,
            accumulate=accumulate,
            host=host or HostPlace(),
        )
        config = replace(config, toggles=config.toggles | (planted or {}))
        pairs = [CONTEXT.Pipe() for _ in range(config.topology.num_targets)]
        status, drafter = CONTEXT.Pipe()
        order_reader, orders = CONTEXT.Pipe(duplex=False)
        (tmp_path / "control").mkdir(exist_ok=True)
        emitter = connect("dispatcher", run_dir=tmp_path)
        stop = threading.Event()
        lines = Lines(
            targets=[ours for ours, _ in pairs],
            drafters=[status],
            orders=orders,
            should_stop=stop.is_set,
            check_workers=check,
        )
        batches = first_batches(config, np.asarray(dataset["length"]))

        def events() -> EventLog:
            emitter.close()
            path = tmp_path / "events" / "dispatcher-0.jsonl"
            return decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))

        return Stage(
            Dispatcher(config, dataset, batches, emitter, lines),
            [theirs for _, theirs in pairs],
            drafter,
            order_reader,
            CommandWriter(tmp_path / "control"),
            events,
            stop,
            (num_steps - 1, config.topology.num_drafters - 1, accumulate - 1),
        )

    return make


@pytest.mark.parametrize("topology", ["1+1", "2+1", "1+2", "3+2"])
def test_every_drafter_gets_every_step_once(build: Build, topology: str) -> None:
    stage = build(topology=topology, num_steps=7)
    num_drafters = int(topology[-1])

    num_steps = stage.run()

    places = sorted((item.step, item.drafter) for item in stage.items)
    assert 7 == num_steps
    assert [(step, drafter) for step in range(7) for drafter in range(num_drafters)] == places


def test_a_target_is_given_work_in_order(build: Build) -> None:
    stage = build(topology="1+2", num_steps=5)

    stage.run()

    places = [(item.step, item.drafter) for item in stage.items]
    assert sorted(places) == places


def test_an_epoch_holds_every_sample_once_and_the_next_begins_by_itself(build: Build) -> None:
    stage = build(num_steps=60)

    stage.run()
    seen: list[int] = []
    for item in stage.items:
        seen += item.input_ids_BS[: len(item.lengths), 0].tolist()

    assert set(range(3, 3 + NUM_SAMPLES)) == set(seen[:NUM_SAMPLES])
    assert len(seen) > NUM_SAMPLES
    assert seen[:NUM_SAMPLES] != seen[NUM_SAMPLES : 2 * NUM_SAMPLES]


def first_tokens(stage: Stage) -> dict[tuple[int, int, int], list[int]]:
    """Which samples each place of the run's order got."""
    return {
        (item.step, item.drafter, item.part): item.input_ids_BS[: len(item.lengths), 0].tolist() for item in stage.items
    }


def test_a_step_of_several_parts_has_them_all_for_every_drafter(build: Build) -> None:
    stage = build(topology="2+2", num_steps=3, accumulate=2)

    stage.run()

    places = [(step, drafter, part) for step in range(3) for drafter in range(2) for part in range(2)]
    assert places == sorted(first_tokens(stage))


def test_a_resumed_run_gets_the_batches_that_the_first_would_have_got(build: Build) -> None:
    whole, resumed = build(topology="1+2", num_steps=9), build(topology="1+2", num_steps=9, start_step=5)

    whole.run()
    resumed.run()

    expected = {place: ids for place, ids in first_tokens(whole).items() if place[0] >= 5}
    assert expected == first_tokens(resumed)


def test_two_hosts_deal_the_batches_of_one_with_as_many_drafters(build: Build) -> None:
    alone = build(topology="1+2", num_steps=4)
    hosts = [build(topology="1+1", num_steps=4, host=HostPlace(rank=rank, num_hosts=2)) for rank in range(2)]

    for stage in (alone, *hosts):
        stage.run()

    for rank, stage in enumerate(hosts):
        own = {place: ids for place, ids in first_tokens(alone).items() if place[1] == rank}
        expected = {(step, 0, part): ids for (step, _, part), ids in own.items()}
        assert expected == first_tokens(stage)


def test_its_own_steps_count_what_it_handed_out(build: Build) -> None:
    stage = build(topology="1+2", num_steps=5)
    stage.run()

    steps = stage.events().steps

    assert sum(item.num_tokens for item in stage.items) == sum(step.num_tokens for step in steps)
    assert sum(item.num_padding_tokens for item in stage.items) == sum(step.num_padding_tokens for step in steps)
    assert list(range(5)) == [step.step for step in steps]


@pytest.mark.parametrize("by", ["signal", "command"])
def test_a_stop_is_ordered_once_and_work_is_handed_out_until_a_drafter_has_ended(build: Build, by: str) -> None:
    stage = build(topology="1+2", num_steps=0)
    target = stage.pipes[0]
    ended: list[int] = []
    running = threading.Thread(target=lambda: ended.append(stage.dispatcher.run()), daemon=True)
    running.start()
    if by == "signal":
        stage.stop.set()
    else:
        stage.control.send(CommandName.STOP)
    # Drafters that have not agreed yet may wait for these.
    for _ in range(5):
        target.send("request")
        assert target.recv() is not None
    stage.drafter.send(2)
    running.join(5)

    assert [2] == ended
    assert [Order(stop=True)] == stage.received_orders()


def test_a_stop_by_command_is_acknowledged(build: Build) -> None:
    stage = build(num_steps=4)
    stage.control.send(CommandName.STOP)

    stage.run()

    assert [("stop", 0)] == [(ack.name, ack.step) for ack in stage.events().acks]


def test_only_the_first_host_reads_commands(build: Build) -> None:
    stage = build(num_steps=3, host=HostPlace(rank=1, num_hosts=2))
    stage.control.send(CommandName.STOP)

    stage.run()

    assert [] == stage.received_orders()


def test_toggles_that_cannot_be_set_are_left_out_with_the_reason(build: Build) -> None:
    stage = build(topology="1+2", num_steps=2)
    stage.control.send(CommandName.SET_TOGGLES, values={"swa": True, "warmup": True, "queue": 0, "packed-target": True})
    stage.control.send(CommandName.WINDOW_START, label="a", kind="measure")

    stage.run()
    (order,) = stage.received_orders()
    first, second = (command.detail for command in order.commands)

    assert {"swa": True, "packed-target": True} == first["values"]
    assert {"warmup", "queue"} == set(first["refused"])
    assert {"label": "a", "kind": "measure"} == second
    # Targets are told with their work; the first item was made before the command was read.
    assert [(False, False, True)] * 3 == [(item.early_exit, item.compiled, item.packed) for item in stage.items[1:]]


def test_an_acknowledged_switch_repeats_what_the_command_said_of_its_block(build: Build) -> None:
    stage = build(num_steps=2)
    place = {"cell": "base", "block": 3, "position": 1, "order": "ABBA", "window_tokens": 90_000, "label": "b3-1"}
    stage.control.send(CommandName.SET_TOGGLES, values={"swa": True, "warmup": True}, **place)

    stage.run()
    (order,) = stage.received_orders()

    expected = {**place, "values": {"swa": True}, "refused": {"warmup": "cold: it needs a new start"}}
    assert [expected] == [command.detail for command in order.commands]


@pytest.mark.parametrize("planted", [{"brake": 0}, {}])
def test_only_a_run_with_the_planted_brake_obeys_it(build: Build, planted: ToggleValues) -> None:
    stage = build(num_steps=2, planted=planted)
    stage.control.send(CommandName.SET_TOGGLES, values={"brake": 50})

    stage.run()

    assert ({"brake": 50} if planted else {}) == stage.received_orders()[0].commands[0].detail["values"]


@pytest.mark.parametrize("value", [True, False])
def test_targets_of_several_hosts_are_not_changed_on_the_first_alone(build: Build, value: bool) -> None:
    stage, asked = build(num_steps=2, host=HostPlace(num_hosts=2)), dict.fromkeys(TARGET_TOGGLES, value)
    stage.control.send(CommandName.SET_TOGGLES, values={"swa": True} | asked)

    stage.run()
    (order,) = stage.received_orders()

    # As it is already, it is not refused.
    assert (set(asked) if value else set()) == set(order.commands[0].detail["refused"])
    assert {"swa": True} | ({} if value else asked) == order.commands[0].detail["values"]
    assert [(False, False, False)] * 2 == [(item.early_exit, item.compiled, item.packed) for item in stage.items]


def test_work_for_a_target_that_died_after_asking_goes_to_another(build: Build) -> None:
    stage = build(topology="2+1", num_steps=6)
    mortal = threading.Thread(target=stage.play_target, args=(stage.pipes[0], 2), daemon=True)
    survivor = threading.Thread(target=stage.play_target, args=(stage.pipes[1],), daemon=True)
    mortal.start()
    survivor.start()

    num_steps = stage.dispatcher.run()
    stage.dispatcher._lines.targets[0].send(None)
    survivor.join(5)

    assert 6 == num_steps
    assert list(range(6)) == sorted(item.step for item in stage.items)


def test_a_dead_worker_ends_the_run_with_its_name(build: Build) -> None:
    def check() -> None:
        raise SubjectError("target-0 was killed by SIGKILL", outcome=Outcome.KILLED)

    stage = build(check=check)

    with pytest.raises(SubjectError, match="target-0"):
        stage.dispatcher.run()


def test_a_drafter_that_ends_well_while_workers_are_checked_is_no_death(build: Build) -> None:
    def check() -> None:
        stage.drafter.send(3)
        raise SubjectError("drafter-0 ended with status 0", outcome=Outcome.CRASHED)

    stage = build(check=check)

    assert 3 == stage.dispatcher.run()
