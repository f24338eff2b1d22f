"""
What is kept of a launch for its timeline: some steps from its middle lane by lane, and its gauges. Pure, numpy.

Times count from the first event of the run, which is where its first window begins.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashprof.contracts.events import EventLog, Span
from flashprof.contracts.results import Lane, Window, WindowKind
from flashprof.contracts.site import Series, Timeline, TimelineLane
from flashprof.windows.lanes import MAIN_THREAD, flatten
from flashprof.windows.phases import DATA_FLOW

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Times = NDArray[int64]

NUM_STEPS = 8
MAX_PIECES = 4000
"""15 a step and lane are usual: 8 steps of 30 lanes."""
MAX_LANES = 64
MAX_SERIES = 32
MAX_POINTS = 400
MAX_NAME = 120
"""Characters of a name."""
STEP_SERIES = "step of "
"""`step of drafter 0`: no gauge, but when each step of the lanes' stretch ended, and its number."""
KEY_GAUGES = ("queue", "memory", "loss")
"""Names that begin so are kept first."""


@dataclass(frozen=True, slots=True)
class _LanePieces:
    """Own times of one lane in ns, cut to a stretch."""

    name: str
    spans: Sequence[Span]
    starts_ns: Times
    ends_ns: Times
    owners: Times


def keep_timeline(logs: Sequence[EventLog], windows: Sequence[Window]) -> Timeline:
    """
    About eight consecutive steps from the middle of the first measure window, and the gauges of the whole run.

    There are fewer steps where eight hold more than `MAX_PIECES` pieces; of a single step that still holds more, the
    longest pieces are kept. Gauges are thinned so that peaks stay. Values that are not finite are left out.

    Args:
        logs: All processes of one host.
        windows: All of the launch; may be empty.
    """
    ordered = sorted(logs, key=_data_flow)
    first_ns = first_event_ns(logs, windows)
    edges_ns = _middle_edges(ordered, windows)
    if len(edges_ns) < 2:
        return Timeline(start_s=0.0, length_s=0.0, lanes=(), series=tuple(_gauges(ordered, first_ns)))
    lanes = list(_lanes(ordered, edges_ns[0], edges_ns[-1]))
    end_ns = _last_edge_ns(lanes, edges_ns)
    steps = _step_series(ordered, edges_ns[0], end_ns, first_ns)
    return Timeline(
        start_s=(edges_ns[0] - first_ns) / 1e9,
        length_s=(end_ns - edges_ns[0]) / 1e9,
        lanes=tuple(_without_shortest([_lane(lane, edges_ns[0], end_ns) for lane in lanes])),
        series=(*_gauges(ordered, first_ns), *steps),
    )


def first_event_ns(logs: Sequence[EventLog], windows: Sequence[Window]) -> int:
    """From where a timeline counts: the first window's start, else the first process's; 0 where there is neither."""
    if windows:
        return min(window.start_ns for window in windows)
    return min((log.header.monotonic_ns for log in logs), default=0)


def _data_flow(log: EventLog) -> tuple[int, str, int, str]:
    role = log.header.role
    place = DATA_FLOW.index(role) if role in DATA_FLOW else len(DATA_FLOW)
    return place, role, log.header.rank, log.header.host


