"""The hidden-state queue: order, bound, orders to all drafters, closed ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.multiprocessing
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.control import Command, CommandName
from flashprof.emit import connect
from pipeline.transport.messages import End, HiddenStates, WorkItem
from pipeline.transport.queue import (
    HiddenStateQueue,
    Inbox,
    QueueClosedError,
    create_queue,
    issue_order,
    post,
    receive,
    wait_readable,
)

CONTEXT = torch.multiprocessing.get_context("fork")
TIMEOUT_S = 10.0
"""Nothing takes this long; a test that waits for it has found a deadlock."""
EMITTER = connect("nobody")


def message(step: int) -> HiddenStates:
    return HiddenStates(
        step=step,
        hidden_TF=torch.full((2, 3), float(step)),
        input_ids_T=torch.zeros(2, dtype=torch.int64),
        loss_mask_T=torch.ones(2, dtype=torch.bool),
        lengths=(2,),
        num_padding_tokens=0,
    )


def put(queue: HiddenStateQueue, step: int) -> None:
    queue.wait_for_room(step)
    queue.send(message(step))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def has_begun_to_wait(queue: HiddenStateQueue, future: Future[Any]) -> bool:
    """Whether a sender stands in the queue's condition: it released the lock, so we can see it sleeping there."""
    for _ in range(1000):
        with queue.room:
            if not queue.room._sleeping_count._semlock._is_zero():
                return True
        if future.done():
            return False
        threading.Event().wait(0.002)
    return False


def test_steps_come_out_in_order_whatever_order_they_went_in() -> None:
    queue = create_queue(CONTEXT, 4)
    inbox = Inbox(queue)
    for step in (2, 0, 3, 1):
        put(queue, step)

    taken = [inbox.take(step, EMITTER) for step in range(4)]

    assert [0, 1, 2, 3] == [got.step for got in taken]
    assert [0.0, 1.0, 2.0, 3.0] == [float(got.hidden_TF[0, 0]) for got in taken if isinstance(got, HiddenStates)]


@pytest.mark.parametrize("depth", [1, 3])
def test_a_put_past_the_depth_waits_until_a_step_is_taken(threads: ThreadPoolExecutor, depth: int) -> None:
    queue = create_queue(CONTEXT, depth)
    inbox = Inbox(queue)
    for step in range(depth):
        put(queue, step)
    blocked = threads.submit(put, queue, depth)
    waited = has_begun_to_wait(queue, blocked)

    inbox.take(0, EMITTER)
    blocked.result(TIMEOUT_S)

    assert waited


def test_a_deeper_queue_lets_a_waiting_sender_in(threads: ThreadPoolExecutor) -> None:
    queue = create_queue(CONTEXT, 1)
    put(queue, 0)
    blocked = threads.submit(put, queue, 3)
    waited = has_begun_to_wait(queue, blocked)

    queue.set_depth(4)
    blocked.result(TIMEOUT_S)

    assert waited


def test_a_shallower_queue_holds_for_the_next_put(threads: ThreadPoolExecutor) -> None:
    queue = create_queue(CONTEXT, 4)
    inbox = Inbox(queue)
    put(queue, 0)
    put(queue, 1)

    queue.set_depth(1)
    blocked = threads.submit(put, queue, 2)
    waited = has_begun_to_wait(queue, blocked)
    for step in (0, 1):
        inbox.take(step, EMITTER)
    blocked.result(TIMEOUT_S)

    assert waited


