"""Several hosts: torchrun starts this trainer once on each, with the same command."""

from __future__ import annotations

from collections.abc import Mapping

from flashprof.contracts.errors import UsageError
from pipeline.config import HostPlace

TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Set by torchrun alone: RANK and WORLD_SIZE are left over in many a shell."""


def find_host(environment: Mapping[str, str]) -> HostPlace:
    """
    Where this process stands among those of torchrun; alone without it.

    Each process of torchrun stands for a host: it has targets, a dispatcher and drafters of its own, and only gradients
    and counts travel between hosts (ADR 5).

    Raises:
        UsageError: torchrun left a variable out.
    """
    if TORCHRUN not in environment:
        return HostPlace()
    try:
        return HostPlace(
            rank=int(environment["RANK"]),
            num_hosts=int(environment["WORLD_SIZE"]),
            address=environment["MASTER_ADDR"],
            port=int(environment["MASTER_PORT"]),
        )
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"torchrun's environment is not whole: {error}",
            allowed="RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
            next_command="torchrun --nnodes 2 --nproc-per-node 1 -m pipeline train …",
        ) from error
