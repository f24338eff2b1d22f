"""What SIGINT and SIGTERM do to a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class StopSignals:
    """
    What SIGINT and SIGTERM do.

    While the run loads, there is nothing to finish: they end it at once. Once it trains, the first is noted, so
    that the steps under way can be finished, a second ends it at once, and a third does not wait for that either.
    """

    def __init__(self, *, exit_now: Callable[[int], None] = os._exit) -> None:
        self.received: list[signal.Signals] = []
        self.is_training = False
        self.enders: list[Callable[[], None]] = []
        """End what must not outlive a process that a signal ends while it loads; the newest is called first."""
        self._exit_now = exit_now

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler; it does not print, since the signal may have come in the middle of a print."""
        del frame
        if not self.is_training or len(self.received) > 1:
            self._end_at_once(128 + number)
            return
        self.received.append(signal.Signals(number))
        if len(self.received) > 1:
            raise SystemExit(128 + number)

    def _end_at_once(self, status: int) -> None:
        # Not by raising: in the middle of torch's import, one exception in 146 became an abort (SIGABRT).
        for end in reversed(self.enders):
            with suppress(Exception):
                end()
        self._exit_now(status)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handle SIGINT and SIGTERM as `StopSignals` says, until left."""
    signals = StopSignals()
    previous = {number: signal.signal(number, signals.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
