"""What drafters tell each other in a step: host counts over gloo, gradients over the device's own backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.transport.queue import QueueClosedError


class Peers:
    """The data-parallel drafters; alone, every method returns at once."""

    def __init__(self, *, rank: int, num_drafters: int, rendezvous: Path, device: torch.device) -> None:
        self.num_drafters = num_drafters
        self._counts_group: dist.ProcessGroup | None = None
        if num_drafters > 1:
            # NCCL refuses two ranks on one GPU; gloo takes any placement.
            own_gpu_each = device.type == "cuda" and torch.cuda.device_count() >= num_drafters
            store = dist.FileStore(str(rendezvous), num_drafters)
            dist.init_process_group("nccl" if own_gpu_each else "gloo", store=store, rank=rank, world_size=num_drafters)
            # Counts stay on the host: asking the device for them would wait for it.
            self._counts_group = dist.new_group(backend="gloo")

    def sum_counts(self, counts: list[float]) -> list[float]:
        """
        Element-wise sum over drafters; also where they wait for the slowest.

        Raises:
            QueueClosedError: A drafter is gone.
        """
        if self.num_drafters == 1:
            return counts
        summed = torch.tensor(counts, dtype=torch.float64)
        _sum_over_drafters(summed, self._counts_group)
        return list(summed.tolist())

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


def _sum_over_drafters(tensor: Tensor, group: dist.ProcessGroup | None) -> None:
    try:
        dist.all_reduce(tensor, group=group)
    # gloo and NCCL raise it, or a child of it, where a peer's connection ends.
    except RuntimeError as error:
        raise QueueClosedError(f"lost another drafter: {error}") from error
