"""The dispatcher with targets played by the test: order, stopping, commands, targets that die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from flashprof.contracts.control import CommandName, CommandWriter
from flashprof.contracts.errors import SubjectError
from flashprof.contracts.events import EventLog, decode
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import parse_toggles
from flashprof.emit import connect
from pipeline.config import TrainConfig
from pipeline.data.samples import SampleInfo, Samples
from pipeline.presets import TINY
from pipeline.roles.dispatcher import Dispatcher
from pipeline.toggles import REGISTRY
from pipeline.topology import Topology
from pipeline.transport.messages import WorkItem
from pipeline.transport.queue import Inbox, create_queue

CONTEXT = get_context("fork")
NUM_SAMPLES = 40
NOBODY = connect("nobody")


@pytest.fixture(scope="module")
def samples() -> Samples:
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
    info = SampleInfo(source="test", num_samples=NUM_SAMPLES, vocab_size=64, mask_token_id=2, cache_path=Path("unused"))
    return Samples(datasets.Dataset.from_dict(rows, features=features), info)


@dataclass
class Stage:
    """A dispatcher with its queues and pipes, and what the fake targets got."""

    dispatcher: Dispatcher
    queues: Sequence[Any]
    pipes: Sequence[Connection]
    """The targets' ends."""
    control: CommandWriter
    events: Callable[[], EventLog]
    stop: threading.Event
    items: list[WorkItem] = field(default_factory=list)

    def play_target(self, pipe: Connection, num_items: int | None = None) -> None:
        """Ask, take, and forget work; after *num_items*, die having asked once more."""
        while num_items is None or num_items > 0:
            pipe.send("request")
            item = pipe.recv()
            if item is None:
                return
            self.items.append(item)
            num_items = None if num_items is None else num_items - 1
        pipe.send("request")
        pipe.close()

    def run(self) -> int:
        """Run the dispatcher with all targets played, then dismiss them."""
        players = [threading.Thread(target=self.play_target, args=(pipe,), daemon=True) for pipe in self.pipes]
        for player in players:
            player.start()
        num_steps = self.dispatcher.run()
        for pipe in self.dispatcher._target_pipes:
            pipe.send(None)
        for player in players:
            player.join(10)
        return num_steps


Build = Callable[..., Stage]


@pytest.fixture
def build(samples: Samples, tmp_path: Path) -> Build:
    def make(*, topology: str = "1+1", num_steps: int = 6, check: Callable[[], None] = lambda: None) -> Stage:
        num_targets, num_drafters = map(int, topology.split("+"))
        config = TrainConfig(
            preset=replace(TINY, data=replace(TINY.data, token_budget=1024)),
            topology=Topology(num_targets, num_drafters),
            toggles=parse_toggles("none", REGISTRY),
            refused={},
            num_steps=num_steps,
            seed=0,
            device="cpu",
            num_threads=1,
            cache=tmp_path,
            log_every=1,
        )
        pairs = [CONTEXT.Pipe() for _ in range(num_targets)]
        queues = [create_queue(CONTEXT, 4) for _ in range(num_drafters)]
        (tmp_path / "control").mkdir()
        emitter = connect("dispatcher", run_dir=tmp_path)
        stop = threading.Event()
        dispatcher = Dispatcher(
            config,
            samples,
            emitter,
            target_pipes=[ours for ours, _ in pairs],
            queues=queues,
            should_stop=stop.is_set,
            check_workers=check,
        )

        def events() -> EventLog:
            emitter.close()
            path = tmp_path / "events" / "dispatcher-0.jsonl"
            return decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))

        return Stage(
            dispatcher, queues, [theirs for _, theirs in pairs], CommandWriter(tmp_path / "control"), events, stop
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
        seen += item.input_ids_BS[:, 0].tolist()

    assert set(range(3, 3 + NUM_SAMPLES)) == set(seen[:NUM_SAMPLES])
    assert len(seen) > NUM_SAMPLES
    assert seen[:NUM_SAMPLES] != seen[NUM_SAMPLES : 2 * NUM_SAMPLES]


def test_its_own_steps_count_what_it_handed_out(build: Build) -> None:
    stage = build(topology="1+2", num_steps=5)
    stage.run()

    steps = stage.events().steps

    assert sum(item.num_tokens for item in stage.items) == sum(step.num_tokens for step in steps)
    assert sum(item.num_padding_tokens for item in stage.items) == sum(step.num_padding_tokens for step in steps)
    assert list(range(5)) == [step.step for step in steps]


@pytest.mark.parametrize("by", ["signal", "command"])
def test_a_step_that_one_drafter_has_is_given_to_all_before_the_run_stops(build: Build, by: str) -> None:
    stage = build(topology="1+2", num_steps=0)
    target = stage.pipes[0]
    running = threading.Thread(target=stage.dispatcher.run, daemon=True)
    target.send("request")
    running.start()
    first = target.recv()
    # Drafter 0 has step 0; left there, it would wait for drafter 1's gradients for ever.
    if by == "signal":
        stage.stop.set()
    else:
        stage.control.send(CommandName.STOP)
    target.send("request")
    second = target.recv() if target.poll(5) else None
    running.join(5)

    assert not running.is_alive()
    assert second is not None
    assert [(0, 0), (0, 1)] == [(item.step, item.drafter) for item in (first, second)]


def test_stop_is_acknowledged_at_the_step_that_was_not_begun(build: Build) -> None:
    stage = build(num_steps=0)
    stage.control.send(CommandName.STOP)

    num_steps = stage.run()

    assert 0 == num_steps
    assert [("stop", 0)] == [(ack.name, ack.step) for ack in stage.events().acks]


def test_toggles_that_cannot_be_set_are_left_out_with_the_reason(build: Build) -> None:
    stage = build(topology="1+2", num_steps=2)
    stage.control.send(CommandName.SET_TOGGLES, values={"swa": True, "warmup": True, "queue": 0})
    stage.control.send(CommandName.WINDOW_START, label="a", kind="measure")

    stage.run()
    details = []
    for queue in stage.queues:
        details.append([command.detail for command in _orders(queue)])

    assert details[0] == details[1]
    assert {"swa": True} == details[0][0]["values"]
    assert {"warmup", "queue"} == set(details[0][0]["refused"])
    assert {"label": "a", "kind": "measure"} == details[0][1]


def test_work_for_a_target_that_died_after_asking_goes_to_another(build: Build) -> None:
    stage = build(topology="2+1", num_steps=6)
    mortal = threading.Thread(target=stage.play_target, args=(stage.pipes[0], 2), daemon=True)
    survivor = threading.Thread(target=stage.play_target, args=(stage.pipes[1],), daemon=True)
    mortal.start()
    survivor.start()

    num_steps = stage.dispatcher.run()
    stage.dispatcher._target_pipes[0].send(None)
    survivor.join(5)

    assert 6 == num_steps
    assert list(range(6)) == sorted(item.step for item in stage.items)


def test_a_dead_worker_ends_the_run_with_its_name(build: Build) -> None:
    def check() -> None:
        raise SubjectError("target-0 was killed by SIGKILL", outcome=Outcome.KILLED)

    stage = build(check=check)

    with pytest.raises(SubjectError, match="target-0"):
        stage.dispatcher.run()


def _orders(queue: Any) -> list[Any]:
    inbox = Inbox(queue)
    return inbox.orders(100)
