"""What torch's CUDA allocator holds, read without making the device wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

GIB = 2**30


@dataclass(frozen=True)
class Reserved:
    """What the allocator has asked the driver for."""

    num_bytes: int
    num_retries: int
    """How often it gave cached blocks back and asked again."""


def read_reserved() -> Reserved | None:
    """Of the current CUDA device, without flattening all numbers (100 µs); None where this process uses none."""
    stats = torch.cuda.memory_stats_as_nested_dict()
    if not stats:
        return None
    return Reserved(stats["reserved_bytes"]["all"]["current"], stats["num_alloc_retries"])


def read_memory() -> dict[str, float]:
    """Of the current CUDA device, by gauge name; nothing where this process uses none."""
    # `memory_stats` would otherwise say zeros on a CPU, which would look like a measurement.
    return memory_gauges(torch.cuda.memory_stats()) if torch.cuda.is_initialized() else {}


def memory_gauges(stats: Mapping[str, int]) -> dict[str, float]:
    """
    The three numbers that tell whether the allocator is at peace.

    Reserved far above allocated is fragmentation; every retry gave cached blocks back and waited for the device.

    Args:
        stats: As `torch.cuda.memory_stats` gives them; empty before the first allocation.
    """
    return {
        "memory_allocated_gib": stats.get("allocated_bytes.all.current", 0) / GIB,
        "memory_reserved_gib": stats.get("reserved_bytes.all.current", 0) / GIB,
        "memory_retries": float(stats.get("num_alloc_retries", 0)),
    }
