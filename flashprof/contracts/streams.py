"""Standard streams that a closed descriptor, a full disk, a gone reader or an old terminal does not take down."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = range(3)


def make_streams_last() -> None:
    """
    Make standard output and standard error fit for a command that measures for minutes before it answers.

    A closed one goes nowhere; a letter that the terminal does not know becomes `?`. Nobody's reading is no reason to
    stop, nor is anything that befalls standard error; any other failure of standard output is raised, once.
    """
    for descriptor in (STDIN, STDOUT, STDERR):
        _open_closed(descriptor)
    # Streams that a caller has put in their place are the caller's.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(sys.stdout, STDOUT, BrokenPipeError)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(sys.stderr, STDERR, OSError)


class _LastingFile(io.FileIO):
    """A descriptor that leads nowhere once a write has failed."""

    def __init__(self, descriptor: int, borne: type[OSError]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._borne = borne

    def write(self, data: ReadableBuffer, /) -> int:
        """Write to the descriptor; what is borne is as good as written."""
        try:
            return super().write(data)
        except OSError as error:
            lead_nowhere(self.fileno())
            if not isinstance(error, self._borne):
                raise
            return memoryview(data).nbytes


def lead_nowhere(descriptor: int) -> None:
    """
    Drop what is written to *descriptor* from now on.

    Args:
        descriptor: Of a stream. What is still in its buffer is dropped as well: Python flushes it at exit, would fail
            again, and end with a status of its own.
    """
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)


def _open_closed(descriptor: int) -> None:
    """The next file to be opened would take the number, and with it what is meant for the stream."""
    try:
        os.fstat(descriptor)
    except OSError:
        # The lowest free number is this one; our processes inherit it as they would a stream.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _lasting(stream: TextIO | None, descriptor: int, borne: type[OSError]) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_LastingFile(descriptor, borne)),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="replace",
        line_buffering=descriptor == STDERR or os.isatty(descriptor),
    )
