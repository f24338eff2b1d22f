"""What SIGINT and SIGTERM do to a run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignals:
    """
    What SIGINT and SIGTERM do.

    While the run loads, there is nothing to finish: they end it at once. Once it trains, the first is noted, so
    that the steps under way can be finished, and a second ends it at once.
    """

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        self.is_training = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler; it does not print, since the signal may have come in the middle of a print."""
        del frame
        if self.received or not self.is_training:
            raise SystemExit(128 + number)
        self.received.append(signal.Signals(number))


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
