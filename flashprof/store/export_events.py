"""The events of a finished run, for exports: what grows with it, spans and gauges, is read line by line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.events import EventLog, Gauge, Step, decode_record
from flashprof.contracts.machine import MachineReading
from flashprof.store.export_flows import DRAFTER, TARGET
from flashprof.store.fast_events import read_step_log

DATA_FLOW = ("dispatcher", TARGET, DRAFTER)
MAX_NS = 2**62


@dataclass(frozen=True, kw_only=True)
class EventFiles:
    """The events files of a run, without what grows with it: spans and gauges."""

    logs: Sequence[EventLog]
    """In the order in which data flow."""
    paths: Sequence[Path]
    """One a log."""
    refused: Sequence[str] = ()
    """A sentence a file that is left out."""

    def zero_ns(self, readings: Sequence[MachineReading] = ()) -> int:
        """The launch, by the clock of the first log's host: the first reading of the machine, or the first process."""
        starts_ns = [log.header.monotonic_ns - ahead for log, ahead in zip(self.logs, self._ahead_ns(), strict=True)]
        return min([*starts_ns, *(reading.at_ns for reading in readings[:1])])

    def zeros_ns(self, readings: Sequence[MachineReading] = ()) -> list[int]:
        """The same moment by the clock of each log's host."""
        zero_ns = self.zero_ns(readings)
        return [zero_ns + ahead for ahead in self._ahead_ns()]

    def _ahead_ns(self) -> list[int]:
        """How much later each log's monotonic clock is than the first log's at one moment."""
        # One pair a host: those of two processes of one host differ by what reading two clocks takes.
        offsets: dict[str, int] = {}
        for log in self.logs:
            offsets.setdefault(log.header.host, log.header.wall_ns - log.header.monotonic_ns)
        first = offsets[self.logs[0].header.host]
        return [first - offsets[log.header.host] for log in self.logs]


def find_event_files(events: Path) -> EventFiles:
    """
    The events of a finished run.

    Args:
        events: Its folder `events/`. Links and pipes in it are left out.

    Raises:
        UsageError: There are none.
        FormatError: None of them can be read; says why of the first.
    """
    found: list[tuple[EventLog, Path]] = []
    refused: list[FormatError] = []
    paths = [path for path in sorted(events.glob("*.jsonl")) if path.is_file() and not path.is_symlink()]
    for path in paths:
        try:
            found.append((read_step_log(path), path))
        except FormatError as error:
            refused.append(error)
    if not found and refused:
        raise refused[0]
    if not found:
        raise UsageError("the run has no events", where=str(events), next_command="flashprof run")
    found.sort(key=lambda pair: _data_flow(pair[0]))
    return EventFiles(
        logs=[log for log, _ in found],
        paths=[path for _, path in found],
        refused=[f"{Path(error.where or '').name} is left out: {error.what}" for error in refused],
    )


def read_gauges(files: EventFiles, readings: Sequence[MachineReading] = ()) -> Iterator[dict[str, Any]]:
    """Role, rank, name, step, `at_s` after the launch and value of each gauge; values that are not finite left out."""
    for log, path, zero_ns in zip(files.logs, files.paths, files.zeros_ns(readings), strict=True):
        process = {"role": log.header.role, "rank": log.header.rank}
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                gauge = decode_record(line) if line.startswith('["gauge",') else None
                if isinstance(gauge, Gauge) and _is_finite(gauge.value):
                    at_s = (moment(gauge.at_ns) - zero_ns) / 1e9
                    yield {**process, "name": gauge.name, "step": gauge.step, "at_s": at_s, "value": gauge.value}


def is_sound(step: Step) -> bool:
    """Whether all that a step holds can be shown."""
    values = (step.end_ns, step.num_tokens, step.num_supervised_tokens, step.num_padding_tokens)
    return all(type(value) is int and abs(value) < MAX_NS for value in values)


def moment(value: Any) -> int:
    """A time in ns from a file; raises ValueError where it is none."""
    if type(value) is not int or not -MAX_NS < value < MAX_NS:
        raise ValueError("no moment")
    return value


def name_of(value: Any) -> str:
    """A name from a file; raises TypeError where it is none."""
    if not isinstance(value, str):
        raise TypeError("no name")
    return value


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _data_flow(log: EventLog) -> tuple[int, str, int, str]:
    role = log.header.role
    place = DATA_FLOW.index(role) if role in DATA_FLOW else len(DATA_FLOW)
    return place, role, log.header.rank, log.header.host
