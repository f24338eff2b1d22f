"""How long steps were, which were much longer than others, and which rank was slower than others. Pure, numpy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from flashprof.contracts.events import EventLog, Mark, SpanKind
from flashprof.contracts.results import Window
from flashprof.windows.costs import is_followed, role_threads
from flashprof.windows.lanes import MAIN_THREAD, LaneTimes, lane_times

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

    Floats = NDArray[float64]
    Times = NDArray[int64]

NUM_LATE_STEPS = 9
"""The trainer looks at a calm allocator one step in eight, so a mark may stand up to eight steps behind its retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Work in one cycle of a rank, of its main thread or of its device where that works longer; in ns."""

    num_steps: int
    """Of all ranks."""
    mean_ns: float
    p50_ns: float
    p95_ns: float
    slowest_share: float
    """Work of the rank that works longest over the mean of the ranks; 1 for one rank."""
    spread_ns: float
    """By which a step's slowest rank works longer than the mean of the ranks: what the ranks wait for it on average."""


@dataclass(frozen=True, kw_only=True)
class ReadLanes:
    """What one pass over the spans gives."""

    held: Sequence[EventLog]
    """The logs, with only those spans that lie in a window at least in part."""
    phases: Mapping[tuple[str, str, str], float]
    """Role, thread, phase → own ns in the windows, mean over the ranks; main threads and device streams."""
    steps: Mapping[str, StepTimes]
    """By role."""
    excess_ns: Mapping[tuple[str, int], float]
    """Role and rank → by which steps with allocator retries were longer than the median step, together."""


def read_lanes(logs: Sequence[EventLog], windows: Sequence[Window], inside: Callable[[int], bool]) -> ReadLanes:
    """
    Look once at every lane.

    Args:
        logs: All processes of one host.
        windows: None overlapping another.
        inside: Whether a moment lies in one of them.
    """
    held = [_held(log, windows) for log in logs]
    num_ranks = Counter(log.header.role for log in logs)
    phases: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    ranks: defaultdict[str, list[list[LaneTimes]]] = defaultdict(list)
    excess_ns: defaultdict[tuple[str, int], float] = defaultdict(float)
    for log in held:
        names, followed = role_threads(log), list[LaneTimes]()
        ranks[log.header.role].append(followed)
        for times in lane_times(log, windows) if windows else ():
            role, thread = times.lane.role, times.lane.thread
            if is_followed(thread):
                for (phase, _), own_ns in zip(times.phases, times.own_ns, strict=True):
                    phases[role, names.get(thread, thread), phase] += float(own_ns) / num_ranks[role]
                followed.append(times)
            if thread == MAIN_THREAD:
                excess_ns[role, times.lane.rank] += _excess_ns(log.marks, inside, times)
    steps = {role: found for role, held_of in ranks.items() if (found := _step_times(held_of)) is not None}
    return ReadLanes(held=held, phases=dict(phases), steps=steps, excess_ns=dict(excess_ns))


def pool_step_times(launches: Iterable[Mapping[str, StepTimes]]) -> dict[str, StepTimes]:
    """By role; means by the number of steps, percentiles too: what they are of is gone."""
    held: defaultdict[str, list[StepTimes]] = defaultdict(list)
    for launch in launches:
        for role, times in launch.items():
            held[role].append(times)
    return {role: _pool(several) for role, several in held.items()}


def _pool(several: Sequence[StepTimes]) -> StepTimes:
    def mean(value: Callable[[StepTimes], float]) -> float:
        return sum(value(times) * times.num_steps for times in several) / sum(times.num_steps for times in several)

    return StepTimes(
        num_steps=sum(times.num_steps for times in several),
        mean_ns=mean(lambda times: times.mean_ns),
        p50_ns=mean(lambda times: times.p50_ns),
        p95_ns=mean(lambda times: times.p95_ns),
        slowest_share=mean(lambda times: times.slowest_share),
        spread_ns=mean(lambda times: times.spread_ns),
    )


