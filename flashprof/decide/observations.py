"""
What a study learns, one fact after the other: the lines of its journal.

Facts only: none holds what a rule made of it, so a stricter rule, or a larger budget, reads the same journal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flashprof.contracts.comparison import Arm, Block, Method
from flashprof.contracts.errors import FormatError
from flashprof.contracts.outcome import Outcome
from flashprof.decide.fact_codec import FactCodec

_RUN_ID = re.compile(r"hot-(?P<launch>\d+)|cold-(?P<block>\d+)-(?P<arm>base|candidate)-(?P<attempt>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan:
    """
    The user gave the command, again or for the first time.

    Failures of earlier calls no longer count: somebody may have repaired what caused them.
    """

    kind: ClassVar[str] = "call_began"


@dataclass(frozen=True, slots=True, kw_only=True)
class HotBlock:
    """A block within one launch is complete."""

    kind: ClassVar[str] = "hot_block"
    block: Block
    launch_s: float = 0.0
    """Life of its launch so far, in seconds: start-up and warm-up count against the budget too."""

    def __post_init__(self) -> None:
        """A block without a difference is our bug."""
        assert math.isfinite(self.block.difference), self.block


@dataclass(frozen=True, slots=True, kw_only=True)
class HotEnded:
    """A launch that holds both arms has ended."""

    kind: ClassVar[str] = "hot_ended"
    run_id: str
    outcome: Outcome
    reason: str = ""
    length_s: float
    """Its whole life, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdLaunch:
    """A launch of one arm that is a measurement."""

    kind: ClassVar[str] = "cold_launch"
    arm: Arm
    block: int
    run_id: str
    site: str
    log_tok_per_s: float
    num_windows: int
    length_s: float
    """Its whole life, in seconds."""
    disturbances: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """A launch without throughput is a failure, and has no place here."""
        assert math.isfinite(self.log_tok_per_s), self


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdFailed:
    """A launch of one arm that is no measurement."""

    kind: ClassVar[str] = "cold_failed"
    arm: Arm
    block: int
    run_id: str
    outcome: Outcome
    reason: str = ""
    length_s: float

    def __post_init__(self) -> None:
        """A measurement is no failure."""
        assert not self.outcome.is_measurement, self


Observation = CallBegan | HotBlock | HotEnded | ColdLaunch | ColdFailed
_CODEC: FactCodec[Observation] = FactCodec(
    kinds=(CallBegan, HotBlock, HotEnded, ColdLaunch, ColdFailed),
    casts={"Arm": Arm, "Block": Block, "Method": Method, "Outcome": Outcome, "tuple[str, ...]": tuple},
)


def hot_run_id(launch: int) -> str:
    """Name of the run folder of a study's hot launch; *launch* counts from 1."""
    return f"hot-{launch}"


def cold_run_id(block: int, arm: Arm, attempt: int) -> str:
    """Name of the run folder of a cold launch; *attempt* counts from 1."""
    return f"cold-{block}-{arm}-{attempt}"


def cut_off(run_id: str, *, length_s: float) -> HotEnded | ColdFailed:
    """
    What to write down about a launch whose end nobody saw, since FlashProf was killed.

    Its complete hot blocks go before it, and `CallBegan` after it: an interruption stops the call that it belongs to.

    Args:
        run_id: Name of its run folder, as `hot_run_id` or `cold_run_id` made it.
        length_s: From its start to its last event.

    Raises:
        FormatError: Not such a name.
    """
    match = _RUN_ID.fullmatch(run_id)
    if match is None:
        raise FormatError(f"{run_id!r} is no launch of a study", allowed="hot-1, cold-1-base-1", next_command="--fresh")
    reason = "FlashProf itself was killed."
    if match["launch"]:
        return HotEnded(run_id=run_id, outcome=Outcome.INTERRUPTED, reason=reason, length_s=length_s)
    return ColdFailed(
        arm=Arm(match["arm"]),
        block=int(match["block"]),
        run_id=run_id,
        outcome=Outcome.INTERRUPTED,
        reason=reason,
        length_s=length_s,
    )


def observation_to_json(observation: Observation) -> dict[str, Any]:
    """One line of the journal."""
    return _CODEC.encode(observation)


def observation_from_json(raw: Mapping[str, Any]) -> Observation:
    """
    Read one line of the journal.

    Raises:
        FormatError: Not an observation of this version.
    """
    return _CODEC.decode(raw)
