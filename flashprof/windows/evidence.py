"""
What the launches of one arm say besides phases: threads, machine, gauges, marks, steps, ranks and facts. Pure.

Sums and means are kept, so that launches pool without their events: `gather` reads one launch, `pool` adds launches up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from flashprof.contracts.events import EventLog
from flashprof.contracts.machine import MachineReading, MachineUse
from flashprof.contracts.profiles import ProfiledWindow
from flashprof.contracts.results import Lane, LaneRow, ThreadRow, Window
from flashprof.windows.evidence_items import (
    WARM_MARKS,
    AllocatorUse,
    Compilation,
    GaugeAt,
    GaugeUse,
    GpuUse,
    Inside,
    pool_allocators,
    pool_gauges,
    pool_gpus,
    read_allocators,
    read_compilations,
    read_gauges,
    read_gil_shares,
    read_gpus,
    weighted,
)
from flashprof.windows.machine import machine_use
from flashprof.windows.phases import lane_rows
from flashprof.windows.step_times import StepTimes, pool_step_times, read_lanes

PhaseAt = tuple[str, str, str]
"""Role, thread, phase."""

TELLING_MARKS = WARM_MARKS | {"allocator", "toggles"}
"""A launch with one of these is by a trainer that marks compilations: windows without a mark then had none."""


@dataclass(frozen=True, kw_only=True)
class ArmEvidence:
    """One launch, or the launches of one arm; windows are those that count."""

    num_launches: int = 0
    length_ns: int = 0
    num_tokens: int = 0
    """Of all ranks."""
    num_steps: int = 0
    trains: frozenset[str] = frozenset()
    """Roles whose steps make tok/s."""
    num_ranks: Mapping[str, int] = field(default_factory=dict)
    threads: tuple[ThreadRow, ...] = ()
    """Of the profile windows; a process's threads follow each other, the busiest first."""
    uses: tuple[MachineUse, ...] = ()
    """One a window that the readings span."""
    gpus: tuple[GpuUse, ...] = ()
    gauges: Mapping[GaugeAt, GaugeUse] = field(default_factory=dict)
    compilations: tuple[Compilation, ...] = ()
    tells_compilations: bool = False
    """Whether the subject marks compilations."""
    allocators: Mapping[str, AllocatorUse] = field(default_factory=dict)
    """By role; roles without a device's allocator are absent."""
    lanes: tuple[LaneRow, ...] = ()
    phases: Mapping[PhaseAt, float] = field(default_factory=dict)
    """Own ns in the windows, mean over the role's ranks."""
    steps: Mapping[str, StepTimes] = field(default_factory=dict)
    """By role."""
    gil_shares: Mapping[str, float] = field(default_factory=dict)
    """Role → share of the time in which another thread than the main one held the GIL; only where it was sampled."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Of the cell."""

    @property
    def ns_per_token(self) -> float:
        """Wall time over tokens of all ranks; 0 without tokens."""
        return self.per_token(self.length_ns)

    def per_token(self, amount_ns: float) -> float:
        """An amount of all windows, by token; 0 without tokens."""
        return amount_ns / self.num_tokens if self.num_tokens else 0.0

    def per_1000_steps(self, amount: float) -> float:
        """An amount of all windows, by 1,000 training steps; 0 without steps."""
        return 1000 * amount / self.num_steps if self.num_steps else 0.0


def gather(
    logs: Sequence[EventLog],
    windows: Sequence[Window],
    *,
    threads: Sequence[ThreadRow] = (),
    machine: Sequence[MachineReading] = (),
    facts: Mapping[str, str] | None = None,
    profiles: Sequence[ProfiledWindow] = (),
) -> ArmEvidence:
    """
    Read one launch.

    Args:
        logs: All processes of one host.
        windows: Those of one arm that count, none overlapping another.
        threads: Pooled over the profile windows.
        machine: The readings of the whole launch, in the order of time.
        facts: Of its cell.
        profiles: Stack samples, of which the GIL view is looked at.
    """
    inside = _inside(windows)
    read = read_lanes(logs, windows, inside)
    uses = (machine_use(machine, window.start_ns, window.end_ns) for window in windows)
    return ArmEvidence(
        num_launches=1,
        length_ns=sum(window.end_ns - window.start_ns for window in windows),
        num_tokens=sum(window.num_tokens for window in windows),
        num_steps=sum(window.num_steps for window in windows),
        trains=frozenset(log.header.role for log in logs if log.header.trains),
        num_ranks=Counter(log.header.role for log in logs),
        threads=tuple(threads),
        uses=tuple(use for use in uses if use is not None),
        gpus=read_gpus(reading for reading in machine if inside(reading.at_ns)),
        gauges=read_gauges(logs, inside),
        compilations=tuple(read_compilations(logs, inside)),
        tells_compilations=any(mark.name in TELLING_MARKS for log in logs for mark in log.marks),
        allocators=read_allocators(logs, inside, read.excess_ns),
        lanes=lane_rows(read.held, windows),
        phases=read.phases,
        steps=read.steps,
        gil_shares=read_gil_shares(profiles),
        facts=dict(facts or {}),
    )


