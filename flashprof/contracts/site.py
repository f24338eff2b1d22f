"""What `flashprof report` draws: all that a folder of reports holds. Frozen, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flashprof.contracts.comparison import StudyResult
from flashprof.contracts.localisation import Localisation
from flashprof.contracts.profiles import ProfiledWindow
from flashprof.contracts.results import Interval, RunSummary
from flashprof.contracts.search import SearchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLane:
    """A stretch of one lane, as in a trace viewer."""

    name: str
    """`drafter 0`, `drafter 0/main:cuda0`."""
    phases: tuple[str, ...]
    """Names that `pieces` refer to."""
    kinds: tuple[str, ...]
    """`work` or `wait`, one a phase."""
    pieces: tuple[tuple[int, int, int], ...]
    """Start and end in µs after the timeline's start, and the phase's index: own times, none overlaps another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A gauge over time."""

    name: str
    """`queue of drafter 0`."""
    at_s: tuple[float, ...]
    """Seconds after the first event of the run."""
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Some steps from the middle of a launch, and its gauges; made when the run is written, so that a page is quick."""

    start_s: float
    """Of the lanes, seconds after the first event of the run."""
    length_s: float
    lanes: tuple[TimelineLane, ...]
    series: tuple[Series, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run folder."""

    folder: str
    """Relative to the page, for links: `<run-id>/`."""
    summary: RunSummary
    facts: Mapping[str, str] = field(default_factory=dict)
    """The cell's facts: `source.commit`, `machine.host`, …"""
    started: str = ""
    """ISO 8601; empty where unknown."""
    disturbances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of a window → why it is left out."""
    timeline: Timeline | None = None
    profiles: tuple[ProfiledWindow, ...] = ()
    is_part_of: str = ""
    """Name of the comparison or the bisect whose launch it is; empty for a run of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareView:
    """One comparison."""

    folder: str
    result: StudyResult
    localisation: Localisation | None = None
    base_profiles: tuple[ProfiledWindow, ...] = ()
    candidate_profiles: tuple[ProfiledWindow, ...] = ()
    started: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectView:
    """One bisect."""

    folder: str
    result: SearchResult
    localisation: Localisation | None = None
    base_profiles: tuple[ProfiledWindow, ...] = ()
    candidate_profiles: tuple[ProfiledWindow, ...] = ()
    started: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """One run in a trend."""

    run_id: str
    started: str
    tok_per_s: Interval
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Runs of one cell over time, whatever the commit."""

    cell: str
    """What they have in common, for a person."""
    points: tuple[TrendPoint, ...]
    """By time."""
    change_points: tuple[int, ...] = ()
    """Indices of points at which another level begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenFolder:
    """A folder that could not be read; it does not spoil the rest."""

    folder: str
    line: str
    """What is wrong, and the next command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All that a folder of reports holds."""

    title: str
    made: str
    """ISO 8601."""
    version: str
    """Of FlashProf."""
    runs: tuple[RunView, ...] = ()
    """The newest first."""
    compares: tuple[CompareView, ...] = ()
    bisects: tuple[BisectView, ...] = ()
    trends: tuple[Trend, ...] = ()
    broken: tuple[BrokenFolder, ...] = ()
    notes: tuple[str, ...] = ()
