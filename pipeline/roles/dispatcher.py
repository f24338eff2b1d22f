"""The dispatcher: makes batches, gives them to targets that ask, and reads the control channel at step boundaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from flashprof.contracts.control import Command, CommandName
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import WAIT, Emitter
from pipeline.brake import BRAKE, BRAKE_TOGGLE
from pipeline.config import TrainConfig
from pipeline.data.batches import BatchPlan, collate
from pipeline.log_output import say
from pipeline.toggles import hot_changes
from pipeline.transport.messages import Order, WorkItem

TARGET_TOGGLES = ("early-exit", "compile-target", "packed-target")
"""Those that a target reads from its work."""

LOOK_S = 0.25
"""How often a dispatcher that waits for a target looks for signals and dead workers."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Whom the dispatcher talks to."""

    targets: list[Connection]
    """They ask for work here and get it."""
    drafters: list[Connection]
    """Each says here how many steps it has behind it when it has ended."""
    orders: Connection
    """To this host's first drafter."""
    should_stop: Callable[[], bool]
    """Whether a signal asks for the end of the run."""
    check_workers: Callable[[], None]
    """Raises when one has died."""


class Dispatcher:
    """Runs in the main process of each host."""

    def __init__(
        self, config: TrainConfig, dataset: Any, batches: Iterator[BatchPlan], emitter: Emitter, lines: Lines
    ) -> None:
        """*batches* are those of all hosts, in order, from the run's first step on."""
        self._config = config
        self._dataset = dataset
        self._batches = batches
        self._emitter = emitter
        self._lines = lines
        self._idle: deque[Connection] = deque()
        self._toggles: ToggleValues = dict(config.toggles)
        self._stop_is_ordered = False
        self._num_steps_done: int | None = None

    def run(self) -> int:
        """
        Hand out work until a drafter has ended, then wait for the others; returns the steps that the run has behind it.

        Drafters end when the steps are done, and when all have agreed on a stop. Until then they may wait for a step
        that others have begun, so work is handed out; and the first one may save for minutes when the rest are done.
        """
        config = self._config
        steps = range(config.start_step, config.num_steps) if config.num_steps else count(config.start_step)
        for step in steps:
            items = []
            for drafter, part, plan in self._deal():
                with self._emitter.span("batch"):
                    item = self._make_item(plan, step=step, drafter=drafter, part=part)
                if not self._hand_out(item):
                    return self._wait_for_end()
                items.append(item)
            self._end_step(step, items)
        return self._wait_for_end()

    def _deal(self) -> Iterator[tuple[int, int, BatchPlan]]:
        """The next step's batches for this host: `(drafter, part, plan)`. Every host deals alike and takes its own."""
        num_drafters = self._config.topology.num_drafters
        host = self._config.host
        for rank in range(host.num_hosts * num_drafters):
            for part in range(self._config.preset.recipe.accumulate):
                plan = next(self._batches)
                if rank // num_drafters == host.rank:
                    yield rank % num_drafters, part, plan

    def _hand_out(self, item: WorkItem) -> bool:
        """Give *item* to a target; False when the run has ended."""
        while (target := self._next_target(item.step)) is not None:
            with self._emitter.span("send"):
                try:
                    target.send(item)
                except OSError:
                    # It died after it had asked; `check_workers` says how.
                    self._forget(target)
                else:
                    return True
        return False

    def _next_target(self, step: int) -> Connection | None:
        """A target that has asked for work; None when the run has ended."""
        while True:
            self._look_around(step)
            if self._num_steps_done is not None:
                return None
            if self._idle:
                return self._idle.popleft()
            with self._emitter.span("wait_targets", WAIT):
                ready = wait([*self._lines.targets, *self._lines.drafters], LOOK_S)
            for pipe in ready:
                if pipe in self._lines.targets:
                    self._take_request(pipe)

    def _wait_for_end(self) -> int:
        while self._num_steps_done is None or self._lines.drafters:
            self._look_around(self._config.num_steps)
            with self._emitter.span("wait_drafters", WAIT):
                wait(self._lines.drafters, LOOK_S)
        return self._num_steps_done

    def _look_around(self, step: int) -> None:
        with self._emitter.span("control"):
            # One coordinator: hosts may share the folder that commands come from.
            if self._config.host.rank == 0:
                self._obey(self._emitter.poll_commands(), step)
            if self._lines.should_stop() and not self._stop_is_ordered:
                say("asked to stop: the step that is under way is the last")
                self._order_stop()
            self._take_ends()
            if self._num_steps_done is None:
                self._check_workers()

    def _obey(self, commands: list[Command], step: int) -> None:
        """Stop is acknowledged here; the rest goes to the drafters, past the queue."""
        for command in commands:
            if command.name is CommandName.STOP:
                self._emitter.acknowledge(command, step)
                self._order_stop()
        others = tuple(self._checked(command) for command in commands if command.name is not CommandName.STOP)
        if others:
            self._send_order(Order(commands=others))

    def _order_stop(self) -> None:
        self._stop_is_ordered = True
        self._send_order(Order(stop=True))

    def _send_order(self, order: Order) -> None:
        # A drafter that has ended takes none: what it said, or `check_workers`, tells.
        with suppress(OSError):
            self._lines.orders.send(order)

    def _checked(self, command: Command) -> Command:
        """The command with only those toggles that can be set now; the acknowledgement repeats its detail."""
        if command.name is not CommandName.SET_TOGGLES:
            return command
        planted = (BRAKE_TOGGLE,) if BRAKE in self._toggles else ()
        values, refused = hot_changes(command.detail["values"], has_cuda=self._config.device == "cuda", planted=planted)
        if self._config.host.num_hosts > 1:
            # Drafters agree over all hosts; targets are told with their work, by their own host's dispatcher.
            for name in TARGET_TOGGLES:
                if values.get(name, self._toggles[name]) != self._toggles[name]:
                    del values[name]
                    refused[name] = "on several hosts it needs a new start: a command reaches the first host's targets"
        self._toggles.update(values)
        return replace(command, detail={**command.detail, "values": values, "refused": refused})

    def _take_request(self, pipe: Any) -> None:
        try:
            pipe.recv()
        except (EOFError, OSError):
            # Its process ended; `check_workers` says how. Left in the list it would be ready for ever.
            self._forget(pipe)
        else:
            self._idle.append(pipe)

    def _check_workers(self) -> None:
        try:
            self._lines.check_workers()
        except FlashProfError:
            # A drafter that said so and ended well since we looked is no failure.
            self._take_ends()
            if self._num_steps_done is None:
                raise

    def _take_ends(self) -> None:
        for pipe in list(self._lines.drafters):
            if pipe.poll():
                self._take_end(pipe)

    def _take_end(self, pipe: Connection) -> None:
        self._lines.drafters.remove(pipe)
        # One that died sends none; while none has ended well, `check_workers` says how.
        with suppress(EOFError, OSError):
            self._num_steps_done = pipe.recv()

    def _forget(self, pipe: Connection) -> None:
        if pipe in self._lines.targets:
            self._lines.targets.remove(pipe)

    def _make_item(self, plan: BatchPlan, *, step: int, drafter: int, part: int) -> WorkItem:
        batch = collate(self._dataset, plan)
        return WorkItem(
            step=step,
            drafter=drafter,
            part=part,
            input_ids_BS=batch.input_ids_BS.numpy().astype(np.int32),
            loss_mask_BS=batch.loss_mask_BS.numpy(),
            lengths=tuple(batch.lengths_B.tolist()),
            early_exit=bool(self._toggles["early-exit"]),
            compiled=bool(self._toggles["compile-target"]),
            packed=plan.is_packed or bool(self._toggles["packed-target"]),
        )

    def _end_step(self, step: int, items: list[WorkItem]) -> None:
        self._emitter.end_step(
            step,
            num_tokens=sum(item.num_tokens for item in items),
            num_supervised_tokens=sum(int(item.loss_mask_BS.sum()) for item in items),
            num_padding_tokens=sum(item.num_padding_tokens for item in items),
        )
