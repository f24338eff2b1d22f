"""Staging on a GPU: the same tensors arrive, nobody waits, and no buffer is overwritten while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from pipeline.train.staging import PinEach, Preallocated

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]

DEVICE = "cuda"
STAGINGS = [PinEach, Preallocated]


def step_tensors(step: int, length: int = 1000) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [
        torch.randint(0, 1000, (length,), generator=generator),
        torch.randn(7, 33, generator=generator),
        torch.arange(length) % 3 == 0,
        torch.tensor(float(step)),
        torch.randn(5, 4, generator=generator).transpose(0, 1),
        torch.empty(0, dtype=torch.int64),
    ]


def equal(expected: list[Tensor], found: list[Tensor]) -> bool:
    return all(
        one.dtype == other.dtype and other.device.type == DEVICE and torch.equal(one, other.cpu())
        for one, other in zip(expected, found, strict=True)
    )


@contextmanager
def synchronising_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", STAGINGS)
def test_the_same_tensors_arrive(kind: type[PinEach | Preallocated]) -> None:
    staging = kind(torch.device(DEVICE))

    for step, length in enumerate([1000, 10, 5000, 5000, 1]):
        assert equal(step_tensors(step, length), staging.to_device(step_tensors(step, length)))


def test_tensors_that_are_pinned_or_on_the_device_already_keep_their_place_in_the_list() -> None:
    mixed = [torch.ones(3), torch.full((4,), 2.0, device=DEVICE), torch.full((2,), 3.0).pin_memory(), torch.zeros(1)]

    found = Preallocated(torch.device(DEVICE)).to_device(mixed)

    assert equal([tensor.cpu() for tensor in mixed], found)


@pytest.mark.parametrize("kind", STAGINGS)
def test_nothing_waits_for_the_device(kind: type[PinEach | Preallocated]) -> None:
    staging = kind(torch.device(DEVICE))
    staging.to_device(step_tensors(0))
    torch.cuda.synchronize()
    with synchronising_is_an_error():
        # 50 ms of work in front: a copy that waited for it would show in `is_busy`, too.
        torch.cuda._sleep(100_000_000)
        busy = torch.cuda.Event()
        busy.record()
        found = [staging.to_device(step_tensors(step)) for step in range(5)]
        is_busy = not busy.query()

    assert is_busy
    assert all(equal(step_tensors(step), tensors) for step, tensors in enumerate(found))


def test_buffers_are_used_again_and_never_while_they_are_read() -> None:
    staging = Preallocated(torch.device(DEVICE))
    sums = []
    for step in range(200):
        tensors = staging.to_device(step_tensors(step))
        # The kernels that read them run later than the next steps' copies are asked for.
        torch.cuda._sleep(200_000)
        sums.append(tensors[0].sum() + tensors[1].sum())
        del tensors
        if step % 20 == 19:
            torch.cuda.synchronize()
    expected = [float(tensors[0].sum() + tensors[1].sum()) for tensors in map(step_tensors, range(200))]

    assert expected == pytest.approx([float(total) for total in sums], rel=1e-5)
    assert staging.num_slots <= 20


def test_tensors_that_are_held_keep_their_values() -> None:
    staging = Preallocated(torch.device(DEVICE))
    held = [staging.to_device(step_tensors(step)) for step in range(6)]

    assert all(equal(step_tensors(step), tensors) for step, tensors in enumerate(held))
    assert staging.num_slots == 6
