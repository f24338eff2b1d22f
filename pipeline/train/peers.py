"""What drafters tell each other in a step: host counts over gloo, gradients over the device's own backend."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from flashprof.contracts.control import Command
from flashprof.contracts.errors import UsageError
from pipeline.config import HostPlace
from pipeline.transport.messages import Order
from pipeline.transport.queue import QueueClosedError

STORE_PREFIX = "flashprof-drafters"
ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
"""Torchrun counts in it how often it has started the run again."""


@dataclass(frozen=True)
class Agreement:
    """What all drafters know after they have told each other."""

    total_weight: float
    """Loss weight of the step over all drafters and all their batches."""
    num_tokens: int
    """Tokens of the step over all drafters."""
    stop: bool
    """This step is the run's last."""
    commands: tuple[Command, ...]
    """To be obeyed before the next step."""


class Peers:
    """The data-parallel drafters of all hosts; alone, every method returns at once."""

    def __init__(
        self, *, rank: int, num_drafters: int, rendezvous: Path, host: HostPlace, device: torch.device
    ) -> None:
        """
        Join the others.

        Args:
            rank: Over all hosts.
            num_drafters: Over all hosts.
            rendezvous: File over which the drafters of a host alone find each other.
            host: Where torchrun's store is, if there are several.
            device: Of this drafter.
        """
        self.rank = rank
        self.num_drafters = num_drafters
        self._counts_group: dist.ProcessGroup | None = None
        if num_drafters > 1:
            # NCCL refuses two ranks on one GPU; gloo takes any placement.
            own_gpu_each = device.type == "cuda" and torch.cuda.device_count() * host.num_hosts >= num_drafters
            store = _open_store(host, rendezvous, num_drafters)
            dist.init_process_group("nccl" if own_gpu_each else "gloo", store=store, rank=rank, world_size=num_drafters)
            # Counts stay on the host: asking the device for them would wait for it.
            self._counts_group = dist.new_group(backend="gloo")

    def agree(self, weight: float, num_tokens: int, order: Order) -> Agreement:
        """
        Sum counts over drafters, and agree on what the dispatchers ask for; also where they wait for the slowest.

        A stop is agreed when any drafter was told; commands count where drafter 0 of the first host, whose dispatcher
        reads the control channel, was told them.

        Raises:
            QueueClosedError: A drafter is gone.
        """
        if self.num_drafters == 1:
            return Agreement(weight, num_tokens, order.stop, order.commands)
        num_commands = float(len(order.commands)) if self.rank == 0 else 0.0
        counts = torch.tensor([weight, float(num_tokens), float(order.stop), num_commands], dtype=torch.float64)
        _sum_over_drafters(counts, self._counts_group)
        total_weight, num_tokens_all, num_stops, num_commands = counts.tolist()
        commands = self._broadcast(order.commands) if num_commands else ()
        return Agreement(total_weight, int(num_tokens_all), num_stops > 0, commands)

    def require_equal(self, what: str, value: int) -> None:
        """
        Make sure that all drafters were told the same; hosts that resume look for a checkpoint each by itself.

        Raises:
            UsageError: They were not.
            QueueClosedError: A drafter is gone.
        """
        if self.num_drafters == 1:
            return
        told: list[int | None] = [None] * self.num_drafters
        try:
            dist.all_gather_object(told, value, group=self._counts_group)
        except RuntimeError as error:
            raise QueueClosedError(f"lost another drafter: {error}") from error
        if len(set(told)) > 1:
            raise UsageError(
                f"the drafters differ in {what}",
                offered=", ".join(map(str, told)),
                allowed="the same on every host",
                next_command="let all hosts read the same --checkpoints folder, or give --resume a checkpoint by name",
            )

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """
        Sum gradients over drafters in one flat all-reduce.

        Not overlapped with the backward pass: 1 G parameters in bfloat16 take 6 ms over NVLink (anchors.md) in a step
        of over 300 ms, and a phase of its own shows who waits for whom.

        Raises:
            QueueClosedError: A drafter is gone.
        """
        if self.num_drafters == 1:
            return
        gradients: list[Tensor] = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        _sum_over_drafters(flat, None)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def close(self) -> None:
        """Leave the group."""
        if self.num_drafters > 1:
            dist.destroy_process_group()

    def _broadcast(self, commands: tuple[Command, ...]) -> tuple[Command, ...]:
        box = [commands]
        try:
            dist.broadcast_object_list(box, src=0, group=self._counts_group, device=torch.device("cpu"))
        except RuntimeError as error:
            raise QueueClosedError(f"lost another drafter: {error}") from error
        return box[0]


def _open_store(host: HostPlace, rendezvous: Path, num_drafters: int) -> dist.Store:
    if host.num_hosts == 1:
        return dist.FileStore(str(rendezvous), num_drafters)
    # The store belongs to torchrun's agent, which outlives us: behind a restart, the addresses of the dead are in it.
    attempt = os.environ.get(ATTEMPT, "0")
    store = dist.TCPStore(host.address, host.port, is_master=False, timeout=timedelta(minutes=5))
    return dist.PrefixStore(f"{STORE_PREFIX}-{attempt}", store)


def _sum_over_drafters(tensor: Tensor, group: dist.ProcessGroup | None) -> None:
    try:
        dist.all_reduce(tensor, group=group)
    # gloo and NCCL raise it, or a child of it, where a peer's connection ends.
    except RuntimeError as error:
        raise QueueClosedError(f"lost another drafter: {error}") from error
