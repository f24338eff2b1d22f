"""
The cell: everything that was the same for a whole launch and can change its speed (design §4.5).

A fact is a dotted name and a text: `workload.preset`, `toggles.swa`, `machine.gpu.0.driver`. Unlike cells are not
compared: a difference that is not under test is named, and refused unless the user allows it by its name.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from textwrap import shorten

from flashprof.contracts.errors import UnknownNameError, UsageError

ABSENT = "(absent)"
SECTIONS = ("workload", "topology", "toggles", "source", "machine", "versions", "env")
"""What a fact's name begins with."""
MAX_NAMED = 8
"""Differences that a message spells out; two hosts differ in some 20 facts."""
MAX_SINGLE = 3
"""More differences than this within a section, and the message offers to allow the section."""
MAX_VALUE = 60
"""Characters of a value in a message: a command line or a list of buckets is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One fact in which two cells differ."""

    name: str
    base: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.name}: {_short(self.base)} → {_short(self.candidate)}"

    @property
    def section(self) -> str:
        """`machine` for `machine.gpu.0.driver`."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Cell:
    """All facts of one launch, by dotted name."""

    facts: Mapping[str, str]

    @property
    def hash(self) -> str:
        """12 hexadecimal digits; equal for equal facts."""
        text = json.dumps(dict(sorted(self.facts.items())), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def without(self, *sections: str) -> Cell:
        """The same cell, silent about some sections: `cell.without("toggles")`."""
        return Cell({name: text for name, text in self.facts.items() if name.partition(".")[0] not in sections})

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
        allowed: Names or patterns that the user gave with `--allow`; a name also allows all below it, so that
            `machine` stands for its whole section.

    Raises:
        UsageError: Other facts differ; names them with both values, and the options that allow them.
    """
    unlike = [item for item in differences if not any(_covers(name, item.name) for name in (*under_test, *allowed))]
    if unlike:
        raise UsageError(
            "the cells differ in more than what is compared",
            offered=_list(unlike),
            allowed="cells that differ in " + (", ".join((*under_test, *allowed)) or "nothing"),
            next_command=f"{_options(unlike)}, if that is no cause of a difference",
        )


def check_allowed(allowed: Sequence[str], base: Cell, candidate: Cell) -> None:
    """
    Make sure that each name given with `--allow` means something: a misspelt one would allow nothing.

    A fact that the cells have in common may be allowed, too, and any variable of the environment.

    Raises:
        UnknownNameError: There is no such fact or section; offers those that do differ.
    """
    differing = [item.name for item in base.differences(candidate)]
    for name in allowed:
        is_variable = name.startswith("env.")
        if not is_variable and not any(_covers(name, known) for known in (*SECTIONS, *base.facts, *candidate.facts)):
            raise UnknownNameError(
                "fact",
                name,
                (*differing, *SECTIONS),
                next_command=_options(base.differences(candidate)) if differing else None,
            )


def _covers(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _list(unlike: Sequence[Difference]) -> str:
    named = [str(item) for item in unlike[:MAX_NAMED]]
    num_left_out = len(unlike) - len(named)
    return "; ".join([*named, f"and {num_left_out} more"] if num_left_out else named)


def _options(unlike: Sequence[Difference]) -> str:
    """`--allow` for each difference, or for its section where many of a section differ: always all of them."""
    counts = Counter(item.section for item in unlike)
    names = [item.section if counts[item.section] > MAX_SINGLE else item.name for item in unlike]
    return " ".join(f"--allow {name}" for name in dict.fromkeys(names))


def _short(text: str) -> str:
    return shorten(text, MAX_VALUE, placeholder=" …") if " " in text else text[:MAX_VALUE]
