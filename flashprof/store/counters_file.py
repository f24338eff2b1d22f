"""
`counters.jsonl`: the machine's counters beside one launch, one reading a line, about one a second.

The first line is the header. Each line is flushed, so that a killed FlashProf loses at most the line it was writing.

Format history
    1  2026-11  header {format, version}; then one object a line with the fields of `MachineReading`
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError
from flashprof.contracts.machine import GpuReading, MachineReading

FORMAT = "flashprof-counters"
VERSION = 1
FILE_NAME = "counters.jsonl"
"""In a run folder."""
HEAD_CHARS = 65_536
"""More than the header and the first reading of a machine with eight GPUs have."""


class CountersWriter:
    """Writes one file while the launch runs."""

    def __init__(self, path: Path) -> None:
        """Begin *path*, with the header; an older file there is replaced."""
        self._file = path.open("w", encoding="utf-8")
        self._write_line({"format": FORMAT, "version": VERSION})

    def write(self, reading: MachineReading) -> None:
        """Append one reading: it is on its way to the disk when this returns."""
        self._write_line(asdict(reading))

    def close(self) -> None:
        """End the file. Safe to call twice."""
        self._file.close()

    def _write_line(self, content: dict[str, Any]) -> None:
        self._file.write(json.dumps(content, separators=(",", ":")) + "\n")
        self._file.flush()


def read_counters(path: Path) -> tuple[MachineReading, ...]:
    """
    All readings in the order in which they were taken; a last line without an end was torn by a kill and is left out.

    Raises:
        FormatError: Another format or version, or a whole line that is no reading.
    """
    header, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] or [""]
    _check_header(header, path)
    return tuple(_decode(line, f"{path}:{number}") for number, line in enumerate(lines, start=2))


def counters_before(path: Path, at_ns: int, *, at_most: int) -> tuple[tuple[MachineReading, ...], ...]:
    """
    Readings beside the launches of the same study that began before this one, the latest last.

    Args:
        path: `launches/RUN/counters.jsonl`.
        at_ns: Its own first reading.
        at_most: So many launches, the nearest.

    Files that cannot be read are passed over, and so is what a link or a pipe stands for.
    """
    begun = []
    for folder in path.absolute().parent.parent.iterdir():
        other = folder / path.name
        first_ns = _first_ns(other)
        if first_ns is not None and first_ns < at_ns:
            begun.append((first_ns, other))
    found = []
    for _, other in sorted(begun)[-at_most:]:
        with contextlib.suppress(FormatError, OSError):
            found.append(read_counters(other))
    return tuple(found)


def _first_ns(path: Path) -> int | None:
    """Of a file that has a whole first reading."""
    if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
        return None
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(HEAD_CHARS).split("\n")
        return _decode(lines[1], str(path)).at_ns if len(lines) > 2 else None
    except (FormatError, OSError):
        return None


def _check_header(line: str, path: Path) -> None:
    try:
        raw = json.loads(line)
        found = f"{raw['format']} version {raw['version']}"
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "not a counters file: its first line is no header", where=str(path), allowed=f"{FORMAT} version {VERSION}"
        ) from error
    if found != f"{FORMAT} version {VERSION}":
        raise FormatError(
            f"counters format {found} is not known",
            where=str(path),
            offered=found,
            allowed=f"{FORMAT} version {VERSION}",
            next_command="read it with the FlashProf that wrote it, or measure again",
        )


def _decode(line: str, where: str) -> MachineReading:
    try:
        raw = json.loads(line)
        gpus = tuple(_decode_gpu(gpu) for gpu in raw.pop("gpus"))
        return MachineReading(**raw, gpus=gpus)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"a line is no reading of the machine: {error}",
            where=where,
            allowed="the fields of version 1, whole",
            next_command="delete that line: the readings around it still count",
        ) from error


def _decode_gpu(raw: dict[str, Any]) -> GpuReading:
    return GpuReading(**{**raw, "throttle_reasons": tuple(raw["throttle_reasons"])})