def _middle_edges(logs: Sequence[EventLog], windows: Sequence[Window]) -> list[int]:
    """Ends of the lead rank's steps, one more than the steps to be shown; empty where no step ended."""
    lead = _lead(logs)
    if lead is None:
        return []
    ends_ns = sorted(step.end_ns for step in lead.steps)
    measured = min(
        (window for window in windows if window.kind is WindowKind.MEASURE and window.num_tokens),
        key=lambda window: window.start_ns,
        default=None,
    )
    if measured is not None:
        ends_ns = [end_ns for end_ns in ends_ns if measured.start_ns <= end_ns <= measured.end_ns]
        # A step that is as long as its window began before it.
        ends_ns = ends_ns if len(ends_ns) > 1 else [measured.start_ns, *ends_ns]
    first = max(0, (len(ends_ns) - 1 - NUM_STEPS) // 2)
    return ends_ns[first : first + NUM_STEPS + 1]


def _lead(logs: Sequence[EventLog]) -> EventLog | None:
    """The lowest rank that trains; of others, the first that ends steps."""
    with_steps = [log for log in logs if log.steps]
    return min(with_steps, key=lambda log: (not log.header.trains, log.header.rank), default=None)


def _lanes(logs: Sequence[EventLog], start_ns: int, end_ns: int) -> Iterator[_LanePieces]:
    """Lanes that have a span anywhere; main threads have the right of way where there are too many."""
    by_lane: dict[tuple[int, str], list[Span]] = {}
    for index, log in enumerate(logs):
        by_lane |= {(index, thread): [] for thread in {span.thread for span in log.spans}}
        for span in log.spans:
            if span.end_ns > start_ns and span.start_ns < end_ns:
                by_lane[index, span.thread].append(span)
    kept = sorted(by_lane, key=lambda lane: (lane[1] != MAIN_THREAD, lane))[:MAX_LANES]
    for index, thread in sorted(kept, key=lambda lane: (lane[0], lane[1] != MAIN_THREAD, lane[1])):
        header, spans = logs[index].header, by_lane[index, thread]
        name = str(Lane(host=header.host, role=header.role, rank=header.rank, thread=thread))
        yield _LanePieces(name[:MAX_NAME], spans, *flatten(spans))


def _last_edge_ns(lanes: Sequence[_LanePieces], edges_ns: Sequence[int]) -> int:
    """Up to where the lanes hold no more than `MAX_PIECES`; at least one step."""
    for edge_ns in reversed(edges_ns[2:]):
        num_pieces = sum(int(((lane.starts_ns < edge_ns) & (lane.ends_ns > edges_ns[0])).sum()) for lane in lanes)
        if num_pieces <= MAX_PIECES:
            return edge_ns
    return edges_ns[1]


def _lane(lane: _LanePieces, start_ns: int, end_ns: int) -> TimelineLane:
    phases: dict[tuple[str, str], int] = {}
    pieces = []
    for piece_start_ns, piece_end_ns, owner in zip(
        lane.starts_ns.clip(start_ns, end_ns).tolist(),
        lane.ends_ns.clip(start_ns, end_ns).tolist(),
        lane.owners.tolist(),
        strict=True,
    ):
        # Both rounded down, so that pieces that touch still do; what is shorter than 1 µs may vanish.
        start_us, end_us = (piece_start_ns - start_ns) // 1000, (piece_end_ns - start_ns) // 1000
        if end_us > start_us:
            span = lane.spans[owner]
            phase = phases.setdefault((span.phase[:MAX_NAME], str(span.kind)), len(phases))
            pieces.append((start_us, end_us, phase))
    return TimelineLane(
        name=lane.name,
        phases=tuple(phase for phase, _ in phases),
        kinds=tuple(kind for _, kind in phases),
        pieces=tuple(pieces),
    )


def _without_shortest(lanes: Sequence[TimelineLane]) -> Iterator[TimelineLane]:
    """The same lanes with at most `MAX_PIECES` pieces together, the longest of all."""
    lengths_us = sorted((end - start for lane in lanes for start, end, _ in lane.pieces), reverse=True)
    if len(lengths_us) <= MAX_PIECES:
        yield from lanes
        return
    # Strictly longer than the first that is too many: of equal ones none, rather than some.
    least_us = lengths_us[MAX_PIECES] + 1
    for lane in lanes:
        pieces = tuple(piece for piece in lane.pieces if piece[1] - piece[0] >= least_us)
        yield TimelineLane(name=lane.name, phases=lane.phases, kinds=lane.kinds, pieces=pieces)


def _gauges(logs: Sequence[EventLog], first_ns: int) -> list[Series]:
    """By process in data-flow order, then by name; the lead ranks' and the key gauges where there are too many."""
    values: defaultdict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for index, log in enumerate(logs):
        for gauge in log.gauges:
            if math.isfinite(gauge.value):
                values[index, gauge.name].append(((gauge.at_ns - first_ns) / 1e9, gauge.value))
    kept = sorted(values, key=lambda key: (logs[key[0]].header.rank > 0, not key[1].startswith(KEY_GAUGES)))
    return [
        _series(f"{name[:MAX_NAME]} of {_process(logs[index])}", _thinned(values[index, name]))
        for index, name in sorted(kept[:MAX_SERIES])
    ]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `MAX_POINTS`: of as many stretches as half of them, the lowest and the highest."""
    import numpy as np

    if len(points) <= MAX_POINTS:
        return list(points)
    values = np.array([value for _, value in points])
    stretches = np.array_split(np.arange(len(points)), MAX_POINTS // 2)
    kept = {int(index) for part in stretches for index in (part[values[part].argmin()], part[values[part].argmax()])}
    return [points[index] for index in sorted(kept)]


def _step_series(logs: Sequence[EventLog], start_ns: int, end_ns: int, first_ns: int) -> list[Series]:
    """The lead rank's steps, and the target's that made them, where that can be told."""
    lead = _lead(logs)
    if lead is None:
        return []
    makers = [log for log in logs if log.header.role == "target" and log is not lead]
    num_trainers = sum(log.header.trains for log in logs)
    # A target counts what it serves. It is the drafter's own count where there is one of each, and no other.
    numbers = [step.step for step in lead.steps]
    told = [(lead, numbers)]
    if len(makers) == num_trainers == 1 and _same_batches(makers[0], lead):
        told.insert(0, (makers[0], numbers))
    return [
        _series(
            f"{STEP_SERIES}{_process(log)}",
            [
                ((step.end_ns - first_ns) / 1e9, float(number))
                for step, number in zip(log.steps, of, strict=False)
                if start_ns <= step.end_ns <= end_ns
            ],
        )
        for log, of in told
    ]


def _same_batches(maker: EventLog, lead: EventLog) -> bool:
    """Whether one's n-th step holds as many tokens as the other's n-th, and ended before it."""
    pairs = zip(maker.steps, lead.steps, strict=False)
    return all(ours.num_tokens == theirs.num_tokens and ours.end_ns <= theirs.end_ns for ours, theirs in pairs)


def _process(log: EventLog) -> str:
    return f"{log.header.role} {log.header.rank}"[:MAX_NAME]


def _series(name: str, points: Sequence[tuple[float, float]]) -> Series:
    """Microseconds and six digits are enough for a picture."""
    return Series(
        name=name,
        at_s=tuple(round(at_s, 6) for at_s, _ in points),
        values=tuple(float(f"{value:.6g}") for _, value in points),
    )
