"""Moving a step's many small host tensors to the device: one by one, or in one copy (toggle `prealloc`)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

ALIGNMENT_BYTES = 128
"""A cache line of the GPU; vectorised kernels need 16, and every dtype's size divides it."""


class Staging(Protocol):
    """Moves tensors."""

    def to_device(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The same tensors on the device, in order; on a CPU device, the very same. Never waits for the device."""
        ...


class PinEach:
    """Pins and copies each by itself."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def to_device(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """One allocation on both sides, and one copy, a tensor."""
        return [_send(tensor, self._device) for tensor in tensors]


@dataclass(frozen=True)
class Layout:
    """Where tensors lie in one buffer."""

    offsets_bytes: tuple[int, ...]
    """Each a multiple of `ALIGNMENT_BYTES`."""
    num_bytes: int


@dataclass(kw_only=True)
class Slot:
    """A buffer on both sides, and what may still use it."""

    host_U: Tensor
    """uint8, pinned on CUDA."""
    device_U: Tensor
    """uint8, as long."""
    copied: torch.cuda.Event
    """Behind the last copy from `host_U`."""
    handed_out: list[weakref.ref[Tensor]] = field(default_factory=list)

    def hand_out(self, tensors: Sequence[Tensor], layout: Layout) -> list[Tensor]:
        """What was copied, as tensors like *tensors*."""
        views = views_like(self.device_U, tensors, layout)
        self.handed_out = [weakref.ref(view) for view in views]
        return views

    def is_free(self, num_bytes: int) -> bool:
        """
        Whether *num_bytes* may be written: the copy is over, and nobody holds what was handed out.

        Kernels that were given a view and still run come first on the same stream as the next copy.
        """
        return (
            self.host_U.numel() >= num_bytes and all(view() is None for view in self.handed_out) and self.copied.query()
        )


class Preallocated:
    """
    Packs all of them into one pinned buffer and copies that.

    Buffers are used again once nothing can still read them: as many are kept as copies are under way, plus those whose
    tensors are held. Call it, and use what it returns, on one stream, and hold that for as long as views of it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._slots: list[Slot] = []

    @property
    def num_slots(self) -> int:
        """Buffers on either side."""
        return len(self._slots)

    def to_device(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """One copy for all pageable host tensors; others travel by themselves."""
        small = [index for index, tensor in enumerate(tensors) if self._is_pageable(tensor)]
        packed = dict(zip(small, self._copy([tensors[index] for index in small]), strict=True))
        return [
            packed[index] if index in packed else _send(tensor, self._device) for index, tensor in enumerate(tensors)
        ]

    def _is_pageable(self, tensor: Tensor) -> bool:
        return self._device.type != "cpu" and tensor.device.type == "cpu" and not tensor.is_pinned()

    def _copy(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if not tensors:
            return []
        layout = plan_layout(tensors)
        slot = self._free_slot(layout.num_bytes)
        fill(slot.host_U, tensors, layout)
        slot.device_U[: layout.num_bytes].copy_(slot.host_U[: layout.num_bytes], non_blocking=True)
        slot.copied.record()
        return slot.hand_out(tensors, layout)

    def _free_slot(self, num_bytes: int) -> Slot:
        for slot in self._slots:
            if slot.is_free(num_bytes):
                return slot
        # Too small ones are left to those who still use them.
        self._slots = [slot for slot in self._slots if slot.host_U.numel() >= num_bytes]
        size_bytes = 1 << (num_bytes - 1).bit_length()
        slot = Slot(
            host_U=torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True),
            device_U=torch.empty(size_bytes, dtype=torch.uint8, device=self._device),
            copied=torch.cuda.Event(),
        )
        self._slots.append(slot)
        return slot


def plan_layout(tensors: Sequence[Tensor]) -> Layout:
    """One behind the other, aligned."""
    offsets, end = [], 0
    for tensor in tensors:
        offsets.append(end)
        end += -(-tensor.numel() * tensor.element_size() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return Layout(tuple(offsets), end)


def fill(buffer_U: Tensor, tensors: Sequence[Tensor], layout: Layout) -> None:
    """Write *tensors*, of any strides, into the buffer."""
    for view, tensor in zip(views_like(buffer_U, tensors, layout), tensors, strict=True):
        view.copy_(tensor)


def views_like(buffer_U: Tensor, tensors: Sequence[Tensor], layout: Layout) -> list[Tensor]:
    """Views of the buffer with the dtypes and shapes of *tensors*."""
    return [
        buffer_U[offset : offset + tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape)
        for offset, tensor in zip(layout.offsets_bytes, tensors, strict=True)
    ]


def _send(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return tensor
    source = tensor.pin_memory() if tensor.device.type == "cpu" else tensor
    return source.to(device, non_blocking=True)
