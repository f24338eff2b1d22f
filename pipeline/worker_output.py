"""What the workers write to standard error: repeated line by line with the worker's name, and the last lines kept."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

NUM_LAST_LINES = 12
"""Enough for the end of a traceback."""
MAX_READ_BYTES = 65_536
CLOSE_WAIT_S = 1.0
LAST_WAIT_S = 0.5
"""The end of a pipe comes at once, unless a child of the worker holds it open."""


class WorkerOutput:
    """Reads all workers' pipes in one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._last: dict[str, deque[str]] = {}
        self._is_read: dict[str, threading.Event] = {}
        self._thread = threading.Thread(target=self._read_all, name="worker-output", daemon=True)

    def add(self, name: str, context: Any) -> Connection:
        """A pipe for the worker *name*; returns its writing end."""
        reader, writer = context.Pipe(duplex=False)
        self._last[name] = deque(maxlen=NUM_LAST_LINES)
        self._is_read[name] = threading.Event()
        self._selector.register(reader, selectors.EVENT_READ, name)
        return writer

    def start(self) -> None:
        """Begin to read, once all workers are added."""
        self._thread.start()

    def close(self) -> None:
        """Read to the end, which comes when the last worker has ended."""
        if self._thread.ident is not None:
            self._thread.join(CLOSE_WAIT_S)

    def last_lines(self, name: str) -> tuple[str, ...]:
        """What *name*, which has ended, said last."""
        # Its end is known before all that it wrote is read.
        self._is_read[name].wait(LAST_WAIT_S)
        return tuple(self._last[name])

    def _read_all(self) -> None:
        rest = dict.fromkeys(self._last, b"")
        while self._selector.get_map():
            for key, _ in self._selector.select():
                data = os.read(key.fd, MAX_READ_BYTES)
                *lines, rest[key.data] = (rest[key.data] + data).split(b"\n")
                if not data:
                    self._selector.unregister(key.fileobj)
                    lines += [rest[key.data]] if rest[key.data] else []
                for line in lines:
                    self._repeat(key.data, line.decode(errors="replace"))
                if not data:
                    self._is_read[key.data].set()

    def _repeat(self, name: str, line: str) -> None:
        self._last[name].append(line)
        # Whoever read our standard error may be gone; workers must not block on a pipe that nobody empties.
        with suppress(OSError):
            sys.stderr.write(f"{name}: {line}\n")
            sys.stderr.flush()
