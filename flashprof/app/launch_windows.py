"""The windows of one launch, from its events and FlashProf's own boundaries, or from the tok/s that it prints."""

from __future__ import annotations

from collections.abc import Sequence

from flashprof.app.log_readings import Reading
from flashprof.contracts.control import CommandName
from flashprof.contracts.events import Ack, EventLog, Header
from flashprof.contracts.results import Window, WindowKind
from flashprof.windows.table import build_windows

MAX_TOK_PER_S = 1e15
"""What is read as more is no rate: the pattern caught something else."""


def launch_windows(
    logs: Sequence[EventLog],
    observed: Sequence[Ack] = (),
    readings: Sequence[Reading] = (),
    *,
    steady_ns: int | None = None,
) -> tuple[Window, ...]:
    """
    All windows of a launch; where it reports steps, with all that lies between them.

    Args:
        logs: All processes of one host.
        observed: Boundaries that FlashProf set by its own clock, for a subject that does not listen.
        readings: What the subject printed of its throughput; asked only where there is no step.
        steady_ns: Where steady state begins; None for "at the first window".
    """
    if any(log.steps for log in logs if log.header.trains):
        return build_windows([*logs, *_observer(logs, observed)], steady_ns=steady_ns)
    return _windows_of_readings(observed, readings)


def _observer(logs: Sequence[EventLog], observed: Sequence[Ack]) -> list[EventLog]:
    """FlashProf's own window boundaries in the form of a process's events."""
    if not observed:
        return []
    first = logs[0].header
    header = Header(
        role="flashprof",
        rank=0,
        host=first.host,
        pid=0,
        trains=False,
        wall_ns=first.wall_ns,
        monotonic_ns=first.monotonic_ns,
    )
    return [EventLog(header=header, acks=list(observed))]


def _windows_of_readings(observed: Sequence[Ack], readings: Sequence[Reading]) -> tuple[Window, ...]:
    """Windows of a subject that only prints its throughput: tokens are its own figure times our clock."""
    starts = {ack.detail["label"]: ack for ack in observed if ack.name == CommandName.WINDOW_START}
    ends = {ack.detail["label"]: ack for ack in observed if ack.name == CommandName.WINDOW_END}
    windows = []
    for label, start in starts.items():
        if label in ends:
            end_ns = ends[label].at_ns
            inside = [reading for reading in readings if start.at_ns < reading.at_ns <= end_ns]
            plausible = [reading for reading in inside if reading.tok_per_s <= MAX_TOK_PER_S]
            windows.append(_reading_window(label, start, end_ns, plausible))
    return tuple(windows)


def _reading_window(label: str, start: Ack, end_ns: int, inside: Sequence[Reading]) -> Window:
    mean_tok_per_s = sum(reading.tok_per_s for reading in inside) / len(inside) if inside else 0.0
    return Window(
        label=label,
        kind=WindowKind(start.detail["kind"]),
        start_ns=start.at_ns,
        end_ns=end_ns,
        num_steps=len(inside),
        num_tokens=round(mean_tok_per_s * (end_ns - start.at_ns) / 1e9),
        num_supervised_tokens=0,
        num_padding_tokens=0,
        told_tok_per_s=mean_tok_per_s,
    )
