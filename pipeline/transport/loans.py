"""
Device buffers that a target lends to a drafter, and lends again once they are given back: nobody waits for the other.

Pickled by itself, a CUDA tensor is mapped in the reader's process and unmapped when the reader lets go of it, and torch
then waits for all that the reader's stream still has to do (StorageSharing.cpp, the deleter of a received storage):
once a message, with the device idle until the host has caught up. A lent buffer stays mapped. Two events between the
processes order its use, and a count in shared memory says that the second one has been recorded.

It costs two copies on the device, 0.12 ms each for 6,144 tokens of Qwen3-8B (252 MB), since the drafter keeps hidden
states until its backward pass, and would otherwise keep the buffer as long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import torch
from torch import Tensor

MAX_BUFFERS = 64
"""A drafter's, in one target: what exceeds them (a queue of 64 steps in parts) travels as torch would have it."""
CHECKSUM_BYTES = 256
"""At a buffer's start, for the eight that are used: what follows stays aligned for wide loads."""


class Fence(Protocol):
    """A place in a device's order of work, known to two processes."""

    def record(self) -> None:
        """Put it behind all that the current stream has been given."""
        ...

    def wait(self, device: torch.device | None = None) -> None:
        """Have further work on the current stream wait for it, its own device's or *device*'s; the host does not."""
        ...

    def is_past(self) -> bool:
        """Whether the device has come by; True before the first `record`."""
        ...

    def handle(self) -> bytes:
        """For the other process."""
        ...


class CudaFence:
    """An interprocess event."""

    def __init__(self, device: torch.device, handle: bytes | None = None) -> None:
        """Of *device*; with a *handle*, the one that another process has made."""
        self._device = device
        if handle is None:
            self._event = torch.cuda.Event(enable_timing=False, interprocess=True)
        else:
            self._event = torch.cuda.Event.from_ipc_handle(device, handle)

    def record(self) -> None:
        """As `Fence`."""
        self._event.record(torch.cuda.current_stream(self._device))

    def wait(self, device: torch.device | None = None) -> None:
        """As `Fence`."""
        self._event.wait(torch.cuda.current_stream(device or self._device))

    def is_past(self) -> bool:
        """As `Fence`."""
        return bool(self._event.query())

    def handle(self) -> bytes:
        """As `Fence`."""
        with torch.cuda.device(self._device):
            return bytes(self._event.ipc_handle())


MakeFence = Callable[..., Fence]
"""`CudaFence`, or what stands for it where there is no GPU: called with a device, and a handle or none."""


@dataclass(frozen=True)
class Opening:
    """What a drafter needs to use a buffer for the first time."""

    buffer_U: Tensor
    """uint8."""
    num_given_back: Tensor
    """int64, one element in shared memory."""
    written: bytes
    """Handle of the fence behind the target's writing."""
    read: bytes
    """Handle of the fence behind the drafter's reading."""


