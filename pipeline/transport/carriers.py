"""
How a message's tensors get from the target's process to the drafter's device: one small port, three ways.

A queue's pipe carries only what pickling makes of a tensor. `shared` and `device` make that a handle: torch shares a
CPU tensor's memory, or a CUDA tensor's allocation, between processes. `pinned` is for GPUs that cannot read each
other's memory: the states go through the host.

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
from pipeline.transport.messages import HiddenStates


class Carrier(Protocol):
    """Moves one message's tensors; stateless but for buffers of its own."""

    def pack(self, message: HiddenStates) -> HiddenStates:
        """In the target: the message in the form in which it is pickled. The caller may reuse what it gave."""
        ...

    def unpack(self, message: HiddenStates, device: torch.device) -> HiddenStates:
        """In the drafter: the message with its hidden states on *device*, ordered before what follows there."""
        ...


class SharedCarrier:
    """CPU: the tensors' memory is shared between processes."""

    def pack(self, message: HiddenStates) -> HiddenStates:
        """Move the tensors into shared memory here, where it is timed, and not while they are pickled."""
        return _map_tensors(message, Tensor.share_memory_)

    def unpack(self, message: HiddenStates, device: torch.device) -> HiddenStates:
        """The tensors are here already."""
        del device
        return message


class DeviceCarrier:
    """CUDA: the drafter maps the target's allocation and copies from it, device to device where they differ."""

    def pack(self, message: HiddenStates) -> HiddenStates:
        """CUDA tensors are pickled as handles with an event that orders the reader; host tensors are shared."""
        return _map_tensors(message, lambda tensor: tensor if tensor.is_cuda else tensor.share_memory_())

    def unpack(self, message: HiddenStates, device: torch.device) -> HiddenStates:
        """One copy where the devices differ, none where they are the same."""
        return replace(
            message,
            hidden_TF=message.hidden_TF.to(device, non_blocking=True),
            checksum=message.checksum.to(device, non_blocking=True),
        )


class PinnedCarrier:
    """CUDA without peer access: device to pinned host memory, through shared memory, pinned again, to the device."""

    def pack(self, message: HiddenStates) -> HiddenStates:
        """Waits for the copy: what is pickled must be whole."""
        return _map_tensors(message, _to_shared_host)

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
    return replace(
        message,
        hidden_TF=change(message.hidden_TF),
        checksum=change(message.checksum),
        input_ids_T=change(message.input_ids_T),
        loss_mask_T=change(message.loss_mask_T),
    )
