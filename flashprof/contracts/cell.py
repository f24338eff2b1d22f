"""
The cell: everything that was the same for a whole launch and can change its speed (design §4.5).

A fact is a dotted name and a text: `workload.preset`, `toggles.swa`, `machine.gpu.0.driver`. Unlike cells are not
compared: a difference that is not under test is named, and refused unless the user allows it by its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from flashprof.contracts.errors import UsageError

ABSENT = "(absent)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact in which two cells differ."""

    name: str
    base: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.name}: {self.base} → {self.candidate}"


@dataclass(frozen=True, slots=True)
class Cell:
    """All facts of one launch, by dotted name."""

    facts: Mapping[str, str]

    @property
    def hash(self) -> str:
        """12 hexadecimal digits; equal for equal facts."""
        text = json.dumps(dict(sorted(self.facts.items())), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differences(self, candidate: Cell) -> tuple[Difference, ...]:
        """Where *candidate* is unlike this cell, by name."""
        names = sorted({*self.facts, *candidate.facts})
        pairs = ((name, self.facts.get(name, ABSENT), candidate.facts.get(name, ABSENT)) for name in names)
        return tuple(Difference(name=name, base=a, candidate=b) for name, a, b in pairs if a != b)


def refuse_unlike(differences: Sequence[Difference], *, under_test: Sequence[str], allowed: Sequence[str]) -> None:
    """
    Make sure that cells differ only in what is being tested.

    Args:
        differences: Between the arms.
        under_test: Patterns of names that are the question, `toggles.*`.
        allowed: Patterns that the user gave with `--allow`; a name without a dot allows its whole section.

    Raises:
        UsageError: Other facts differ; names each with both values, and the option that allows it.
    """
    patterns = [*under_test, *allowed, *(f"{name}.*" for name in allowed)]
    unlike = [item for item in differences if not any(fnmatch(item.name, pattern) for pattern in patterns)]
    if unlike:
        raise UsageError(
            "the cells differ in more than what is compared",
            offered="; ".join(map(str, unlike)),
            allowed="cells that differ in " + (", ".join(under_test) or "nothing"),
            next_command=" ".join(f"--allow {item.name}" for item in unlike) + ", if that is no cause of a difference",
        )
