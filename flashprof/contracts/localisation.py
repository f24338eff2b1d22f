"""Where a change of tok/s lies: phases, frames, resources, and the usual suspects. Frozen, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from flashprof.contracts.results import Interval

BETWEEN = "(between phases)"
"""Time of a lane that no phase accounts for."""

AWAITED = MappingProxyType(
    {
        "wait_hidden": "target",
        "wait_states": "target",
        "wait_work": "dispatcher",
        "wait_targets": "target",
        "wait_room": "drafter",
        "wait_drafters": "drafter",
    }
)
"""Wait phase → the role whose work ends it. A wait that is not listed is nobody's but its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one phase has of the change: the parts of a localisation sum to it."""

    role: str
    phase: str
    kind: str
    """`work` or `wait`."""
    thread: str = "main"
    """Which of the role's lanes was followed: its main thread, or the device stream that kept it busy."""
    base_ns_per_token: float
    """Own time of the phase in its lane, mean over ranks."""
    candidate_ns_per_token: float
    charge: Interval
    """What the training lane's time per token has of it, in ns: candidate − base."""
    share: float
    """Of the whole change; negative for a phase that went the other way."""
    through: tuple[str, ...] = ()
    """Waits along which it is charged, from the training lane on: `drafter wait_hidden`."""
    is_clear: bool
    """Whether the interval excludes 0."""
    first_share: float = 0.0
    """Share of the redraws in which it has the largest charge: how sure the first place is."""

    @property
    def name(self) -> str:
        """`drafter mask`."""
        return f"{self.role} {self.phase}"


class FrameStatus(StrEnum):
    """What became of a frame."""

    CHANGED = "changed"
    """On both sides."""
    NEW = "new"
    """Only in the candidate."""
    VANISHED = "vanished"
    """Only in the base."""
    RENAMED = "renamed"
    """On both sides under two names, or in two files."""
    COMPILED = "compiled"
    """Compiled on one side and interpreted on the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameChange:
    """One function of one role. Times are ns a token of wall time, mean over the role's ranks."""

    role: str
    thread: str = "main"
    """Of others only the time in which they held the GIL counts."""
    name: str
    where: str
    """`file:line`, where it was seen most."""
    phase: str = ""
    """In which it changed most; empty where no phase is known."""
    status: FrameStatus = FrameStatus.CHANGED
    was: str = ""
    """Its name in the base, where that was another."""
    base_ns_per_token: float
    """Inclusive."""
    candidate_ns_per_token: float
    inclusive: Interval
    """Change of the time in which it appears at all, ns a token."""
    own: Interval
    """Change of its own time, with that of library code it calls: what a reader of the code can change there."""
    is_clear: bool
    """Whether the interval of `own` or of `inclusive` excludes 0, with multiplicity over all frames controlled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """One figure of one lane, role or device in both arms."""

    place: str
    """`drafter 0/MainThread`, `GPU 0`, `drafter`."""
    name: str
    """`%usr`, `involuntary switches`, `recompiles`, `gc pauses`, `queue`."""
    unit: str
    base: float
    candidate: float
    difference: Interval | None = None
    """None where one value an arm is all that there is."""
    is_clear: bool = False


class Ruling(StrEnum):
    """What the evidence says of a suspect."""

    NAMED = "named"
    """Its evidence covers most of the change."""
    PART = "part"
    """It changed, and covers less than half of the change."""
    RULED_OUT = "ruled out"
    UNKNOWN = "unknown"
    """What it needs was not measured; the evidence says what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One of the usual causes, ruled in or out."""

    name: str
    """`mask building`, `GIL contention`, …"""
    ruling: Ruling
    evidence: str
    """One sentence with the numbers of both arms."""
    share: float = 0.0
    """Of the change that its evidence covers, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Localisation:
    """Where time went from base to candidate."""

    base: str
    """How the arm is called."""
    candidate: str
    base_ns_per_token: float
    """Wall time over tokens of all ranks."""
    difference: Interval
    """Candidate − base, ns a token."""
    limiting: tuple[str, str] = ("", "")
    """The role that limits, in base and candidate; empty where it cannot be told."""
    parts: tuple[Part, ...] = ()
    """The largest charge in the direction of the change first."""
    explained_share: float = 0.0
    """Of the change, by parts that are clear."""
    frames: tuple[FrameChange, ...] = ()
    """Those that explain most first; wrappers are left out."""
    resources: tuple[ResourceChange, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    num_windows: tuple[int, int] = (0, 0)
    num_launches: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()

    @property
    def unexplained_ns_per_token(self) -> float:
        """What no clear part accounts for."""
        return self.difference.estimate * (1 - self.explained_share)
