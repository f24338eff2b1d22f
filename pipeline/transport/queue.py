"""
The bounded hidden-state queue: one in front of each drafter, filled by any target, emptied in step order.

Messages are handles: torch shares a CPU tensor's memory and a CUDA tensor's allocation between processes, so a put
costs the same whatever the size. The bound counts steps, not messages: step s may enter once step s − depth has been
taken. So the earliest missing step always has room, and targets that finish out of order cannot block each other.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from flashprof.contracts.control import Command
from flashprof.emit import WAIT, Emitter
from pipeline.transport.messages import HiddenStates, Message, Order

POLL_S = 0.5
"""How often a process that waits for room looks whether its parent lives."""


class QueueClosedError(Exception):
    """The other end, the parent, or a peer is gone: this process has nothing left to do."""


def wait_readable(reader: Connection) -> None:
    """
    Wait for a message.

    Raises:
        QueueClosedError: The parent is gone. The pipe alone would not tell: this process may hold its other end too.
    """
    parent = multiprocessing.parent_process()
    if reader not in wait([reader] if parent is None else [reader, parent.sentinel]):
        raise QueueClosedError


def receive(reader: Connection) -> Any:
    """
    The next message of a pipe; waits for it.

    Raises:
        QueueClosedError: Nobody is left to send one.
    """
    wait_readable(reader)
    try:
        return reader.recv()
    except (EOFError, OSError) as error:
        raise QueueClosedError from error


def post(writer: Connection, message: Any) -> None:
    """
    Write one message to a pipe.

    Raises:
        QueueClosedError: Nobody is left to read it.
    """
    try:
        writer.send(message)
    except OSError as error:
        raise QueueClosedError from error


@dataclass(frozen=True)
class HiddenStateQueue:
    """Both ends' shared part; create it in the parent and hand it to the children."""

    reader: Connection
    writer: Connection
    write_lock: Any
    """Several targets write to one pipe."""
    room: Any
    """Condition guarding the counters below."""
    num_taken: Any
    depth: Any
    order_reader: Connection
    order_writer: Connection
    """A pipe of its own: behind a full queue, an order would come late."""

    def wait_for_room(self, step: int) -> None:
        """
        Wait until *step* may enter.

        Raises:
            QueueClosedError: The parent is gone.
        """
        parent = multiprocessing.parent_process()
        with self.room:
            while step >= self.num_taken.value + self.depth.value:
                self.room.wait(POLL_S)
                if parent is not None and not parent.is_alive():
                    raise QueueClosedError

    def send(self, message: Message) -> None:
        """
        Enter *message*, room or not.

        Raises:
            QueueClosedError: The drafter is gone.
        """
        with self.write_lock:
            post(self.writer, message)

    def set_depth(self, depth: int) -> None:
        """Change the bound; it holds for the next put."""
        with self.room:
            self.depth.value = depth
            self.room.notify_all()


def issue_order(queues: Sequence[HiddenStateQueue], commands: Sequence[Command]) -> None:
    """
    Tell all drafters to obey *commands* from the next step on that none of them has begun.

    Holding every queue's lock, so no drafter takes a step between the look at the counters and the order; each looks
    for orders after it has taken a step. So the delay is one step, whatever the depth of the queue.
    """
    with ExitStack() as locks:
        for queue in queues:
            locks.enter_context(queue.room)
        order = Order(step=max(queue.num_taken.value for queue in queues), commands=tuple(commands))
        for queue in queues:
            queue.order_writer.send(order)


class Inbox:
    """A drafter's end: hands out messages in step order, whichever target was first."""

    def __init__(self, queue: HiddenStateQueue) -> None:
        self._queue = queue
        self._orders: list[Order] = []
        self._early: dict[int, Message] = {}

    def count_waiting(self, emitter: Emitter) -> int:
        """Receive all that has come; returns the number of steps that were not taken."""
        with emitter.span("receive"):
            while self._queue.reader.poll():
                self._receive()
        return sum(isinstance(message, HiddenStates) for message in self._early.values())

    def take(self, step: int, emitter: Emitter) -> Message:
        """
        Wait for *step*, or for the end of the run; waiting and unpacking are told apart.

        Raises:
            QueueClosedError: The step will not come.
        """
        while step not in self._early:
            with emitter.span("wait_hidden", WAIT):
                wait_readable(self._queue.reader)
            with emitter.span("receive"):
                self._receive()
        # Waking a target that waits for room waits until it runs: up to some ms where cores are few.
        with emitter.span("make_room"), self._queue.room:
            self._queue.num_taken.value = step + 1
            self._queue.room.notify_all()
        return self._early.pop(step)

    def orders(self, step: int) -> list[Command]:
        """The commands to put in force before *step*, which has been taken."""
        while self._queue.order_reader.poll():
            self._orders.append(receive(self._queue.order_reader))
        due = [order for order in self._orders if order.step <= step]
        self._orders = [order for order in self._orders if order.step > step]
        return [command for order in due for command in order.commands]

    def _receive(self) -> None:
        message = receive(self._queue.reader)
        self._early[message.step] = message


def create_queue(context: Any, depth: int) -> HiddenStateQueue:
    """
    A queue for one drafter.

    Args:
        context: A multiprocessing context, torch's, whose pickling shares tensors.
        depth: Steps that may lie between target and drafter.
    """
    reader, writer = context.Pipe(duplex=False)
    order_reader, order_writer = context.Pipe(duplex=False)
    return HiddenStateQueue(
        reader=reader,
        writer=writer,
        write_lock=context.Lock(),
        room=context.Condition(),
        num_taken=context.Value("q", 0, lock=False),
        depth=context.Value("q", depth, lock=False),
        order_reader=order_reader,
        order_writer=order_writer,
    )
