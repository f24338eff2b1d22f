"""The events around one window out of those of a whole launch: a window then costs what it holds. Pure, numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flashprof.contracts.events import EventLog, Record

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Times = NDArray[int64]


class _Edges(NamedTuple):
    log: EventLog
    starts_ns: Times
    ends_ns: Times
    step_ends_ns: Times


class LogSlices:
    """The events of one launch, by time. 100,000 comparisons take 0.1 ms; flattening as many spans takes 0.1 s."""

    def __init__(self, logs: Sequence[EventLog]) -> None:
        """Look up the times once."""
        self._logs = [
            _Edges(
                log,
                _times(log.spans, lambda span: span.start_ns),
                _times(log.spans, lambda span: span.end_ns),
                _times(log.steps, lambda step: step.end_ns),
            )
            for log in logs
        ]

    @property
    def logs(self) -> list[EventLog]:
        """All of the launch."""
        return [edges.log for edges in self._logs]

    def within(self, start_ns: int, end_ns: int) -> list[EventLog]:
        """
        What a window needs of each process.

        Returns:
            Spans that overlap it, and the steps that its cycles begin and end with; no gauges, acks or marks.
        """
        return [_within(edges, start_ns, end_ns) for edges in self._logs]


def _within(edges: _Edges, start_ns: int, end_ns: int) -> EventLog:
    import numpy as np

    inside = ((edges.starts_ns < end_ns) & (edges.ends_ns > start_ns)).nonzero()[0]
    # A cycle may begin a little before its window (`lanes.BOUNDARY_SLACK`): with the step before that one.
    first, last = np.searchsorted(edges.step_ends_ns, (start_ns, end_ns), side="right")
    steps = edges.log.steps[max(0, int(first) - 2) : int(last) + 2]
    return EventLog(header=edges.log.header, spans=[edges.log.spans[index] for index in inside], steps=steps)


def _times(records: Sequence[Record], time_ns: Callable[[Any], int]) -> Times:
    import numpy as np

    return np.fromiter(map(time_ns, records), dtype=np.int64, count=len(records))
