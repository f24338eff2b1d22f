"""How many targets and drafters, and on which device each runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flashprof.contracts.errors import UsageError

MAX_RANKS = 64


@dataclass(frozen=True, slots=True)
class Topology:
    """`N+M`: N targets feed M drafters."""

    num_targets: int
    num_drafters: int

    def __str__(self) -> str:
        return f"{self.num_targets}+{self.num_drafters}"


def parse_topology(text: str) -> Topology:
    """
    Read `N+M`.

    Raises:
        UsageError: Not of that form, or a count outside 1 to 64.
    """
    match = re.fullmatch(r"(\d+)\+(\d+)", text.strip())
    counts = [int(group) for group in match.groups()] if match else []
    if not counts or not all(1 <= count <= MAX_RANKS for count in counts):
        raise UsageError(
            f"topology {text!r} is not TARGETS+DRAFTERS",
            offered=text,
            allowed=f"1+1, 2+1, 5+3, … each side 1..{MAX_RANKS}",
            next_command="--topology 1+1",
        )
    return Topology(*counts)
