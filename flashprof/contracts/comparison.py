"""What a comparison of two cells is made of and what comes out of it. Frozen, standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flashprof.contracts.localisation import Localisation
from flashprof.contracts.results import Interval


class Arm(StrEnum):
    """One side of a comparison."""

    BASE = "base"
    CANDIDATE = "candidate"


class Verdict(StrEnum):
    """The answer; three-valued, since `inconclusive` is an honest one (design §4.4)."""

    REGRESSION = "regression"
    """The candidate is slower, and not shown to be slower by less than the tolerance."""
    NO_REGRESSION = "no regression"
    """The candidate is shown to be slower by less than the tolerance, or not slower at all."""
    INCONCLUSIVE = "inconclusive"


class Method(StrEnum):
    """How the arms were interleaved."""

    HOT = "hot"
    """Both in one process, switched at step boundaries: what a launch draws once is the same for both."""
    COLD = "cold"
    """Launch by launch: the launch is the unit of replication."""
    EXISTING = "existing"
    """Runs that were measured earlier, each for itself."""


class Standing(StrEnum):
    """How far a verdict has come."""

    SCREENED = "screened"
    """By hot blocks only; cold launches have not confirmed it."""
    CONFIRMED = "confirmed"
    """By cold launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWindow:
    """A measure window of one arm, cut by tokens."""

    arm: Arm
    launch: str
    """Run id of the launch it lies in."""
    block: int
    """Number of the block within the study, from 1."""
    position: int
    """Place within the block, from 0."""
    start_ns: int
    end_ns: int
    num_steps: int
    num_tokens: int
    log_tok_per_s: float
    """Natural log of tokens a second, adjusted for what the window's batches were made of."""
    disturbances: tuple[str, ...] = ()
    """Why the machine was not itself; such a window is shown and left out."""

    @property
    def length_s(self) -> float:
        """Wall time, in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The least that can be compared: both arms, close in time, in random order."""

    number: int
    method: Method
    order: str
    """`ABBA`, `BAAB`, `AB`, `BA`: A is the base."""
    launches: tuple[str, ...]
    """Run ids; one for a hot block, one an arm for a cold one."""
    site: str
    """Host and GPU set: a block never spans two."""
    difference: float
    """Candidate − base, mean log tok/s."""
    base_log_tok_per_s: float
    num_windows: int
    length_s: float
    """What it cost: for a cold block its launches' whole life, for a hot one from switch to switch."""
    disturbances: tuple[str, ...] = ()
    """Why it is left out; empty for one that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRule:
    """When an answer is clear enough, and what may be wrong with it how often."""

    alpha: float = 0.01
    """Largest share of comparisons without a difference that may be called a regression or a gain, ever."""
    tolerance: float = 0.01
    """A slow-down that is shown to be smaller than this share of tok/s is `no regression`."""
    level: float = 0.95
    """Of the stated interval."""
    budget_s: float = 600.0
    """Stop with what is known after this much measuring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """One phase of one role: what it costs a token in each arm. Multiplicity over phases is controlled."""

    role: str
    phase: str
    kind: str
    """`work` or `wait`."""
    base_ns_per_token: float
    difference: Interval
    """Candidate − base, in ns a token."""
    is_changed: bool
    """Among those that e-BH rejects, at most 5 % in expectation are no changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Effect, interval, verdict, and what more it would cost to know."""

    method: Method
    base_tok_per_s: float
    effect: Interval
    """Relative change of tok/s from base to candidate, −0.17 for 17 % slower; stated at the rule's level."""
    deciding: Interval
    """The same at level 1 − alpha, valid however often one looks: the verdict is read from this one."""
    verdict: Verdict
    reason: str
    """One sentence: why the verdict is what it is."""
    num_launches: int
    num_blocks: int
    """Those that count."""
    num_windows: int
    num_left_out: int
    """Blocks left out as disturbed."""
    spent_s: float
    to_resolve_s: float | None
    """How much longer an inconclusive comparison is expected to take; None where it is resolved or cannot be told."""
    rule: DecisionRule
    phases: tuple[PhaseChange, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """All that `flashprof compare` prints, and all that `--json` holds."""

    study: str
    """Name of the study's folder."""
    base: str
    """How the arm is called: its toggles, or what differs."""
    candidate: str
    cell: dict[str, str]
    """What both arms have in common, as in a run's summary."""
    verdict: Verdict
    standing: Standing
    comparisons: tuple[Comparison, ...]
    """Screening first, then confirmation, where both were made; the last one gives effect and verdict."""
    spent_s: float
    """Measured now and earlier."""
    num_reused: int
    """Blocks that an earlier call had measured."""
    blocks: tuple[Block, ...] = ()
    """All that were measured, hot ones first, those that are left out too."""
    is_interrupted: bool = False
    """The user stopped it; what was measured is kept, and the same command goes on."""
    failures: tuple[str, ...] = ()
    """Launches that failed, each with its outcome and what was done about it: never a number."""
    notes: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    localisation: Localisation | None = None
    """Where the difference lies; None where none is shown, or nothing has events."""