@dataclass(frozen=True)
class Loan:
    """Stands for one message's hidden states and checksum on their way."""

    key: tuple[int, int]
    """The target's process, and which of its buffers."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    opening: Opening | None
    """Only when the buffer is lent for the first time."""


@dataclass(kw_only=True)
class Buffer:
    """One side's view of a buffer."""

    buffer_U: Tensor
    num_given_back: Tensor
    written: Fence
    read: Fence
    num_lent: int = 0

    def is_free(self) -> bool:
        """Whether the drafter has given it back and its device has read it."""
        return int(self.num_given_back) == self.num_lent and self.read.is_past()

    def hidden(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The hidden states in it."""
        num_bytes = torch.Size(shape).numel() * dtype.itemsize
        return self.buffer_U[CHECKSUM_BYTES : CHECKSUM_BYTES + num_bytes].view(dtype).view(shape)

    @property
    def checksum(self) -> Tensor:
        """int64, a scalar."""
        return self.buffer_U[:8].view(torch.int64)[0]


class Lender:
    """A target's buffers for one drafter."""

    def __init__(self, make_fence: MakeFence = CudaFence) -> None:
        self._make_fence = make_fence
        self._buffers: dict[int, Buffer] = {}
        self._numbers = count()

    @property
    def num_buffers(self) -> int:
        """As many as were lent at once, of each size."""
        return len(self._buffers)

    def lend(self, hidden_TF: Tensor, checksum: Tensor) -> Loan | None:
        """
        Copy both into a free buffer; the caller may reuse what it gave.

        Returns:
            None where all buffers are lent and there may be no more.
        """
        num_bytes = CHECKSUM_BYTES + hidden_TF.numel() * hidden_TF.element_size()
        number = self._find(num_bytes)
        opening = None
        if number is None:
            if len(self._buffers) >= MAX_BUFFERS:
                return None
            number = next(self._numbers)
            opening = self._open(number, num_bytes, hidden_TF.device)
        buffer = self._buffers[number]
        loan = Loan((os.getpid(), number), tuple(hidden_TF.shape), hidden_TF.dtype, opening)
        buffer.hidden(loan.shape, loan.dtype).copy_(hidden_TF, non_blocking=True)
        buffer.checksum.copy_(checksum, non_blocking=True)
        buffer.written.record()
        buffer.num_lent += 1
        return loan

    def _find(self, num_bytes: int) -> int | None:
        """The smallest free buffer that is large enough."""
        sizes = {number: buffer.buffer_U.numel() for number, buffer in self._buffers.items()}
        fitting = sorted((size, number) for number, size in sizes.items() if size >= num_bytes)
        return next((number for _, number in fitting if self._buffers[number].is_free()), None)

    def _open(self, number: int, num_bytes: int, device: torch.device) -> Opening:
        buffer = Buffer(
            # Powers of two, so that rows of unlike lengths share buffers: with finer sizes there would be more of them.
            buffer_U=torch.empty(1 << (num_bytes - 1).bit_length(), dtype=torch.uint8, device=device),
            num_given_back=torch.zeros(1, dtype=torch.int64).share_memory_(),
            written=self._make_fence(device),
            read=self._make_fence(device),
        )
        self._buffers[number] = buffer
        return Opening(buffer.buffer_U, buffer.num_given_back, buffer.written.handle(), buffer.read.handle())


class Borrower:
    """A drafter's view of all buffers that any target has lent it."""

    def __init__(self, open_fence: MakeFence = CudaFence) -> None:
        self._open_fence = open_fence
        self._buffers: dict[tuple[int, int], Buffer] = {}

    def expect(self, loan: Loan, device: torch.device) -> None:
        """Have *device* wait until the target's has written: then `take` is the copy alone, and each can be timed."""
        self._buffer_of(loan).written.wait(device)

    def take(self, loan: Loan, device: torch.device) -> tuple[Tensor, Tensor]:
        """`hidden_TF, checksum` on *device*, ordered before what follows there; the buffer is given back."""
        buffer = self._buffer_of(loan)
        buffer.written.wait()
        # Copies between devices run on the source's current stream, so that the fence behind them is on it too.
        hidden_TF = buffer.hidden(loan.shape, loan.dtype).to(device, non_blocking=True, copy=True)
        checksum = buffer.checksum.to(device, non_blocking=True, copy=True)
        buffer.read.record()
        buffer.num_given_back += 1
        return hidden_TF, checksum

    def _buffer_of(self, loan: Loan) -> Buffer:
        # Mapped once: `expect` and `take` are given the same loan, and a mapping would be torn down by its successor.
        if loan.opening is not None and loan.key not in self._buffers:
            self._buffers[loan.key] = self._map(loan.opening)
        return self._buffers[loan.key]

    def _map(self, opening: Opening) -> Buffer:
        device = opening.buffer_U.device
        return Buffer(
            buffer_U=opening.buffer_U,
            num_given_back=opening.num_given_back,
            written=self._open_fence(device, opening.written),
            read=self._open_fence(device, opening.read),
        )