@given(st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_targets_that_finish_out_of_order_never_block_each_other(depth: int, num_targets: int, random: Any) -> None:
    queue = create_queue(CONTEXT, depth)
    inbox = Inbox(queue)
    num_steps = 12
    # Steps are dealt in order, one at a time, to whoever: each target's own share rises.
    shares: list[list[int]] = [[] for _ in range(num_targets)]
    for step in range(num_steps):
        random.choice(shares).append(step)

    def serve(share: list[int]) -> None:
        for step in share:
            put(queue, step)

    with ThreadPoolExecutor(num_targets + 1) as pool:
        senders = [pool.submit(serve, share) for share in shares]
        taken = pool.submit(lambda: [inbox.take(step, EMITTER).step for step in range(num_steps)]).result(TIMEOUT_S)
        for sender in senders:
            sender.result(TIMEOUT_S)

    assert list(range(num_steps)) == taken


def test_waiting_steps_are_counted_and_the_end_is_not_one() -> None:
    queue = create_queue(CONTEXT, 8)
    inbox = Inbox(queue)
    for step in (1, 0):
        put(queue, step)
    queue.send(End(step=2))

    counts = [inbox.count_waiting(EMITTER)]
    inbox.take(0, EMITTER)
    counts.append(inbox.count_waiting(EMITTER))
    inbox.take(1, EMITTER)

    assert [2, 1] == counts
    assert End(step=2) == inbox.take(2, EMITTER)


def order(command_id: int) -> Command:
    return Command(command_id=command_id, name=CommandName.SET_TOGGLES, detail={"values": {"swa": True}})


def run_drafter(queue: HiddenStateQueue, num_steps: int, before: Callable[[int], None]) -> dict[int, int]:
    """Take steps; returns the step before which each command was obeyed."""
    inbox = Inbox(queue)
    obeyed = {}
    for step in range(num_steps):
        before(step)
        inbox.take(step, EMITTER)
        obeyed.update({command.command_id: step for command in inbox.orders(step)})
    return obeyed


def test_orders_reach_all_drafters_before_the_same_step_even_if_one_is_behind() -> None:
    queues = [create_queue(CONTEXT, 8) for _ in range(3)]
    inboxes = [Inbox(queue) for queue in queues]
    for queue in queues:
        for step in range(4):
            put(queue, step)
    # Drafter 0 has begun step 1, the others have begun none.
    for step in (0, 1):
        inboxes[0].take(step, EMITTER)

    issue_order(queues, [order(1)])
    obeyed: list[list[int]] = [[], [], []]
    for drafter, (inbox, first) in enumerate(zip(inboxes, (2, 0, 0), strict=True)):
        for step in range(first, 4):
            inbox.take(step, EMITTER)
            obeyed[drafter] += [step for _ in inbox.orders(step)]

    assert [[2], [2], [2]] == obeyed


def test_orders_issued_while_drafters_run_are_obeyed_once_at_one_step(threads: ThreadPoolExecutor) -> None:
    num_steps, num_orders = 40, 10
    queues = [create_queue(CONTEXT, 4) for _ in range(2)]
    # As gradients do: no drafter begins a step before all have finished the one before.
    together = threading.Barrier(2, timeout=TIMEOUT_S)
    feeders = [threads.submit(lambda q=queue: [put(q, step) for step in range(num_steps)]) for queue in queues]
    halfway, issued = threading.Event(), threading.Event()

    def before(step: int) -> None:
        together.wait()
        if step == 10:
            halfway.set()
        if step == num_steps - 2:
            issued.wait(TIMEOUT_S)

    runs = [threads.submit(run_drafter, queue, num_steps, before) for queue in queues]
    halfway.wait(TIMEOUT_S)
    for command_id in range(num_orders):
        issue_order(queues, [order(command_id)])
    issued.set()
    first, second = (run.result(TIMEOUT_S) for run in runs)
    for feeder in feeders:
        feeder.result(TIMEOUT_S)

    assert first == second
    assert list(range(num_orders)) == list(first)
    assert all(step > 9 for step in first.values())


def test_commands_of_one_order_keep_their_order() -> None:
    queue = create_queue(CONTEXT, 2)
    inbox = Inbox(queue)
    issue_order([queue], [order(1), order(2)])
    issue_order([queue], [order(3)])
    put(queue, 0)

    inbox.take(0, EMITTER)

    assert [1, 2, 3] == [command.command_id for command in inbox.orders(0)]
    assert [] == inbox.orders(0)


def test_a_closed_sender_raises_at_the_receiver() -> None:
    reader, writer = CONTEXT.Pipe(duplex=False)
    writer.close()

    with pytest.raises(QueueClosedError):
        receive(reader)


def test_a_closed_receiver_raises_at_the_sender() -> None:
    reader, writer = CONTEXT.Pipe(duplex=False)
    reader.close()

    with pytest.raises(QueueClosedError):
        post(writer, "anything")


def _outlive_the_parent(wait: str, pipe: Any) -> None:
    """In a grandchild: its parent ends while it waits; tells the test how the waiting ended."""
    queue = create_queue(CONTEXT, 1)
    pipe.send("waiting")
    try:
        if wait == "message":
            wait_readable(queue.reader)
        else:
            queue.wait_for_room(1)
    except QueueClosedError:
        pipe.send("closed")


def _parent_that_ends(wait: str, pipe: Any) -> None:
    child = CONTEXT.Process(target=_outlive_the_parent, args=(wait, pipe))
    child.start()
    # Not `sys.exit`: a parent that is killed joins no child.
    os._exit(0)


@pytest.mark.parametrize("wait", ["message", "room"])
def test_a_process_whose_parent_is_gone_stops_waiting(wait: str) -> None:
    ours, theirs = CONTEXT.Pipe()
    parent = CONTEXT.Process(target=_parent_that_ends, args=(wait, theirs))
    parent.start()
    theirs.close()
    parent.join(TIMEOUT_S)

    said = [ours.recv() for _ in range(2) if ours.poll(TIMEOUT_S)]

    assert ["waiting", "closed"] == said


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_a_packed_row_holds_all_tokens_and_is_whole_blocks(lengths: list[int]) -> None:
    import numpy as np

    item = WorkItem(
        step=0,
        drafter=0,
        input_ids_BS=np.zeros((len(lengths), max(lengths))),
        loss_mask_BS=np.zeros((len(lengths), max(lengths)), dtype=bool),
        lengths=tuple(lengths),
    )

    assert sum(lengths) == item.num_tokens
    assert len(lengths) * max(lengths) == item.num_tokens + item.num_padding_tokens
    assert 0 == item.padded_row % 128
    assert 0 <= item.padded_row - item.num_tokens < 128
