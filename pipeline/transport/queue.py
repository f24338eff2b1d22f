"""
The bounded hidden-state queue: one in front of each drafter, filled by any target, emptied in step order.

What goes through it are handles, so a put costs the same whatever the size (`pipeline.transport.carriers` makes them).
The bound counts steps, not messages: step s may enter once step s − depth has been taken. So the earliest missing step
always has room, and targets that finish out of order cannot block each other.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from flashprof.emit import WAIT, Emitter
from pipeline.transport.messages import HiddenStates

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
    """Condition guarding the numbers below."""
    num_taken: Any
    """Steps that the drafter has begun, counted from the run's first."""
    depth: Any
    is_closed: Any

    def wait_for_room(self, step: int) -> None:
        """
        Wait until *step* may enter.

        Raises:
            QueueClosedError: The drafter takes no more, or the parent is gone.
        """
        parent = multiprocessing.parent_process()
        with self.room:
            while step >= self.num_taken.value + self.depth.value and not self.is_closed.value:
                self.room.wait(POLL_S)
                if parent is not None and not parent.is_alive():
                    raise QueueClosedError
            if self.is_closed.value:
                raise QueueClosedError

    def send(self, message: HiddenStates) -> None:
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

    def close(self) -> None:
        """Take no more: who waits for room is told so, or sees it at its next look."""
        self.is_closed.value = True
        # A process that was killed while it held the lock holds it for ever.
        if self.room.acquire(timeout=POLL_S):
            self.room.notify_all()
            self.room.release()

    def discard(self) -> None:
        """Once nobody receives any more: empty the pipe, so that a sender that found it full can go on."""
        # 64 KiB hold some 80 messages; a queue of 8 steps with 16 parts each lets 128 in.
        while self.reader.poll():
            self.reader.recv_bytes()


class Inbox:
    """A drafter's end: hands out each step's messages in order, whichever target was first."""

    def __init__(self, queue: HiddenStateQueue, *, num_parts: int = 1) -> None:
        """*num_parts* messages make a step."""
        self._queue = queue
        self._num_parts = num_parts
        self._early: dict[int, list[HiddenStates]] = defaultdict(list)
        self.waited_s = 0.0
        """How long the last `take` waited for a message."""

    def count_waiting(self, emitter: Emitter) -> int:
        """Receive all that has come; returns the number of steps that are whole and were not taken."""
        with emitter.span("receive"):
            while self._queue.reader.poll():
                self._receive()
        return sum(len(parts) == self._num_parts for parts in self._early.values())

    def take(self, step: int, emitter: Emitter) -> list[HiddenStates]:
        """
        Wait for all of *step*; waiting and unpacking are told apart.

        Raises:
            QueueClosedError: The step will not come.
        """
        self.waited_s = 0.0
        while len(self._early[step]) < self._num_parts:
            start_s = time.perf_counter()
            with emitter.span("wait_hidden", WAIT):
                wait_readable(self._queue.reader)
            self.waited_s += time.perf_counter() - start_s
            with emitter.span("receive"):
                self._receive()
        # Waking a target that waits for room waits until it runs: up to some ms where cores are few.
        with emitter.span("make_room"), self._queue.room:
            self._queue.num_taken.value = step + 1
            self._queue.room.notify_all()
        return sorted(self._early.pop(step), key=lambda message: message.part)

    def _receive(self) -> None:
        message: HiddenStates = receive(self._queue.reader)
        self._early[message.step].append(message)


def create_queue(context: Any, depth: int, *, first_step: int = 0) -> HiddenStateQueue:
    """
    A queue for one drafter.

    Args:
        context: A multiprocessing context, torch's, whose pickling shares tensors.
        depth: Steps that may lie between target and drafter.
        first_step: Of the run; more than 0 where one is resumed.
    """
    reader, writer = context.Pipe(duplex=False)
    return HiddenStateQueue(
        reader=reader,
        writer=writer,
        write_lock=context.Lock(),
        room=context.Condition(),
        num_taken=context.Value("q", first_step, lock=False),
        depth=context.Value("q", depth, lock=False),
        is_closed=context.Value("b", 0, lock=False),
    )
