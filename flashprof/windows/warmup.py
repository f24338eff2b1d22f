"""The stretch before steady state, with what the events know about its causes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from flashprof.contracts.control import CommandName
from flashprof.contracts.events import EventLog
from flashprof.contracts.results import Warmup

MAX_CAUSES = 5
"""The longest causes are named; a run that compiles 40 graphs needs no 40 lines."""


def warmup_summary(logs: Sequence[EventLog], steady_ns: int | None, start_ns: int) -> Warmup:
    """
    Say how long the warm-up took and why.

    Args:
        logs: All processes of one host.
        steady_ns: Where steady state begins; None where the data never settled: then the warm-up ends at the first
            window, or with the last training step.
        start_ns: Where the warm-up begins: the launch, or the first event.

    Returns:
        Causes are the `compile` marks of the stretch, the longest first; of ranks that compile the same thing side by
        side, the slowest counts.
    """
    end_ns = steady_ns if steady_ns is not None else _measured_from_ns(logs, start_ns)
    num_steps = [sum(step.end_ns <= end_ns for step in log.steps) for log in logs if log.header.trains]
    return Warmup(
        length_s=max(0, end_ns - start_ns) / 1e9,
        num_steps=max(num_steps, default=0),
        settled=steady_ns is not None,
        causes=_causes(logs, end_ns),
    )


def _measured_from_ns(logs: Sequence[EventLog], start_ns: int) -> int:
    starts_ns = [ack.at_ns for log in logs for ack in log.acks if ack.name == CommandName.WINDOW_START]
    ends_ns = [step.end_ns for log in logs if log.header.trains for step in log.steps]
    return min(starts_ns) if starts_ns else max(ends_ns, default=start_ns)


def _causes(logs: Sequence[EventLog], end_ns: int) -> tuple[str, ...]:
    slowest_s: dict[str, float] = {}
    for log in logs:
        rank_s: defaultdict[str, float] = defaultdict(float)
        for mark in log.marks:
            if mark.name == "compile" and mark.at_ns <= end_ns:
                rank_s[str(mark.detail.get("what", ""))] += float(mark.detail.get("seconds", 0.0))
        for what, seconds in rank_s.items():
            slowest_s[what] = max(seconds, slowest_s.get(what, 0.0))
    longest = sorted(slowest_s.items(), key=lambda item: -item[1])[:MAX_CAUSES]
    return tuple(f"{f'compile {what}'.rstrip()} {seconds:.1f} s" for what, seconds in longest)
