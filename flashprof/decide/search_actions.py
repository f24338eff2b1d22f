"""What a search wants next. The application does it, and tells the search what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.results import Interval
from flashprof.contracts.search import Belief, Cause, Proof, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Measure one window of one cell."""

    cell: str
    group: str
    """What the launch must have been started with."""
    run_id: str
    """Name of the launch's folder; one not seen before means a new launch, which ends the one that runs."""
    stage: Stage
    proof: int = 0
    """As in a reading, which takes these over."""
    block: int = 0
    position: int = 0
    order: str = ""
    """Of the block, `ABBA`; empty in the search itself."""
    why: str
    """One sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Make what a group's launches need: a worktree, its environment."""

    group: str
    cell: str
    """The cell that wants it."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Nothing more to measure: the answer. Fields as in `SearchResult`."""

    verdict: Verdict
    standing: Standing
    reason: str
    drop: Interval | None
    culprits: tuple[Cause, ...]
    gains: tuple[Cause, ...]
    beliefs: tuple[Belief, ...]
    proofs: tuple[Proof, ...]
    to_resolve_s: float | None
    notes: tuple[str, ...]
    failures: tuple[str, ...]
    spent_s: float
    num_reused: int


SearchAction = Visit | Build | Finish
