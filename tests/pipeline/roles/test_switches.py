"""Orders that have come are one order; agreed commands come into force together; no reading is lost between readers."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainer_config import some_config

from flashprof.contracts.control import Command, CommandName
from flashprof.contracts.events import EventLog, decode
from flashprof.contracts.toggles import parse_toggles
from flashprof.emit import Emitter, connect
from pipeline.roles.switches import Switches
from pipeline.roles.worker import WorkerSeat
from pipeline.toggles import REGISTRY
from pipeline.topology import Topology
from pipeline.transport.messages import Order
from pipeline.transport.queue import HiddenStateQueue, create_queue

CONTEXT = get_context("fork")
NOBODY = connect("nobody")
START = Command(command_id=1, name=CommandName.WINDOW_START, detail={"label": "a", "kind": "measure"})
DEEP = Command(command_id=2, name=CommandName.SET_TOGGLES, detail={"values": {"swa": True, "queue": 5}})
STOP = Order(stop=True)


@dataclass
class Place:
    """Switches, and the far ends of what they are connected to."""

    switches: Switches
    orders: Connection
    """The dispatcher's end."""
    queue: HiddenStateQueue


def make(emitter: Emitter = NOBODY, *, expression: str = "none", local_rank: int = 0) -> Place:
    config = some_config(topology=Topology(1, 2), toggles=parse_toggles(expression, REGISTRY))
    reader, writer = CONTEXT.Pipe(duplex=False)
    status, stderr = CONTEXT.Pipe()
    queues = tuple(create_queue(CONTEXT, 1) for _ in range(2))
    seat = WorkerSeat(
        role="drafter",
        local_rank=local_rank,
        config=config,
        mask_token_id=0,
        rehearsals=(),
        rendezvous=Path("unused"),
        carrier_name="shared",
        status=status,
        stderr=stderr,
        orders=reader if local_rank == 0 else None,
        queues=queues,
    )
    return Place(Switches(seat, emitter), writer, queues[local_rank])


def scalars(step: int) -> dict[str, torch.Tensor]:
    return {"loss": torch.tensor(1.0 + step)}


def test_without_orders_there_is_an_empty_one() -> None:
    assert Order() == make().switches.read_order()


def test_all_that_has_come_is_one_order_and_is_given_once() -> None:
    place = make()
    for order in (Order(commands=(START,)), STOP, Order(commands=(DEEP,))):
        place.orders.send(order)

    assert Order(commands=(START, DEEP), stop=True) == place.switches.read_order()
    assert Order() == place.switches.read_order()


def test_a_drafter_without_a_line_to_the_dispatcher_has_no_orders() -> None:
    assert Order() == make(local_rank=1).switches.read_order()


def test_what_is_only_read_is_not_in_force() -> None:
    place = make()
    place.orders.send(Order(commands=(DEEP,)))

    place.switches.read_order()
    place.switches.apply(3)

    assert parse_toggles("none", REGISTRY) == place.switches.values
    assert 1 == place.queue.depth.value


@pytest.mark.parametrize("local_rank", [0, 1])
def test_agreed_commands_come_into_force_and_are_acknowledged_once_in_order(tmp_path: Path, local_rank: int) -> None:
    emitter = connect("drafter", local_rank, run_dir=tmp_path)
    place = make(emitter, local_rank=local_rank)
    place.switches.expect((START, DEEP))
    place.switches.apply(7)
    place.switches.apply(8)
    emitter.close()
    log = read(tmp_path / "events" / f"drafter-{local_rank}.jsonl")

    assert [(1, "window_start", 7), (2, "set_toggles", 7)] == [(a.command_id, a.name, a.step) for a in log.acks]
    assert DEEP.detail == log.acks[1].detail
    assert parse_toggles("swa,queue=5", REGISTRY) == place.switches.values
    assert 5 == place.queue.depth.value


def read(path: Path) -> EventLog:
    return decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))


@pytest.mark.parametrize(
    ("expression", "expected"), [("async-metrics", [[], [0], [1, 2], [3], []]), ("none", [[0], [1], [2], [3], []])]
)
def test_what_an_earlier_setting_left_is_read_first(expression: str, expected: list[list[int]]) -> None:
    place = make(expression=expression)

    readings = [place.switches.push_metrics(step, scalars(step)) for step in range(2)]
    place.switches.expect((metrics_command(is_async=False),))
    place.switches.apply(2)
    readings += [place.switches.push_metrics(step, scalars(step)) for step in range(2, 4)]
    readings.append(place.switches.drain_metrics())

    assert expected == [[reading.step for reading in some] for some in readings]


@given(st.lists(st.booleans(), max_size=12))
def test_however_the_readers_are_switched_every_step_is_read_once_and_in_order(settings: list[bool]) -> None:
    place = make()
    readings = []
    for step, is_async in enumerate(settings):
        place.switches.expect((metrics_command(is_async=is_async),))
        place.switches.apply(step)
        readings += place.switches.push_metrics(step, scalars(step))
    readings += place.switches.drain_metrics()

    assert list(range(len(settings))) == [reading.step for reading in readings]
    assert [1.0 + step for step in range(len(settings))] == [reading.values["loss"] for reading in readings]


def metrics_command(*, is_async: bool) -> Command:
    return Command(command_id=9, name=CommandName.SET_TOGGLES, detail={"values": {"async-metrics": is_async}})
