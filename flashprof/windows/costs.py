"""What each phase costs a token in one window. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from flashprof.contracts.events import EventLog, Span
from flashprof.contracts.results import Window, WindowKind
from flashprof.windows.lanes import lane_times

PhaseKey = tuple[str, str, str]
"""Role, phase, kind."""


class PhaseCosts:
    """The phases of one launch, by window. Sorted once: a window costs what it holds, not what the launch holds."""

    def __init__(self, logs: Sequence[EventLog]) -> None:
        self._spans = [(log.header, sorted(log.spans, key=_end_ns)) for log in logs]

    def between(self, start_ns: int, end_ns: int, num_tokens: int) -> dict[PhaseKey, float]:
        """Own time in ns a token, summed over the ranks and threads of a role; phases that did not run are absent."""
        stretch = Window(
            label="",
            kind=WindowKind.MEASURE,
            start_ns=start_ns,
            end_ns=end_ns,
            num_steps=0,
            num_tokens=num_tokens,
            num_supervised_tokens=0,
            num_padding_tokens=0,
        )
        costs: defaultdict[PhaseKey, float] = defaultdict(float)
        for header, spans in self._spans:
            inside = EventLog(header=header, spans=list(_overlapping(spans, start_ns, end_ns)))
            for times in lane_times(inside, [stretch]):
                for (phase, kind), own_ns in zip(times.phases, times.own_ns, strict=True):
                    costs[header.role, phase, str(kind)] += float(own_ns) / num_tokens
        return dict(costs)


def _overlapping(spans: Sequence[Span], start_ns: int, end_ns: int) -> Iterator[Span]:
    for span in spans[bisect_right(spans, start_ns, key=_end_ns) :]:
        # Children end before their parent, so that an outermost span behind the window is the last to look at.
        if span.depth == 0 and span.start_ns >= end_ns:
            return
        yield span


def _end_ns(span: Span) -> int:
    return span.end_ns
