"""Every carrier passes the same tests: what arrives in another process is what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.multiprocessing

from pipeline.topology import Topology
from pipeline.transport.carriers import CARRIERS, Carrier, DeviceCarrier, choose_carrier
from pipeline.transport.messages import HiddenStates

CONTEXT = torch.multiprocessing.get_context("spawn")
WAIT_S = 60
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PLACES = [
    pytest.param(("shared", "cpu", "cpu"), id="shared"),
    pytest.param(("device", "cuda:0", "cuda:0"), id="one-gpu", marks=[pytest.mark.gpu, GPU]),
    pytest.param(("pinned", "cuda:0", "cuda:0"), id="pinned", marks=[pytest.mark.gpu, GPU]),
    pytest.param(
        ("device", "cuda:0", "cuda:1"),
        id="two-gpus",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
        ],
    ),
]


def message(step: int, dtype: torch.dtype, device: str) -> HiddenStates:
    generator = torch.Generator().manual_seed(step)
    return HiddenStates(
        step=step,
        part=1,
        hidden_TF=torch.randn(384, 96, generator=generator).to(device, dtype),
        checksum=torch.tensor(step * 2**40, device=device),
        input_ids_T=torch.randint(0, 99, (384,), generator=generator),
        loss_mask_T=torch.arange(384) % 3 == 0,
        lengths=(200, 100),
        num_padding_tokens=7,
        target_wait_s=0.25,
    )


def _receive(name: str, device: str, pipe: Any) -> None:
    """In the drafter's place: say what came, as plain numbers, in the order it came."""
    carrier = CARRIERS[name]()
    while (sent := pipe.recv()) is not None:
        if name == "device":
            torch.cuda.set_sync_debug_mode("error")
        carrier.expect(sent, torch.device(device))
        got = carrier.unpack(sent, torch.device(device))
        if name == "device":
            torch.cuda.set_sync_debug_mode("default")
        where = str(got.hidden_TF.device)
        facts = (got.step, got.part, got.lengths, got.num_padding_tokens, got.target_wait_s)
        tensors = (got.hidden_TF, got.checksum, got.input_ids_T, got.loss_mask_T)
        pipe.send((where, facts, [(str(t.dtype), t.cpu().float().tolist()) for t in tensors]))


@dataclass
class Line:
    """A carrier with a process at its other end."""

    carrier: Carrier
    source: str
    target: str
    pipe: Any

    def carry(self, sent: HiddenStates) -> HiddenStates:
        packed = self.carrier.pack(sent)
        self.pipe.send(packed)
        return packed

    def answer(self) -> Any:
        assert self.pipe.poll(WAIT_S), "nothing arrived"
        return self.pipe.recv()


@pytest.fixture(scope="module", params=PLACES)
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    name, source, target = request.param
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_receive, args=(name, target, theirs), daemon=True)
    process.start()
    theirs.close()
    yield Line(CARRIERS[name](), source, target, ours)
    ours.send(None)
    process.join(WAIT_S)


def expected(sent: HiddenStates, device: str) -> Any:
    facts = (sent.step, sent.part, sent.lengths, sent.num_padding_tokens, sent.target_wait_s)
    tensors = (sent.hidden_TF, sent.checksum, sent.input_ids_T, sent.loss_mask_T)
    return device, facts, [(str(t.dtype), t.cpu().float().tolist()) for t in tensors]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_bit_and_every_fact_arrives(line: Line, dtype: torch.dtype) -> None:
    sent = message(3, dtype, line.source)

    line.carry(sent)

    assert expected(sent, line.target) == line.answer()


@pytest.mark.slow
def test_messages_that_were_sent_before_the_first_was_read_are_all_whole(line: Line) -> None:
    # The sender holds on to none of them: what is under way must keep itself alive, or the carrier must.
    wanted = []
    for step in range(6):
        sent = message(step, torch.float32, line.source)
        wanted.append(expected(sent, line.target))
        line.carry(sent)
        del sent

    assert wanted == [line.answer() for _ in range(6)]


@pytest.mark.slow
def test_work_that_is_still_running_when_it_is_packed_arrives_finished(line: Line) -> None:
    sent = message(1, torch.float32, line.source)
    # On a GPU these products are under way for some ms after `pack` has begun.
    square = torch.eye(2048, device=line.source) if line.source != "cpu" else torch.eye(64)
    for _ in range(20):
        square = square @ square
    late = HiddenStates(**{**vars(sent), "hidden_TF": sent.hidden_TF * square[0, 0] + 1})

    line.carry(late)
    arrived = line.answer()

    assert expected(late, line.target) == arrived


@pytest.mark.slow
def test_messages_one_after_the_other_arrive_and_share_what_carries_them(line: Line) -> None:
    num_before = line.carrier.num_buffers if isinstance(line.carrier, DeviceCarrier) else 0
    for step in range(10, 18):
        sent = message(step, torch.bfloat16, line.source)
        line.carry(sent)

        assert expected(sent, line.target) == line.answer()
    if isinstance(line.carrier, DeviceCarrier):
        assert line.carrier.num_buffers <= num_before + 1


def test_on_a_cpu_memory_is_shared() -> None:
    assert "shared" == choose_carrier(Topology(5, 3), "cpu")


class NoEvents:
    """In place of CUDA's events: on a CPU all work is done when it is given."""

    def __init__(self, device: torch.device, handle: bytes | None = None) -> None:
        self.name = handle or str(device).encode()

    def record(self) -> None:
        """Nothing is under way."""

    def wait(self, device: torch.device | None = None) -> None:
        """Nothing is under way."""

    def is_past(self) -> bool:
        return True

    def handle(self) -> bytes:
        return self.name


def test_the_device_carrier_lends_to_each_drafter_from_buffers_of_its_own() -> None:
    target, drafters = DeviceCarrier(NoEvents), [DeviceCarrier(NoEvents), DeviceCarrier(NoEvents)]
    cpu = torch.device("cpu")
    openings = []
    for step in range(6):
        sent = message(step, torch.float32, "cpu")
        on_its_way = target.pack(sent, receiver=step % 2)
        openings.append(on_its_way.hidden_TF.opening is not None)
        drafters[step % 2].expect(on_its_way, cpu)
        got = drafters[step % 2].unpack(on_its_way, cpu)

        assert torch.equal(sent.hidden_TF, got.hidden_TF)
        assert torch.equal(sent.checksum, got.checksum)
        assert sent.lengths == got.lengths
    assert [True, True, False, False, False, False] == openings
