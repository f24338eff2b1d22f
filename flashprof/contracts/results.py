"""What measuring produces: windows, phases, lanes, and the summary of a run. Frozen, standard library only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from flashprof.contracts.events import SpanKind
from flashprof.contracts.outcome import Outcome


class WindowKind(StrEnum):
    """What a stretch of a launch may be used for."""

    WARMUP = "warmup"
    """Before steady state: reported, never measured."""
    MEASURE = "measure"
    """Only the emitter and light counters: verdicts come from these."""
    PROFILE = "profile"
    """Samplers attached."""
    BETWEEN = "between"
    """Neither: samplers coming or going, settling, shutting down. Kept so that every trained token is in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of one launch between two step boundaries."""

    label: str
    kind: WindowKind
    start_ns: int
    end_ns: int
    num_steps: int
    """Training steps, the most that one rank finished."""
    num_tokens: int
    """Summed over ranks; padding excluded."""
    num_supervised_tokens: int
    num_padding_tokens: int
    told_tok_per_s: float = 0.0
    """Of a subject that prints its throughput: as it says, of which the tokens are a rounded product; else 0."""

    @property
    def length_s(self) -> float:
        """Wall time, in seconds."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def tok_per_s(self) -> float:
        """Tokens a second of wall time; 0 for an empty window."""
        if self.told_tok_per_s:
            return self.told_tok_per_s
        return self.num_tokens / self.length_s if self.end_ns > self.start_ns else 0.0

    def row(self) -> dict[str, Any]:
        """For tables and documents: the fields, `length_s` and `tok_per_s`; `told_tok_per_s` only where it was told."""
        known = {name: value for name, value in asdict(self).items() if value or name != "told_tok_per_s"}
        return {**known, "length_s": self.length_s, "tok_per_s": self.tok_per_s}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lane:
    """Where work happens: one thread or device stream of one rank."""

    host: str
    role: str
    rank: int
    thread: str

    def __str__(self) -> str:
        suffix = "" if self.thread == "main" else f"/{self.thread}"
        return f"{self.role} {self.rank}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase of one lane, pooled over some windows. Times are own times: a span less its children."""

    lane: Lane
    phase: str
    kind: SpanKind
    num_calls: int
    num_steps: int
    """Complete cycles of this lane in the windows."""
    self_ns: int
    step_p50_ns: float
    """Median over the lane's cycles of the phase's own time in a cycle."""
    step_p95_ns: float
    share: float
    """Own time over the lane's wall time in the windows, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """One lane, pooled over some windows."""

    lane: Lane
    wall_ns: int
    work_ns: int
    wait_ns: int
    num_steps: int
    num_tokens: int
    """Tokens of its complete cycles."""
    tok_per_s: float
    """What it did."""
    capacity_tok_per_s: float
    """What it would do if it never waited: tokens over work time, its host thread's or, where longer, its GPU's."""
    is_limiting: bool

    @property
    def covered_share(self) -> float:
        """Share of wall time that phases account for, work and wait, 0 to 1."""
        return (self.work_ns + self.wait_ns) / self.wall_ns if self.wall_ns else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
    """What one process made of its device: operations that the model needs, in the measure windows."""

    role: str
    rank: int
    device_name: str
    """As its driver gives it; empty where the subject does not tell."""
    tflop_per_s: float
    peak_tflop_per_s: float | None
    """Of dense bfloat16 products; None for a device whose peak is not known."""

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilisation, 0 to 1."""
        return self.tflop_per_s / self.peak_tflop_per_s if self.peak_tflop_per_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float
    """0.95 for a 95 % interval."""
    num_samples: int
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """The stretch between the first training step and steady state."""

    length_s: float
    num_steps: int
    settled: bool
    """False: the data never settled within the time allowed; measured all the same, and said so."""
    causes: tuple[str, ...] = ()
    """Evidence in the events: `compile 9.1 s`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One function in the stack samples of the profile windows."""

    name: str
    where: str
    """`file:line`"""
    role: str
    self_share: float
    """Share of the role's samples in which it is the innermost frame."""
    total_share: float
    """Share of the role's samples in which it appears at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """CPU use of one thread in the profile windows; pidstat's columns."""

    role: str
    rank: int
    thread: str
    usr_pct: float
    system_pct: float
    wait_pct: float
    """Runnable but not running: the sign of contention."""
    voluntary_switches_per_s: float
    involuntary_switches_per_s: float


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """All that `flashprof run` prints, and all that `--json` holds."""

    run_id: str
    cell: dict[str, Any]
    """Preset, topology, toggles as applied, seed, machine."""
    outcome: Outcome
    reason: str = ""
    """Why the outcome is what it is; empty when completed."""
    tok_per_s: Interval | None = None
    """Over measure windows of this one launch."""
    counted_by: str = "events"
    """Whose count: `events` (ours) or `log` (the subject's own, by regular expression)."""
    supervised_tok_per_s: float = 0.0
    padding_share: float = 0.0
    startup_s: float | None = None
    """From launch to the end of the first training step."""
    warmup: Warmup | None = None
    windows: tuple[Window, ...] = ()
    phases: tuple[PhaseRow, ...] = ()
    lanes: tuple[LaneRow, ...] = ()
    uses: tuple[RankUse, ...] = ()
    """Of processes that tell what their steps need."""
    sampling_cost: Interval | None = None
    """1 − (profile tok/s ÷ measure tok/s); 0.02 means sampling cost 2 %."""
    frames: tuple[Frame, ...] = ()
    threads: tuple[ThreadRow, ...] = ()
    losses: tuple[float, float] | None = None
    """Mean loss of the first and of the last tenth of the trained steps."""
    notes: tuple[str, ...] = ()
    """What was not applied, what was degraded, what to know when reading the numbers."""
    paths: dict[str, str] = field(default_factory=dict)
