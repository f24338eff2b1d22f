"""What is kept of every run and gate, and what a series of them shows. Frozen, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from flashprof.contracts.cell import Cell
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Interval

FREE_SECTION = "source"
"""What may differ between the launches of one series: it is what a history is about."""
OWN_VERSION = "versions.flashprof"
"""FlashProf's own version comes with each commit of this repository, and measures the same."""


def history_cell(facts: Mapping[str, str]) -> Cell:
    """The cell by which launches of one series are found: all facts but the source's, and FlashProf's own version."""
    return Cell({name: text for name, text in facts.items() if not name.startswith(OWN_VERSION)}).without(FREE_SECTION)


class LaunchKind(StrEnum):
    """Why a launch was made; launches of different kinds make different series."""

    RUN = "run"
    GATE_BASE = "gate-base"
    GATE_HEAD = "gate-head"
    """Of a change that may never land: kept, and no point of a trend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLaunch:
    """One launch, as the store keeps it. Known again by host, kind, gate, run id, cell and when it began."""

    run_id: str
    kind: LaunchKind = LaunchKind.RUN
    gate: str = ""
    """Name of the gate's folder; empty for a run of its own."""
    started: str
    """ISO 8601, UTC."""
    host: str = ""
    folder: str = ""
    """Where it was written; it may be gone."""
    cell: str
    """Hash of `history_cell`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Of that cell: without the source."""
    title: str = ""
    """What a person calls the cell."""
    commit: str = ""
    branch: str = ""
    toggles: str = ""
    outcome: Outcome
    log_tok_per_s: float | None = None
    """Natural log of tokens a second: mean of the measure windows. None where there is none, as for a crash."""
    error: float | None = None
    """Standard error of it from this launch alone."""
    num_windows: int = 0
    """Measure windows."""
    startup_s: float | None = None
    phases_ns_per_token: Mapping[str, float] = field(default_factory=dict)
    """`drafter mask` → own time in ns a token in the measure windows, summed over ranks and threads."""

    @property
    def is_point(self) -> bool:
        """Whether it has a place in a series."""
        return self.outcome.is_measurement and self.log_tok_per_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGate:
    """One verdict of a gate, as the store keeps it."""

    gate: str
    at: str
    """When it ended, ISO 8601, UTC."""
    mode: str
    base: str
    head: str
    base_commit: str = ""
    head_commit: str = ""
    cell: str = ""
    """Hash of `history_cell`; empty where the caller does not know it."""
    verdict: str
    reason: str
    is_failed: bool = False
    change: Interval | None = None
    """Of tok/s, as `MetricVerdict.change`."""
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Somebody's word that a level is as it should be."""

    cell: str
    kind: LaunchKind
    run_id: str
    """The first run of the level."""
    started: str
    """When that run began."""
    why: str
    who: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A level that has a name."""

    name: str
    cell: str
    kind: LaunchKind
    run_ids: tuple[str, ...]
    """The launches that make the level, the oldest first."""
    since: str
    """When the first of them began."""
    who: str
    at: str


class ChangeStatus(StrEnum):
    """What has become of a change."""

    OPEN = "open"
    """A loss that is neither mended nor accepted: what to look at."""
    PAST = "past"
    """A loss that was mended since, or that a level came after which was accepted."""
    ACCEPTED = "accepted"
    FOLLOWED = "the baseline follows"
    """A gain that enough runs have confirmed."""
    MENDS = "mends"
    """A gain after a loss, which it mends or a part of it."""
    HINDSIGHT = "in hindsight"
    """Seen by looking back at the whole series, without having been told when its runs came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Runs of one tok/s."""

    run_ids: tuple[str, ...]
    """The oldest first."""
    since: str
    """When the first of them began."""
    tok_per_s: Interval
    """Between runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Where another level begins."""

    index: int
    """Of its first run, in the series."""
    run_id: str
    started: str
    effect: Interval
    """Relative change of tok/s from the level before to the level after."""
    seen: str
    """Run that showed it; empty for one that is seen in hindsight, or that a user set."""
    commits: tuple[str, str]
    """The last of the level before, and the first of the level after: the range to bisect. Empty where unknown."""
    status: ChangeStatus
    acknowledgement: Acknowledgement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Launches of one cell and kind over time, and what they show."""

    cell: str
    kind: LaunchKind
    title: str
    launches: tuple[HistoryLaunch, ...]
    """By time, measurements alone. Cut off at `--since`; levels and changes were found in all."""
    changes: tuple[Change, ...] = ()
    """By place."""
    baseline: Level
    """What the newest launches are held against."""
    level: Level
    """Today's; the baseline itself where nothing is lost."""
    is_lost: bool = False
    """Today's level lies below the baseline, and nobody has accepted it."""
    standing: Interval | None = None
    """Today's level against the baseline, where something is lost."""
    names: tuple[Baseline, ...] = ()
    """Baselines of this series that have a name, the newest of each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that `flashprof history` prints, and all that `--json` holds."""

    path: str
    """Of the store."""
    series: tuple[Series, ...] = ()
    """Those with an open loss first, then the longest."""
    gates: tuple[HistoryGate, ...] = ()
    """The newest first."""
    num_launches: int = 0
    """In the store, failed ones and heads of gates among them."""
    notes: tuple[str, ...] = ()