def pool(launches: Sequence[ArmEvidence]) -> ArmEvidence:
    """The launches of one arm as one: sums, and means weighted by what they are means of."""
    return ArmEvidence(
        num_launches=sum(launch.num_launches for launch in launches),
        length_ns=sum(launch.length_ns for launch in launches),
        num_tokens=sum(launch.num_tokens for launch in launches),
        num_steps=sum(launch.num_steps for launch in launches),
        trains=frozenset(role for launch in launches for role in launch.trains),
        num_ranks=_most(launch.num_ranks for launch in launches),
        threads=_pool_threads(launch.threads for launch in launches),
        uses=tuple(use for launch in launches for use in launch.uses),
        gpus=pool_gpus(launch.gpus for launch in launches),
        gauges=pool_gauges(launch.gauges for launch in launches),
        compilations=tuple(item for launch in launches for item in launch.compilations),
        tells_compilations=bool(launches) and all(launch.tells_compilations for launch in launches),
        allocators=pool_allocators(launch.allocators for launch in launches),
        lanes=_pool_lanes(launch.lanes for launch in launches),
        phases=_sums(launch.phases for launch in launches),
        steps=pool_step_times(launch.steps for launch in launches),
        gil_shares=_pool_gil(launches),
        facts=_pool_facts(launch.facts for launch in launches),
    )


def _inside(windows: Sequence[Window]) -> Inside:
    """By bisection: a hot arm has 64 windows, and a launch 100,000 gauges."""
    ordered = sorted(windows, key=lambda window: window.end_ns)
    ends_ns = [window.end_ns for window in ordered]

    def is_inside(at_ns: int) -> bool:
        place = bisect_left(ends_ns, at_ns)
        return place < len(ordered) and ordered[place].start_ns < at_ns

    return is_inside


def _most(launches: Iterable[Mapping[str, int]]) -> dict[str, int]:
    most: dict[str, int] = {}
    for launch in launches:
        for role, count in launch.items():
            most[role] = max(count, most.get(role, 0))
    return most


def _pool_threads(launches: Iterable[Sequence[ThreadRow]]) -> tuple[ThreadRow, ...]:
    """Threads of one name are told apart by how busy they are: the busiest of one launch is that of another."""
    held: defaultdict[tuple[str, int, str, int], list[ThreadRow]] = defaultdict(list)
    for rows in launches:
        seen: Counter[tuple[str, int, str]] = Counter()
        for row in rows:
            name = (row.role, row.rank, row.thread)
            held[*name, seen[name]].append(row)
            seen[name] += 1
    pooled = [_mean_thread(rows) for rows in held.values()]
    return tuple(sorted(pooled, key=lambda row: (row.role, row.rank, -(row.usr_pct + row.system_pct), row.thread)))


def _mean_thread(rows: Sequence[ThreadRow]) -> ThreadRow:
    return replace(
        rows[0],
        usr_pct=fmean(row.usr_pct for row in rows),
        system_pct=fmean(row.system_pct for row in rows),
        wait_pct=fmean(row.wait_pct for row in rows),
        voluntary_switches_per_s=fmean(row.voluntary_switches_per_s for row in rows),
        involuntary_switches_per_s=fmean(row.involuntary_switches_per_s for row in rows),
    )


def _pool_lanes(launches: Iterable[Sequence[LaneRow]]) -> tuple[LaneRow, ...]:
    held: defaultdict[Lane, list[LaneRow]] = defaultdict(list)
    for rows in launches:
        for row in rows:
            # Launches may have run on several hosts: a lane is that of its role and rank.
            held[replace(row.lane, host="")].append(row)
    pooled = [_pool_lane(rows) for rows in held.values()]
    limiting = _limiting(held, pooled)
    return tuple(replace(row, is_limiting=row is limiting) for row in pooled)


def _limiting(held: Mapping[Lane, Sequence[LaneRow]], pooled: Sequence[LaneRow]) -> LaneRow | None:
    """
    The slowest lane of the role that limits most launches; None where none limits more than half.

    Which rank of a role is the slowest, a launch draws: three drafters that limit all launches limit none of them by
    the same lane.
    """
    num_launches = max(map(len, held.values()), default=0)
    counts = Counter(lane.role for lane, rows in held.items() for row in rows if row.is_limiting)
    role = next((role for role, count in counts.items() if 2 * count > num_launches), None)
    of_role = [row for row in pooled if row.lane.role == role and row.capacity_tok_per_s]
    return min(of_role, key=lambda row: row.capacity_tok_per_s, default=None)


def _pool_lane(rows: Sequence[LaneRow]) -> LaneRow:
    num_tokens = sum(row.num_tokens for row in rows)

    def rate(value: Callable[[LaneRow], float]) -> float:
        """Tokens over the summed time that they took at the launches' rates."""
        length_s = sum(row.num_tokens / value(row) for row in rows if value(row))
        return num_tokens / length_s if length_s else 0.0

    return LaneRow(
        lane=rows[0].lane,
        wall_ns=sum(row.wall_ns for row in rows),
        work_ns=sum(row.work_ns for row in rows),
        wait_ns=sum(row.wait_ns for row in rows),
        num_steps=sum(row.num_steps for row in rows),
        num_tokens=num_tokens,
        tok_per_s=rate(lambda row: row.tok_per_s),
        capacity_tok_per_s=rate(lambda row: row.capacity_tok_per_s),
        is_limiting=False,
    )


def _sums(launches: Iterable[Mapping[PhaseAt, float]]) -> dict[PhaseAt, float]:
    sums: defaultdict[PhaseAt, float] = defaultdict(float)
    for launch in launches:
        for key, amount in launch.items():
            sums[key] += amount
    return dict(sums)


def _pool_gil(launches: Sequence[ArmEvidence]) -> dict[str, float]:
    roles = dict.fromkeys(role for launch in launches for role in launch.gil_shares)
    return {
        role: weighted([(of.gil_shares[role], of.length_ns) for of in launches if role in of.gil_shares])
        for role in roles
    }


def _pool_facts(launches: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """A fact that is not the same in all launches says each of its values."""
    values: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for facts in launches:
        for name, text in facts.items():
            values[name][text] = None
    return {name: " or ".join(texts) for name, texts in values.items()}
