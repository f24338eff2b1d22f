"""Tensors come out of the shared buffer as they went in; a buffer in use is not written to."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pipeline.train.staging import ALIGNMENT_BYTES, PinEach, Preallocated, Slot, fill, plan_layout, views_like

CPU = torch.device("cpu")
DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.float64)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 9), max_size=3))
    made = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    made = made.to(draw(st.sampled_from(DTYPES)))
    return made.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else made


class Event:
    """As a CUDA event, but it is told when it is done."""

    def __init__(self, *, is_done: bool) -> None:
        self.is_done = is_done

    def query(self) -> bool:
        return self.is_done


def make_slot(num_bytes: int, *, is_copied: bool = True) -> Slot:
    buffer_U = torch.zeros(num_bytes, dtype=torch.uint8)
    return Slot(host_U=buffer_U, device_U=buffer_U.clone(), copied=Event(is_done=is_copied))


@given(st.lists(tensors(), max_size=8))
def test_tensors_come_out_as_they_went_in(given_tensors: list[Tensor]) -> None:
    layout = plan_layout(given_tensors)
    host_U = torch.full((layout.num_bytes + 7,), 0xAA, dtype=torch.uint8)

    fill(host_U, given_tensors, layout)
    found = views_like(host_U.clone(), given_tensors, layout)

    assert len(given_tensors) == len(found)
    for expected, actual in zip(given_tensors, found, strict=True):
        assert (expected.dtype, expected.shape) == (actual.dtype, actual.shape)
        assert torch.equal(expected, actual)
    assert [0xAA] * 7 == host_U[layout.num_bytes :].tolist()


@given(st.lists(tensors(), min_size=1, max_size=8))
def test_places_are_aligned_and_do_not_overlap(given_tensors: list[Tensor]) -> None:
    layout = plan_layout(given_tensors)

    end = 0
    for offset, tensor in zip(layout.offsets_bytes, given_tensors, strict=True):
        assert offset % ALIGNMENT_BYTES == 0
        assert offset >= end
        end = offset + tensor.numel() * tensor.element_size()
    assert end <= layout.num_bytes < end + ALIGNMENT_BYTES


def test_no_tensors_need_no_room() -> None:
    assert (0, ()) == (plan_layout([]).num_bytes, plan_layout([]).offsets_bytes)


def test_a_buffer_is_free_once_nobody_holds_its_tensors() -> None:
    slot = make_slot(256)
    like = [torch.zeros(3), torch.zeros(2)]
    held = slot.hand_out(like, plan_layout(like))
    both_held = slot.is_free(256)
    del held[0]
    one_held = slot.is_free(256)
    held.clear()

    assert [False, False, True] == [both_held, one_held, slot.is_free(256)]


def test_a_buffer_whose_copy_is_under_way_is_not_free() -> None:
    assert [False, True] == [make_slot(256, is_copied=is_copied).is_free(256) for is_copied in (False, True)]


def test_a_tensor_that_only_a_graph_holds_keeps_its_buffer() -> None:
    """Python's object is gone then, torch's is not: what `backward` will read must not be written to."""
    slot = make_slot(256)
    like = [torch.zeros(3)]
    (view,) = slot.hand_out(like, plan_layout(like))
    loss = (torch.ones(3, requires_grad=True) * view).sum()
    del view
    within_graph = slot.is_free(128)
    loss.backward()
    del loss

    assert [False, True] == [within_graph, slot.is_free(128)]


def test_a_buffer_that_is_too_small_is_not_free() -> None:
    assert [True, False] == [make_slot(256).is_free(256), make_slot(256).is_free(257)]


@pytest.mark.parametrize("staging", [PinEach(CPU), Preallocated(CPU)])
def test_on_a_cpu_tensors_are_returned_as_they_are(staging: PinEach | Preallocated) -> None:
    given_tensors = [torch.zeros(2), torch.ones(3, dtype=torch.int64)]

    found = staging.to_device(given_tensors)

    assert all(one is other for one, other in zip(given_tensors, found, strict=True))
    assert [] == staging.to_device([])
