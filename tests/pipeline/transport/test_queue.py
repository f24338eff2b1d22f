"""The hidden-state queue: order, bound, steps of several parts, closed ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.multiprocessing
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.emit import connect
from pipeline.transport.messages import HiddenStates, WorkItem
from pipeline.transport.queue import (
    HiddenStateQueue,
    Inbox,
    QueueClosedError,
    create_queue,
    post,
    receive,
    wait_readable,
)

CONTEXT = torch.multiprocessing.get_context("fork")
TIMEOUT_S = 10.0
"""Nothing takes this long; a test that waits for it has found a deadlock."""
EMITTER = connect("nobody")


def message(step: int, part: int = 0) -> HiddenStates:
    return HiddenStates(
        step=step,
        part=part,
        hidden_TF=torch.full((2, 3), float(step)),
        checksum=torch.zeros((), dtype=torch.int64),
        input_ids_T=torch.zeros(2, dtype=torch.int64),
        loss_mask_T=torch.ones(2, dtype=torch.bool),
        lengths=(2,),
        num_padding_tokens=0,
    )


def put(queue: HiddenStateQueue, step: int, part: int = 0) -> None:
    queue.wait_for_room(step)
    queue.send(message(step, part))


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

    taken = [got for step in range(4) for got in inbox.take(step, EMITTER)]

    assert [0, 1, 2, 3] == [got.step for got in taken]
    assert [0.0, 1.0, 2.0, 3.0] == [float(got.hidden_TF[0, 0]) for got in taken]


def test_a_step_is_handed_out_when_all_its_parts_are_there_and_in_their_order() -> None:
    queue = create_queue(CONTEXT, 2)
    inbox = Inbox(queue, num_parts=3)
    for step, part in ((0, 2), (1, 1), (0, 0), (1, 0)):
        put(queue, step, part)
    num_whole = inbox.count_waiting(EMITTER)
    put(queue, 0, 1)

    places = [(got.step, got.part) for got in inbox.take(0, EMITTER)]

    assert 0 == num_whole
    assert [(0, 0), (0, 1), (0, 2)] == places
    assert inbox.waited_s > 0


def test_a_resumed_run_begins_where_it_stopped(threads: ThreadPoolExecutor) -> None:
    queue = create_queue(CONTEXT, 1, first_step=70)
    put(queue, 70)
    blocked = threads.submit(put, queue, 71)
    waited = has_begun_to_wait(queue, blocked)

    Inbox(queue).take(70, EMITTER)
    blocked.result(TIMEOUT_S)

    assert waited


def test_closing_releases_who_waits_for_room(threads: ThreadPoolExecutor) -> None:
    queue = create_queue(CONTEXT, 1)
    blocked = threads.submit(put, queue, 5)
    waited = has_begun_to_wait(queue, blocked)

    queue.close()

    assert waited
    with pytest.raises(QueueClosedError):
        blocked.result(TIMEOUT_S)
    with pytest.raises(QueueClosedError):
        queue.wait_for_room(0)


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
        taken = pool.submit(lambda: [inbox.take(step, EMITTER)[0].step for step in range(num_steps)]).result(TIMEOUT_S)
        for sender in senders:
            sender.result(TIMEOUT_S)

    assert list(range(num_steps)) == taken


def test_waiting_steps_are_counted() -> None:
    queue = create_queue(CONTEXT, 8)
    inbox = Inbox(queue)
    for step in (1, 0):
        put(queue, step)

    counts = [inbox.count_waiting(EMITTER)]
    inbox.take(0, EMITTER)
    counts.append(inbox.count_waiting(EMITTER))

    assert [2, 1] == counts


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
    assert item.padded_row == item.num_tokens + replace(item, packed=True).num_padding_tokens
    assert 0 == item.padded_row % 128
    assert 0 <= item.padded_row - item.num_tokens < 128
