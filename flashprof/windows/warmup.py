"""The stretch before steady state, with what the events know about its causes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from flashprof.contracts.control import CommandName
from flashprof.contracts.events import EventLog, Mark
from flashprof.contracts.results import Warmup

MAX_CAUSES = 5
"""The longest causes are named; a run that compiles 40 graphs needs no 40 lines."""
MIN_GROWTH_GIB = 0.05
"""Less is an allocator's rounding; 50 MiB more take the driver about a millisecond."""


def warmup_summary(logs: Sequence[EventLog], steady_ns: int | None, start_ns: int) -> Warmup:
    """
    Say how long the warm-up took and why.

    Args:
        logs: All processes of one host.
        steady_ns: Where steady state begins; None where the data never settled: then the warm-up ends at the first
            window, or with the last training step.
        start_ns: Where the warm-up begins: the launch, or the first event.

    Returns:
        Causes are the stretch's marks `compile` and `autotune`, the longest first, then what the device's allocator
        took; of ranks that do the same thing side by side, the slowest counts.
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
    by_rank = [[mark for mark in log.marks if mark.at_ns <= end_ns] for log in logs]
    seconds = _largest(by_rank, ("compile", "autotune"), lambda mark: (_name(mark), _number(mark, "seconds")))
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    grown_gib = _largest(by_rank, ("allocator",), lambda mark: ("gib", _number(mark, "gib"))).get("gib", 0.0)
    retries = _largest(by_rank, ("allocator",), lambda mark: ("retries", _number(mark, "retries"))).get("retries", 0.0)
    causes = [f"{what} {length_s:.1f} s" for what, length_s in longest[:MAX_CAUSES]]
    if len(longest) > MAX_CAUSES:
        rest_s = sum(length_s for _, length_s in longest[MAX_CAUSES:])
        causes.append(f"{len(longest) - MAX_CAUSES} more {rest_s:.1f} s")
    causes += [f"allocator grew by {grown_gib:.1f} GiB"] if grown_gib >= MIN_GROWTH_GIB else []
    causes += [f"allocator gave memory back and asked again {retries:.0f}×"] if retries else []
    return tuple(causes)


def _largest(
    by_rank: Sequence[Sequence[Mark]], names: Sequence[str], read: Callable[[Mark], tuple[str, float]]
) -> dict[str, float]:
    """By what it is of: each rank's sum over its marks of *names*, of which the largest is taken."""
    largest: dict[str, float] = {}
    for marks in by_rank:
        sums: defaultdict[str, float] = defaultdict(float)
        for what, amount in (read(mark) for mark in marks if mark.name in names):
            sums[what] += amount
        for what, amount in sums.items():
            largest[what] = max(amount, largest.get(what, 0.0))
    return largest


def _name(mark: Mark) -> str:
    what = str(mark.detail.get("what", ""))
    return what if what.startswith("recompile ") else f"{mark.name} {what}".rstrip()


def _number(mark: Mark, field: str) -> float:
    return float(mark.detail.get(field, 0.0))
