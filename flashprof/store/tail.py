"""Reading events files while they grow."""

from __future__ import annotations

from pathlib import Path

from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import EventLog, Header, decode, decode_record

SAME_CLOCK_NS = 1_000_000_000
"""Processes of one machine tell its clocks' difference to some µs; those of two differ by their uptimes."""


class EventTail:
    """All events of one launch so far; each call reads only what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[Path, EventLog] = {}
        self._offsets: dict[Path, int] = {}
        self._refused: dict[Path, str] = {}

    @property
    def logs(self) -> list[EventLog]:
        """One log a process, in the order of their file names."""
        return [self._logs[path] for path in sorted(self._logs)]

    @property
    def unreadable(self) -> list[str]:
        """One sentence a file that is no events file of this version: it is left out, the others count."""
        return [self._refused[path] for path in sorted(self._refused)]

    def poll(self) -> bool:
        """
        Read what came since the last call; whether there was anything.

        Raises:
            FormatError: Processes of two machines write into this folder: their times cannot be compared.
        """
        grown = False
        for path in sorted(self._folder.glob("*.jsonl")):
            if path in self._refused:
                continue
            text = self._read_whole_lines(path)
            if text:
                grown = True
                self._add(path, text.splitlines())
        return grown

    def _read_whole_lines(self, path: Path) -> str:
        offset = self._offsets.get(path, 0)
        if path.stat().st_size == offset:
            return ""
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(whole)
        return whole.decode("utf-8", errors="replace")

    def _add(self, path: Path, lines: list[str]) -> None:
        log = self._logs.get(path)
        if log is None:
            try:
                new = decode(lines, where=str(path))
            except FormatError as error:
                self._refused[path] = f"events/{path.name} is left out: {error.what}"
                return
            for other in self._logs.values():
                _check_clock(other.header, new.header, path.parent)
            self._logs[path] = new
            return
        for line in lines:
            record = decode_record(line)
            if record is None:
                log.num_torn_lines += 1
            else:
                log.add(record)


def _check_clock(one: Header, other: Header, folder: Path) -> None:
    apart_ns = abs((one.wall_ns - one.monotonic_ns) - (other.wall_ns - other.monotonic_ns))
    if one.host != other.host and apart_ns > SAME_CLOCK_NS:
        raise FormatError(
            f"processes of two machines write their events into one run folder, and their clocks are "
            f"{apart_ns / 1e9:,.0f} s apart: tok/s and waits would be wrong",
            where=str(folder),
            offered=f"{one.role} {one.rank} on {one.host}, {other.role} {other.rank} on {other.host}",
            allowed="the processes of one machine",
            next_command="flashprof run on one of them, with --reports on a disk of its own",
        )


def read_event_logs(folder: Path) -> list[EventLog]:
    """All events of a finished launch."""
    tail = EventTail(folder)
    tail.poll()
    return tail.logs
