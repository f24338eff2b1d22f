"""The toggle values in force in a drafter, and what has to be done when a hot one changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from torch import Tensor

from flashprof.contracts.control import Command, CommandName
from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import Emitter
from pipeline.faults import make_async_metrics
from pipeline.roles.worker import WorkerSeat
from pipeline.train.metrics import MetricsReader, Reading, SyncMetrics
from pipeline.transport.messages import Order


class Switches:
    """Reads orders, applies commands, acknowledges them, and sends metrics the way that is switched on."""

    def __init__(self, seat: WorkerSeat, emitter: Emitter) -> None:
        self.values: ToggleValues = dict(seat.config.toggles)
        self._queue = seat.queues[seat.local_rank]
        self._orders = seat.orders
        self._agreed: deque[Command] = deque()
        self._emitter = emitter
        self._sync: MetricsReader = SyncMetrics()
        self._async: MetricsReader = make_async_metrics(seat.config.fault, seat.device)

    def read_order(self) -> Order:
        """What the dispatcher has sent since the last look, as one order; not in force before all drafters agree."""
        received: list[Order] = []
        while self._orders is not None and self._orders.poll():
            received.append(self._orders.recv())
        commands = tuple(command for order in received for command in order.commands)
        return Order(commands=commands, stop=any(order.stop for order in received))

    def expect(self, commands: Sequence[Command]) -> None:
        """Note what all drafters have agreed to obey before the next step."""
        self._agreed += commands

    def apply(self, step: int) -> None:
        """Put the agreed commands in force before *step*, and acknowledge them."""
        while self._agreed:
            command = self._agreed.popleft()
            if command.name is CommandName.SET_TOGGLES:
                self.values.update(command.detail["values"])
                self._queue.set_depth(int(self.values["queue"]))
            self._emitter.acknowledge(command, step)

    def push_metrics(self, step: int, scalars: dict[str, Tensor]) -> list[Reading]:
        """Hand in a step's scalars; what an earlier setting of `async-metrics` left is read first."""
        if self.values["async-metrics"]:
            return self._async.push(step, scalars)
        return self._async.drain() + self._sync.push(step, scalars)

    def drain_metrics(self) -> list[Reading]:
        """All that is still outstanding."""
        return self._async.drain()