def _held(log: EventLog, windows: Sequence[Window]) -> EventLog:
    """Flattening 100,000 spans takes 0.1 s, leaving them out 0.02 s: an arm may have a tenth of a launch's time."""
    import numpy as np

    edges_ns = np.array(sorted((window.start_ns, window.end_ns) for window in windows), dtype=np.int64).reshape(-1, 2)
    starts_ns = np.fromiter((span.start_ns for span in log.spans), dtype=np.int64, count=len(log.spans))
    ends_ns = np.fromiter((span.end_ns for span in log.spans), dtype=np.int64, count=len(log.spans))
    # One more window that no span reaches, so that the place after the last one can be looked up.
    first_starts_ns = np.append(edges_ns[:, 0], np.iinfo(np.int64).max)
    first = np.searchsorted(edges_ns[:, 1], starts_ns, side="right")
    inside = np.flatnonzero(first_starts_ns[first] < ends_ns)
    return EventLog(header=log.header, spans=[log.spans[index] for index in inside], steps=log.steps, marks=log.marks)


def _work_ns(times: LaneTimes) -> Floats:
    """Own time of all work in each complete cycle, (num_cycles,)."""
    is_work = [kind is SpanKind.WORK for _, kind in times.phases]
    work_ns: Floats = times.cycle_own_ns[is_work].sum(axis=0).astype(float)
    return work_ns


def _step_times(ranks: Iterable[Sequence[LaneTimes]]) -> StepTimes | None:
    """From each rank's lanes: the lane that works longer tells, be it the host thread or a device stream."""
    import numpy as np

    working = [(lanes[0].cycles.steps, np.max([*map(_work_ns, lanes)], axis=0)) for lanes in ranks if lanes]
    working = [(steps, work_ns) for steps, work_ns in working if work_ns.size]
    if not working:
        return None
    every = np.concatenate([work_ns for _, work_ns in working])
    p50_ns, p95_ns = np.percentile(every, (50, 95))
    means_ns = [float(work_ns.mean()) for _, work_ns in working]
    return StepTimes(
        num_steps=every.size,
        mean_ns=float(every.mean()),
        p50_ns=float(p50_ns),
        p95_ns=float(p95_ns),
        slowest_share=max(means_ns) / (sum(means_ns) / len(means_ns)) if any(means_ns) else 1.0,
        spread_ns=_spread_ns(working),
    )


def _spread_ns(working: Sequence[tuple[Times, Floats]]) -> float:
    """Of steps that all ranks took, by number: at a window's edge one rank may have a step more than another."""
    import numpy as np

    # The first of each number, for one that a trainer counts twice.
    numbers, places = zip(*(np.unique(steps, return_index=True) for steps, _ in working), strict=True)
    common = reduce(np.intersect1d, numbers)
    if not common.size:
        return 0.0
    together = np.stack(
        [
            work_ns[place[np.searchsorted(number, common)]]
            for (_, work_ns), number, place in zip(working, numbers, places, strict=True)
        ]
    )
    return float((together.max(axis=0) - together.mean(axis=0)).mean())


def _excess_ns(marks: Sequence[Mark], inside: Callable[[int], bool], times: LaneTimes) -> float:
    """Of the longest step before each mark with retries; a step counts once."""
    import numpy as np

    lengths_ns = times.cycles.ends_ns - times.cycles.starts_ns
    retried = [
        mark.at_ns for mark in marks if mark.name == "allocator" and mark.detail.get("retries") and inside(mark.at_ns)
    ]
    chosen = set()
    for at_ns in retried:
        end = int(np.searchsorted(times.cycles.ends_ns, at_ns, side="right"))
        begin = max(0, end - NUM_LATE_STEPS)
        if end > begin:
            chosen.add(begin + int(lengths_ns[begin:end].argmax()))
    typical_ns = float(np.median(lengths_ns)) if lengths_ns.size else 0.0
    return float(sum(max(0.0, float(lengths_ns[index]) - typical_ns) for index in chosen))
