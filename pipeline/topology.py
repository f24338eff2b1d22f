"""How many targets and drafters a host has, and on which device each runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flashprof.contracts.errors import UsageError

MAX_RANKS = 64
SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Topology:
    """`N+M`: N targets feed M drafters; `shared`: one of each on one device."""

    num_targets: int
    num_drafters: int
    is_shared: bool = False

    def __str__(self) -> str:
        return SHARED if self.is_shared else f"{self.num_targets}+{self.num_drafters}"

    def place(self, role: str, rank: int, num_devices: int) -> int:
        """
        The device of a worker: targets take the first ones and drafters the next; with too few they share.

        Args:
            role: `target` or `drafter`.
            rank: Within its role, on this host.
            num_devices: Of this host.
        """
        first = 0 if role == "target" or self.is_shared else self.num_targets
        return (first + rank) % num_devices


def parse_topology(text: str) -> Topology:
    """
    Read `N+M` or `shared`.

    Raises:
        UsageError: Not of that form, or a count outside 1 to 64.
    """
    if text.strip() == SHARED:
        return Topology(1, 1, is_shared=True)
    match = re.fullmatch(r"(\d+)\+(\d+)", text.strip())
    counts = [int(group) for group in match.groups()] if match else []
    if not counts or not all(1 <= count <= MAX_RANKS for count in counts):
        raise UsageError(
            f"topology {text!r} is neither TARGETS+DRAFTERS nor {SHARED!r}",
            offered=text,
            allowed=f"1+1, 2+1, 5+3, … each side 1..{MAX_RANKS}, or {SHARED}",
            next_command="--topology 1+1",
        )
    return Topology(*counts)
