"""
What a search learns, one fact after the other: the lines of its journal.

Facts only: none holds what a rule made of it, so a stricter rule, or a larger budget, reads the same journal. Nothing
is ever taken out of it: what the user takes back is one more line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, Stage
from flashprof.decide.fact_codec import FactCodec, named_numbers
from flashprof.decide.observations import CallBegan


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A window of one cell is complete."""

    kind: ClassVar[str] = "measured"
    reading: Reading

    def __post_init__(self) -> None:
        """A window without throughput is no reading."""
        assert math.isfinite(self.reading.log_tok_per_s), self.reading


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnded:
    """A launch has ended, with readings or without."""

    kind: ClassVar[str] = "launch_ended"
    run_id: str
    group: str
    outcome: Outcome
    reason: str = ""
    length_s: float
    """Its whole life, in seconds."""
    cell: str = ""
    """What was being measured when it ended, where that is known: in a launch of many cells, the one to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A worktree and its environment are there, or could not be made."""

    kind: ClassVar[str] = "built"
    group: str
    outcome: Outcome
    reason: str = ""
    length_s: float
    note: str = ""
    """What to know when reading its numbers: the libraries are not those that it asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSkipped:
    """The user wants a cell left out. That says nothing about its speed."""

    kind: ClassVar[str] = "user_skipped"
    cell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The user takes back the last readings, or cells left out, of any call."""

    kind: ClassVar[str] = "undone"
    num: int

    def __post_init__(self) -> None:
        """Taking back nothing is no fact."""
        assert self.num >= 1, self


SearchObservation = CallBegan | Measured | LaunchEnded | Built | UserSkipped | Undone
_CODEC: FactCodec[SearchObservation] = FactCodec(
    kinds=(CallBegan, Measured, LaunchEnded, Built, UserSkipped, Undone),
    casts={
        "Outcome": Outcome,
        "Reading": Reading,
        "Stage": Stage,
        "dict[str, float]": named_numbers,
        "tuple[str, ...]": tuple,
    },
)


def search_observation_to_json(observation: SearchObservation) -> dict[str, Any]:
    """One line of the journal."""
    return _CODEC.encode(observation)


def search_observation_from_json(raw: Mapping[str, Any]) -> SearchObservation:
    """
    Read one line of the journal.

    Raises:
        FormatError: Not an observation of this version.
    """
    return _CODEC.decode(raw)
