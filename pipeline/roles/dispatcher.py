"""The dispatcher: makes batches, gives them to targets that ask, and reads the control channel at step boundaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from flashprof.contracts.control import Command, CommandName
from flashprof.emit import WAIT, Emitter
from pipeline.config import TrainConfig
from pipeline.data.batches import BatchPlan, collate, plan_epoch
from pipeline.data.samples import Samples
from pipeline.toggles import hot_changes
from pipeline.transport.messages import WorkItem
from pipeline.transport.queue import HiddenStateQueue, issue_order

LOOK_S = 0.25
"""How often a dispatcher that waits for a target looks for signals and dead workers."""


class Dispatcher:
    """Runs in the main process; `run` returns the first step that was not dispatched."""

    def __init__(
        self,
        config: TrainConfig,
        samples: Samples,
        emitter: Emitter,
        *,
        target_pipes: list[Connection],
        queues: Sequence[HiddenStateQueue],
        should_stop: Callable[[], bool],
        check_workers: Callable[[], None],
    ) -> None:
        self._config = config
        self._samples = samples
        self._emitter = emitter
        self._target_pipes = target_pipes
        self._queues = queues
        self._idle: deque[Connection] = deque()
        self._should_stop = should_stop
        self._check_workers = check_workers
        self._stopping = False

    def run(self) -> int:
        """Dispatch until the steps are done, a signal came, or the control channel says stop."""
        batches = self._batches()
        for step in count():
            if step == self._config.num_steps and self._config.num_steps:
                return step
            items = []
            for drafter in range(self._config.topology.num_drafters):
                with self._emitter.span("batch"):
                    item = self._make_item(step, drafter, next(batches))
                # A step that one drafter has is finished: alone, that drafter would wait for its peers for ever.
                if not self._hand_out(item, may_stop=not items):
                    return step
                items.append(item)
            self._end_step(step, items)
        raise AssertionError("unreachable: count() does not end")

    def _hand_out(self, item: WorkItem, *, may_stop: bool) -> bool:
        """Give *item* to a target; False when the run is to stop before its step."""
        while (target := self._next_target(item.step, may_stop=may_stop)) is not None:
            with self._emitter.span("send"):
                try:
                    target.send(item)
                except OSError:
                    # It died after it had asked; `check_workers` says how.
                    self._forget(target)
                else:
                    return True
        return False

    def _next_target(self, step: int, *, may_stop: bool) -> Connection | None:
        """A target that has asked for work; None when the run is to stop before *step*."""
        while True:
            with self._emitter.span("control"):
                self._obey(self._emitter.poll_commands(), step)
                self._check_workers()
            if may_stop and (self._stopping or self._should_stop()):
                return None
            if self._idle:
                return self._idle.popleft()
            with self._emitter.span("wait_targets", WAIT):
                ready = wait(self._target_pipes, LOOK_S)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                self._take_request(pipe)

    def _obey(self, commands: Sequence[Command], step: int) -> None:
        """Stop is obeyed here; the rest goes to the drafters, past the queue."""
        for command in commands:
            if command.name is CommandName.STOP:
                self._stopping = True
                self._emitter.acknowledge(command, step)
        others = [self._checked(command) for command in commands if command.name is not CommandName.STOP]
        if others:
            issue_order(self._queues, others)

    def _checked(self, command: Command) -> Command:
        """The command with only those toggles that can be set now; the acknowledgement repeats its detail."""
        if command.name is not CommandName.SET_TOGGLES:
            return command
        values, refused = hot_changes(command.detail["values"], has_cuda=self._config.device == "cuda")
        return replace(command, detail={"values": values, "refused": refused})

    def _take_request(self, pipe: Connection) -> None:
        try:
            pipe.recv()
        except (EOFError, OSError):
            # Its process ended; `check_workers` says how. Left in the list it would be ready for ever.
            self._forget(pipe)
        else:
            self._idle.append(pipe)

    def _forget(self, pipe: Connection) -> None:
        if pipe in self._target_pipes:
            self._target_pipes.remove(pipe)

    def _make_item(self, step: int, drafter: int, plan: BatchPlan) -> WorkItem:
        batch = collate(self._samples.dataset, plan)
        return WorkItem(
            step=step,
            drafter=drafter,
            input_ids_BS=batch.input_ids_BS.numpy().astype(np.int32),
            loss_mask_BS=batch.loss_mask_BS.numpy(),
            lengths=tuple(batch.lengths_B.tolist()),
        )

    def _end_step(self, step: int, items: list[WorkItem]) -> None:
        self._emitter.end_step(
            step,
            num_tokens=sum(item.num_tokens for item in items),
            num_supervised_tokens=sum(int(item.loss_mask_BS.sum()) for item in items),
            num_padding_tokens=sum(item.num_padding_tokens for item in items),
        )

    def _batches(self) -> Iterator[BatchPlan]:
        lengths_N = self._samples.lengths_N
        for epoch in count():
            yield from plan_for_epoch(self._config, lengths_N, epoch)


def plan_for_epoch(config: TrainConfig, lengths_N: Any, epoch: int) -> list[BatchPlan]:
    """One epoch's batches, in order."""
    data = config.preset.data
    return plan_epoch(
        lengths_N,
        bounds=data.bucket_bounds,
        token_budget=data.token_budget,
        max_samples=data.max_samples,
        seed=config.seed,
        epoch=epoch,
    )
