"""
How a message's tensors get from the target's process to the drafter's device: one small port, three ways.

A queue's pipe carries only what pickling makes of a tensor. `shared` makes that a handle: torch shares a CPU tensor's
memory between processes. `device` lends a buffer on the target's device that the drafter maps once. `pinned` is for
GPUs that cannot read each other's memory: the states go through the host.

Choices: `shared` on the CPU; on CUDA `device` where every drafter's GPU can read every target's, else `pinned`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from pipeline.topology import Topology
from pipeline.transport.loans import Borrower, CudaFence, Lender, Loan, MakeFence
from pipeline.transport.messages import HiddenStates


class Carrier(Protocol):
    """Moves one message's tensors; stateless but for buffers of its own."""

    def pack(self, message: HiddenStates, *, receiver: int = 0) -> HiddenStates:
        """In the target: the message for a drafter as it is pickled. The caller may reuse what it gave."""
        ...

    def expect(self, message: HiddenStates, device: torch.device) -> None:
        """In the drafter: *device* waits for the target's to have written the states, where that is still to come."""
        ...

    def unpack(self, message: HiddenStates, device: torch.device) -> HiddenStates:
        """In the drafter: the message with its hidden states on *device*, ordered before what follows there."""
        ...


class SharedCarrier:
    """CPU: the tensors' memory is shared between processes."""

    def pack(self, message: HiddenStates, *, receiver: int = 0) -> HiddenStates:
        """Move the tensors into shared memory here, where it is timed, and not while they are pickled."""
        del receiver
        return _map_tensors(message, Tensor.share_memory_)

    def expect(self, message: HiddenStates, device: torch.device) -> None:
        """They were written before they were sent."""

    def unpack(self, message: HiddenStates, device: torch.device) -> HiddenStates:
        """The tensors are here already."""
        del device
        return message


class DeviceCarrier:
    """CUDA: the drafter copies from buffers of the target that it has mapped for good; neither side waits."""

    def __init__(self, make_fence: MakeFence = CudaFence) -> None:
        self._make_fence = make_fence
        self._lenders: dict[int, Lender] = {}
        self._borrower = Borrower(make_fence)

    @property
    def num_buffers(self) -> int:
        """That this target has for all drafters."""
        return sum(lender.num_buffers for lender in self._lenders.values())

    def pack(self, message: HiddenStates, *, receiver: int = 0) -> HiddenStates:
        """A loan instead of the states; where none is to be had, torch's own handles. Host tensors are shared."""
        lender = self._lenders.setdefault(receiver, Lender(self._make_fence))
        loan = lender.lend(message.hidden_TF, message.checksum)
        if loan is not None:
            message = replace(message, hidden_TF=loan, checksum=loan)
        return _map_tensors(message, lambda tensor: tensor if tensor.is_cuda else tensor.share_memory_())

    def expect(self, message: HiddenStates, device: torch.device) -> None:
        """The target sends a loan as soon as its writing is queued."""
        if isinstance(message.hidden_TF, Loan):
            self._borrower.expect(message.hidden_TF, device)

    def unpack(self, message: HiddenStates, device: torch.device) -> HiddenStates:
        """A copy on the drafter's device."""
        if isinstance(message.hidden_TF, Loan):
            hidden_TF, checksum = self._borrower.take(message.hidden_TF, device)
            return replace(message, hidden_TF=hidden_TF, checksum=checksum)
        return replace(
            message,
            hidden_TF=message.hidden_TF.to(device, non_blocking=True),
            checksum=message.checksum.to(device, non_blocking=True),
        )


class PinnedCarrier:
    """CUDA without peer access: device to pinned host memory, through shared memory, pinned again, to the device."""

    def pack(self, message: HiddenStates, *, receiver: int = 0) -> HiddenStates:
        """Waits for the copy: what is pickled must be whole."""
        del receiver
        return _map_tensors(message, _to_shared_host)

    def expect(self, message: HiddenStates, device: torch.device) -> None:
        """They were written before they were sent."""

    def unpack(self, message: HiddenStates, device: torch.device) -> HiddenStates:
        """Copies from pinned memory without waiting; torch keeps the block until the copy has run."""
        return replace(
            message,
            hidden_TF=message.hidden_TF.pin_memory().to(device, non_blocking=True),
            checksum=message.checksum.to(device, non_blocking=True),
        )


CARRIERS: MappingProxyType[str, Callable[[], Carrier]] = MappingProxyType(
    {"shared": SharedCarrier, "device": DeviceCarrier, "pinned": PinnedCarrier}
)


def choose_carrier(topology: Topology, device: str) -> str:
    """The name of the fastest carrier that these devices allow."""
    if device == "cpu":
        return "shared"
    num_devices = torch.cuda.device_count()
    targets = {topology.place("target", rank, num_devices) for rank in range(topology.num_targets)}
    drafters = {topology.place("drafter", rank, num_devices) for rank in range(topology.num_drafters)}
    pairs = ((drafter, target) for drafter in drafters for target in targets if drafter != target)
    return "device" if all(torch.cuda.can_device_access_peer(*pair) for pair in pairs) else "pinned"


def _to_shared_host(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor.share_memory_()
    staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    staged.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    # Not `share_memory_`, which would give up the pinned block that the next message can use.
    return torch.empty_like(staged, pin_memory=False).share_memory_().copy_(staged)


def _map_tensors(message: HiddenStates, change: Callable[[Tensor], Tensor]) -> HiddenStates:
    names = ("hidden_TF", "checksum", "input_ids_T", "loss_mask_T")
    tensors = {name: getattr(message, name) for name in names}
    return replace(message, **{name: change(x) for name, x in tensors.items() if isinstance(x, Tensor)})
