"""What `flashprof gate` decides, and by what: whether a change may land. Frozen, standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from flashprof.contracts.comparison import Comparison, StudyResult, Verdict
from flashprof.contracts.experiment import SubjectSpec, WindowPlan
from flashprof.contracts.localisation import Localisation
from flashprof.contracts.results import Interval

TOK_PER_S = "tok/s"
EQUAL_PACE = "tok/s at equal pace"
"""
What is left of the change of tok/s when a launch's own pace is taken out: `flashprof.stats.pace`. It may fail a gate,
and need not pass.
"""
START_UP = "start-up"
MEMORY = "memory"
PHASE = "phase:"
"""`phase:drafter mask`: time a token of one phase."""


class GateMode(StrEnum):
    """What head is compared with."""

    INTERLEAVED = "interleaved"
    """Base and head launched in turn, on this machine, in this job."""
    STORED = "stored"
    """Launches of a baseline that was measured earlier, of the same cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How much worse a metric may become."""

    metric: str
    """`tok/s`, `start-up`, `memory`, or `phase:ROLE NAME`."""
    max_regression: float
    """0.03: 3 % fewer tok/s, or 3 % more seconds, bytes, time a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """One gate, as the command line gives it to `flashprof.app.gate`."""

    thresholds: tuple[Threshold, ...]
    """That of tok/s first."""
    base_ref: str = ""
    """Revision that is measured in this job; empty where *baseline* is asked for."""
    head_ref: str = ""
    """Empty: the tree as it lies there."""
    baseline: str = ""
    """Name of a stored baseline."""
    repo: Path = Path()
    setup: str = ""
    """As in `BisectRequest`."""
    command: tuple[str, ...] = ()
    """What to start in each tree; empty for our pipeline, or what flashprof.toml declares."""
    subject: SubjectSpec
    windows: WindowPlan
    alpha: float = 0.01
    """Largest share of gates of a harmless change that may fail, ever."""
    budget_s: float = 1200.0
    explain: bool = True
    bisect: bool = False
    """Whether to go on to the commit once a regression is shown."""
    bisect_budget_s: float | None = None
    """Of that search; None for what is left of *budget_s*."""
    allow: tuple[str, ...] = ()
    gpu_sets: tuple[tuple[int, ...], ...] = ()
    """As in `CompareRequest`."""
    subject_file: str = ""
    """As in `BisectRequest`."""
    fresh: bool = False
    """Put aside what an earlier call has measured."""
    reports: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricVerdict:
    """One metric against its threshold."""

    threshold: Threshold
    unit: str
    base: float
    """Level in base, in the metric's unit."""
    head: float
    change: Interval | None
    """Relative change from base to head at 95 %: −0.05 is 5 % less. None where it was not measured."""
    verdict: Verdict
    """Regression: shown to be worse, by an estimate above the threshold. No regression: shown to be worse by less."""
    reason: str
    comparison: Comparison | None = None
    """What it was read from; tok/s and start-up have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """All that `flashprof gate` prints, and all that `--json` holds."""

    gate: str
    """Name of its folder."""
    mode: GateMode
    base: str
    """For a person: short commit and subject, or the baseline's name and date."""
    head: str
    base_commit: str = ""
    head_commit: str = ""
    cell: dict[str, str] = field(default_factory=dict)
    verdict: Verdict
    """The worst of all metrics."""
    reason: str
    metrics: tuple[MetricVerdict, ...] = ()
    study: StudyResult | None = None
    """The blocks that it was read from."""
    localisation: Localisation | None = None
    culprit: str = ""
    """The commit that `--bisect` found and proved; empty else."""
    spent_s: float = 0.0
    is_failed: bool = False
    """The machinery failed: never a regression."""
    is_interrupted: bool = False
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
