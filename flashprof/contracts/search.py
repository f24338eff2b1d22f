"""What a bisection is made of and what comes out of it. Frozen, standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from flashprof.contracts.comparison import Comparison, Standing, Verdict
from flashprof.contracts.localisation import Localisation
from flashprof.contracts.results import Interval

GOOD = "good"
"""Id of the cell that is fast."""
BAD = "bad"
"""Id of the cell that is slow. Other cells are called by what they have of it, or by their commit."""


class SearchKind(StrEnum):
    """What is looked for."""

    TOGGLES = "toggles"
    COMMITS = "commits"


class Stage(StrEnum):
    """What a reading was taken for; each is evidence for all that follows."""

    SEARCH = "search"
    PROOF = "proof"
    """Blocks that show a named cause, in whatever launches are at hand."""
    CONFIRM = "confirm"
    """The same, each cell in a launch of its own."""


@dataclass(frozen=True, slots=True, order=True)
class Cause:
    """What may have changed the speed: a toggle, toggles that do so only together, or a commit."""

    members: tuple[str, ...]
    """Names of toggles, or one full commit id."""

    @property
    def name(self) -> str:
        """`swa`, `compile × swa`."""
        return " × ".join(self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One window of one cell."""

    cell: str
    """Id of the cell within the search."""
    launch: str
    """Run id of the launch it lies in."""
    stage: Stage
    block: int = 0
    """Number of the block within its proof, from 1; 0 in the search itself."""
    position: int = 0
    """Place within the block, from 0."""
    proof: int = 0
    """Number of the proof within the search, from 1; 0 in the search itself."""
    at_s: float
    """Middle of the window: seconds since the epoch, so that launches and calls share one time."""
    length_s: float
    """What it cost: from the command that began it to its end."""
    log_tok_per_s: float
    """Natural log of tokens a second, adjusted for what the window's batches were made of where that is known."""
    num_tokens: int
    disturbances: tuple[str, ...] = ()
    """Why the machine was not itself; such a window is shown and left out."""
    phases: dict[str, float] = field(default_factory=dict)
    """Own ns a token of the training lane's phases, gaps among them: they add up to the wall time. Empty: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """One hypothesis: exactly these causes matter, and no other."""

    causes: tuple[Cause, ...]
    """Sorted; empty: nothing of all that differs matters."""
    probability: float
    effects: tuple[Interval, ...]
    """Of each cause, if the hypothesis holds: relative change of tok/s, at 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A culprit, switched: alone in the good cell, or back in the bad one. The candidate is the slow one in both."""

    number: int
    cause: Cause
    is_back: bool
    """Whether it is switched back in the bad cell, rather than alone in the good one."""
    base: str
    """Cell ids."""
    candidate: str
    stage: Stage = Stage.PROOF
    """Confirmations hold all culprits at once: their cause has the members of all."""
    comparison: Comparison | None = None
    """None where nothing was measured for it."""

    @property
    def is_shown(self) -> bool:
        """Whether tok/s falls with the cause, and comes back without it."""
        return self.comparison is not None and self.comparison.verdict is Verdict.REGRESSION

    @property
    def is_refuted(self) -> bool:
        """Whether it is shown that the cause costs less than the tolerance."""
        return self.comparison is not None and self.comparison.verdict is Verdict.NO_REGRESSION


@dataclass(frozen=True, slots=True, kw_only=True)
class CellInfo:
    """A cell that was looked at."""

    cell: str
    """Its id."""
    label: str
    """For a person: the toggle expression, or the commit's short id and subject."""
    num_launches: int
    num_readings: int
    tok_per_s: float | None
    """Geometric mean of its readings that count; None where it has none."""
    outcome: str = ""
    """How its last launch failed, where it has no reading: `crash`, `build failed`, `skipped by the user`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """All that `flashprof bisect` prints, and all that `--json` holds."""

    search: str
    """Name of the search's folder."""
    kind: SearchKind
    good: str
    """How the good cell is called: its toggles, or its commit."""
    bad: str
    cell: dict[str, str]
    """What all cells have in common."""
    verdict: Verdict
    """Regression: the culprits are named and proved. No regression: good and bad are alike. Else inconclusive."""
    standing: Standing
    reason: str
    """One sentence: why the verdict is what it is."""
    drop: Interval | None
    """Relative change of tok/s from good to bad, at 95 %; None where an end was never measured."""
    culprits: tuple[Cause, ...]
    """Causes of the leading hypothesis that make it slower, if it is likelier than not; the proof may still be open."""
    gains: tuple[Cause, ...] = ()
    """Causes of the leading hypothesis that make it faster, and mask a loss."""
    beliefs: tuple[Belief, ...] = ()
    """The likeliest first, at most 8."""
    proofs: tuple[Proof, ...] = ()
    cells: tuple[CellInfo, ...] = ()
    num_readings: int = 0
    num_left_out: int = 0
    """Readings left out as disturbed."""
    num_launches: int = 0
    num_builds: int = 0
    spent_s: float = 0.0
    """Measured now and earlier."""
    num_reused: int = 0
    """Readings of earlier calls."""
    to_resolve_s: float | None = None
    """How much longer an inconclusive search is expected to take; None where it is resolved or cannot be told."""
    is_interrupted: bool = False
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    labels: dict[str, str] | None = None
    """For a person: member of a cause → what it is, such as a commit's short id and subject, or `queue: 8 → 1`."""
    paths: tuple[tuple[str, str], ...] = ()
    focus: tuple[str, ...] = ()
    """Phases whose time the search looked at, where they are a better signal than tok/s; empty: tok/s itself."""
    localisation: Localisation | None = None
    """Of the culprit, or from good to bad where there are several; None where nothing is named or has events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRule:
    """When a search is clear enough, and what may be wrong with it how often."""

    certainty: float = 0.95
    """Probability at which the leading hypothesis goes to the proof."""
    alpha: float = 0.01
    """Largest share of searches without a cause that may prove one, ever; shared among all proofs."""
    tolerance: float = 0.01
    """A slow-down that is shown to be smaller than this share of tok/s is none."""
    budget_s: float = 1800.0
    """Stop with what is known after this much measuring."""
    proves_early: bool = True
    """Whether a cause that is sure is proved before all others are excluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLook:
    """What a live view shows after an observation."""

    beliefs: tuple[Belief, ...]
    next_cell: str
    """Label of the cell to come; empty at the end."""
    why: str
    """One sentence: what it is measured for."""
    num_readings: int
    num_launches: int
    spent_s: float
    to_come_s: float | None
