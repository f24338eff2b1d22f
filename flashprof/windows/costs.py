"""What each phase costs a token in one window: by role, or lane by lane. Pure, numpy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from flashprof.contracts.events import EventLog, SpanKind
from flashprof.contracts.localisation import BETWEEN
from flashprof.contracts.results import Window, WindowKind
from flashprof.windows.lanes import MAIN_THREAD, LaneTimes, lane_times
from flashprof.windows.slices import LogSlices

PhaseKey = tuple[str, str, str]
"""Role, phase, kind."""
ORDER_SLACK_NS = 5_000_000_000
"""
Spans are written by lane, step by step, and those of a device once it has passed them: this late at most, unless it
hangs or a step takes longer.
"""
RECENT_STEPS = 64
RoleLane = tuple[str, str]
"""Role and thread, as `role_threads` calls it: the lanes of that name in all ranks of the role."""
DEVICE_PREFIX = f"{MAIN_THREAD}:cuda"
OwnPhase = tuple[str, str]
"""Phase and kind, within a lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCosts:
    """What a token costs in one window, seen from every lane: each lane's phases and gaps add up to the wall time."""

    launch: str
    """Run id of the launch it lies in."""
    wall_ns_per_token: float
    """Length of the window over tokens of all ranks."""
    trains: frozenset[str]
    """Roles whose steps make tok/s."""
    lanes: Mapping[RoleLane, Mapping[OwnPhase, float]]
    """Own ns a token, mean over the ranks of the role; phases that did not run are absent."""


class PhaseCosts:
    """The phases of one launch, by window."""

    def __init__(self, logs: Sequence[EventLog]) -> None:
        self._slices = LogSlices(logs)
        self._names = [role_threads(log) for log in logs]

    def between(self, start_ns: int, end_ns: int, num_tokens: int) -> dict[PhaseKey, float]:
        """
        Own time in ns a token, summed over the ranks and threads of a role.

        What a rank's device records of a phase stands for what its host does: a span of both would count twice, and
        with it the host's waiting for the device (60 µs a token of a `clip` that the device does in 0.5).

        Args:
            start_ns: Where the window begins.
            end_ns: Where it ends.
            num_tokens: Of all ranks, above 0.

        Returns:
            Phases that did not run are absent.
        """
        costs: defaultdict[PhaseKey, float] = defaultdict(float)
        for process in self._processes(start_ns, end_ns):
            on_device = {phase for times in process.values() if _is_device(times) for phase in times.phases}
            for times in process.values():
                for (phase, kind), own_ns in zip(times.phases, times.own_ns, strict=True):
                    if times.lane.thread != MAIN_THREAD or (phase, kind) not in on_device:
                        costs[times.lane.role, phase, str(kind)] += float(own_ns) / num_tokens
        return dict(costs)

    def lanes_between(self, start_ns: int, end_ns: int, num_tokens: int, *, launch: str) -> LaneCosts:
        """
        The same, lane by lane: main threads and device streams.

        Args:
            start_ns: Where the window begins.
            end_ns: Where it ends.
            num_tokens: Of all ranks, above 0.
            launch: Run id, passed on.
        """
        num_ranks = Counter(log.header.role for log in self._slices.logs)
        lanes: defaultdict[RoleLane, defaultdict[OwnPhase, float]] = defaultdict(lambda: defaultdict(float))
        for process in self._processes(start_ns, end_ns):
            for thread, times in process.items():
                role = times.lane.role
                for (phase, kind), own_ns in zip(times.phases, times.own_ns, strict=True):
                    lanes[role, thread][phase, str(kind)] += float(own_ns) / num_tokens / num_ranks[role]
        return LaneCosts(
            launch=launch,
            wall_ns_per_token=(end_ns - start_ns) / num_tokens,
            trains=frozenset(log.header.role for log in self._slices.logs if log.header.trains),
            lanes={lane: dict(phases) for lane, phases in lanes.items() if is_followed(lane[1])},
        )

    def _processes(self, start_ns: int, end_ns: int) -> Iterator[dict[str, LaneTimes]]:
        """Of each process, the own times of its lanes, by what the role calls them."""
        stretch = Window(
            label="",
            kind=WindowKind.MEASURE,
            start_ns=start_ns,
            end_ns=end_ns,
            num_steps=0,
            num_tokens=0,
            num_supervised_tokens=0,
            num_padding_tokens=0,
        )
        for log, names in zip(self._slices.within(start_ns, end_ns), self._names, strict=True):
            # Cycles are for those who count steps.
            yield {names[times.lane.thread]: times for times in lane_times(replace(log, steps=[]), [stretch])}


