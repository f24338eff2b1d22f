"""Buffers that a target lends: what arrives, in which order of work, and that they are used again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.transport import loans
from pipeline.transport.loans import Borrower, Lender, Loan

CPU = torch.device("cpu")


@dataclass
class FakeFence:
    """Two processes' views of one fence; the drafter's device comes by when the test says so."""

    name: bytes
    log: list[tuple[str, bytes]]
    pending: set[bytes]

    def record(self) -> None:
        self.log.append(("record", self.name))
        self.pending.add(self.name)

    def wait(self, device: torch.device | None = None) -> None:
        self.log.append(("wait" if device is None else f"wait on {device}", self.name))

    def is_past(self) -> bool:
        return self.name not in self.pending

    def handle(self) -> bytes:
        return self.name


@dataclass
class World:
    """A target and a drafter in one process."""

    log: list[tuple[str, bytes]] = field(default_factory=list)
    pending: set[bytes] = field(default_factory=set)
    num_fences: int = 0

    def make_fence(self, device: torch.device, handle: bytes | None = None) -> FakeFence:
        assert device == CPU
        if handle is None:
            handle = b"%d" % self.num_fences
            self.num_fences += 1
        return FakeFence(handle, self.log, self.pending)

    def finish_device_work(self) -> None:
        self.pending.clear()

    def pair(self) -> tuple[Lender, Borrower]:
        return Lender(self.make_fence), Borrower(self.make_fence)


def states(value: int, num_tokens: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((num_tokens, 6), value, dtype=dtype)


def lend(lender: Lender, value: int, num_tokens: int = 4) -> Loan:
    loan = lender.lend(states(value, num_tokens), torch.tensor(value * 2**40))
    assert loan is not None
    return loan


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_was_lent_arrives_and_is_the_drafters_own(dtype: torch.dtype) -> None:
    lender, borrower = World().pair()
    sent = torch.randn(5, 6).to(dtype)
    loan = lender.lend(sent, torch.tensor(-(2**50) - 1))
    assert loan is not None

    hidden_TF, checksum = borrower.take(loan, CPU)
    assert loan.opening is not None
    loan.opening.buffer_U.zero_()

    assert torch.equal(sent, hidden_TF)
    assert -(2**50) - 1 == checksum.item()


def test_reading_waits_for_writing_and_its_end_is_told() -> None:
    world = World()
    lender, borrower = world.pair()

    borrower.take(lend(lender, 1), CPU)

    assert [("record", b"0"), ("wait", b"0"), ("record", b"1")] == world.log


def test_what_is_expected_is_waited_for_on_the_drafters_device_and_arrives_all_the_same() -> None:
    world = World()
    lender, borrower = world.pair()
    loans_lent = [lend(lender, value) for value in (3, 5)]

    for loan in loans_lent:
        borrower.expect(loan, CPU)
    expected = [entry for entry in world.log if "wait" in entry[0]]
    got = [borrower.take(loan, CPU) for loan in loans_lent]

    # Each buffer has two fences; the first is the one behind the target's writing.
    assert [("wait on cpu", b"0"), ("wait on cpu", b"2")] == expected
    assert [(3, 3 * 2**40), (5, 5 * 2**40)] == [(int(states[0, 0]), int(checksum)) for states, checksum in got]


@pytest.mark.parametrize(
    ("give_back", "finish", "num_buffers"),
    [(True, True, 1), (True, False, 2), (False, True, 2)],
    ids=["given back and read", "given back, the device still reads", "not taken yet"],
)
def test_a_buffer_is_lent_again_once_it_was_given_back_and_read(
    give_back: bool, finish: bool, num_buffers: int
) -> None:
    world = World()
    lender, borrower = world.pair()
    first = lend(lender, 1)
    if give_back:
        borrower.take(first, CPU)
    if finish:
        world.finish_device_work()

    second = lend(lender, 2)

    assert num_buffers == lender.num_buffers
    assert (second.opening is None) == (num_buffers == 1)


def test_rows_of_like_lengths_share_a_buffer_and_a_longer_one_gets_its_own() -> None:
    world = World()
    lender, borrower = world.pair()
    for num_tokens, num_buffers in ((100, 1), (120, 1), (80, 1), (300, 2), (90, 2)):
        hidden_TF, _ = borrower.take(lend(lender, num_tokens, num_tokens), CPU)
        world.finish_device_work()

        assert torch.equal(states(num_tokens, num_tokens), hidden_TF)
        assert num_buffers == lender.num_buffers


def test_no_more_is_lent_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loans, "MAX_BUFFERS", 2)
    lender, _ = World().pair()
    lend(lender, 1)
    lend(lender, 2)

    assert lender.lend(states(3), torch.tensor(3)) is None


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.sampled_from(["send", "take", "finish"]), max_size=60), sizes=st.lists(st.integers(1, 40)))
def test_whatever_the_order_every_message_arrives_whole(moves: list[str], sizes: list[int]) -> None:
    world = World()
    lender, borrower = world.pair()
    under_way: list[tuple[int, int, Loan]] = []
    most_at_once = 0
    for number, move in enumerate(moves):
        if move == "send":
            num_tokens = sizes[number % len(sizes)] if sizes else 4
            under_way.append((number, num_tokens, lend(lender, number, num_tokens)))
            most_at_once = max(most_at_once, len(under_way))
        elif move == "finish":
            world.finish_device_work()
        elif under_way:
            value, num_tokens, loan = under_way.pop(0)
            hidden_TF, checksum = borrower.take(loan, CPU)

            assert torch.equal(states(value, num_tokens), hidden_TF)
            assert value * 2**40 == checksum.item()
    assert lender.num_buffers <= sum(move == "send" for move in moves)
    assert lender.num_buffers >= most_at_once