def training_phases(logs: Sequence[EventLog], start_ns: int, end_ns: int, num_tokens: int) -> dict[str, float]:
    """
    What a token costs in one window, seen from the ranks that train: their device stream, or the main thread.

    Args:
        logs: All processes, until the end of the window or later.
        start_ns: Where the window begins.
        end_ns: Where it ends.
        num_tokens: Of all ranks, above 0.

    Returns:
        Own ns a token of each phase, with the gaps as `BETWEEN`: they add up to the wall time. Empty for a subject
        without spans.
    """
    phases = _training_lane(logs, start_ns, end_ns, num_tokens)
    if not phases:
        return {}
    costs: defaultdict[str, float] = defaultdict(float)
    for (phase, _), own_ns in phases.items():
        costs[phase] += own_ns
    return {**costs, BETWEEN: (end_ns - start_ns) / num_tokens - sum(costs.values())}


def training_work(logs: Sequence[EventLog], start_ns: int, end_ns: int, num_tokens: int) -> dict[str, float]:
    """As `training_phases`, of phases that work: without waits and gaps."""
    phases = _training_lane(logs, start_ns, end_ns, num_tokens)
    return {phase: own_ns for (phase, kind), own_ns in phases.items() if kind == SpanKind.WORK}


def _training_lane(logs: Sequence[EventLog], start_ns: int, end_ns: int, num_tokens: int) -> Mapping[OwnPhase, float]:
    recent = [_since(log, start_ns) for log in logs if log.header.trains]
    lanes = PhaseCosts(recent).lanes_between(start_ns, end_ns, num_tokens, launch="").lanes
    # A device stream sorts behind the thread that feeds it.
    return lanes[max(lanes)] if lanes else {}


def _since(log: EventLog, start_ns: int) -> EventLog:
    """The last spans alone: looking at all of them after each window would take as long as the launch is old."""
    latest = log.steps[-RECENT_STEPS:]
    longest_ns = max((step.end_ns - before.end_ns for before, step in pairwise(latest)), default=0)
    from_ns = start_ns - max(ORDER_SLACK_NS, longest_ns)
    spans = list(takewhile(lambda span: span.end_ns > from_ns, reversed(log.spans)))
    return EventLog(header=log.header, spans=spans[::-1])


def role_threads(log: EventLog) -> dict[str, str]:
    """
    What all ranks of a role call the lanes of one process.

    Device lanes are named by the device's index, which no two ranks of a host share (`main:cuda5`): the only device of
    a process is `main:cuda` for its role, one of several `main:cuda#0`, `main:cuda#1`, … in the order of indices.
    """
    threads = {span.thread for span in log.spans}
    devices = sorted((t for t in threads if t.startswith(DEVICE_PREFIX)), key=lambda thread: (len(thread), thread))
    if len(devices) == 1:
        return dict.fromkeys(devices, DEVICE_PREFIX) | {thread: thread for thread in threads - set(devices)}
    places = {thread: f"{DEVICE_PREFIX}#{place}" for place, thread in enumerate(devices)}
    return {thread: places.get(thread, thread) for thread in threads}


def is_followed(thread: str) -> bool:
    """Whether a lane may be what its role waits for: its main thread, or a device stream that this one feeds."""
    return thread == MAIN_THREAD or thread.startswith(DEVICE_PREFIX)


def _is_device(times: LaneTimes) -> bool:
    return times.lane.thread.startswith(DEVICE_PREFIX)
