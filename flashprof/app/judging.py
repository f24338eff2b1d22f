"""Which windows of a launch the machine disturbed, read from the launch's counters as they stand."""

from __future__ import annotations

from pathlib import Path

from flashprof.contracts.errors import FormatError
from flashprof.contracts.machine import MachineUse
from flashprof.stats.disturbance import DisturbanceLimits, judge_window
from flashprof.store.counters_file import read_counters
from flashprof.windows.machine import machine_use, uses_before


class MachineJudge:
    """
    Judges the windows of one launch, each once and in the order of time, against those before it.

    Live and from the files of a finished launch it gives the same answers.
    """

    def __init__(self, counters: Path) -> None:
        self._counters = counters
        self._limits = DisturbanceLimits()
        self._before_ns: int | None = None
        self.uses: list[MachineUse] = []
        """Of all windows so far, and of stretches before the first."""

    def __call__(self, start_ns: int, end_ns: int) -> tuple[str, ...]:
        """A sentence for each disturbance between two moments; none where the machine was not read."""
        try:
            readings = read_counters(self._counters)
        except (FormatError, OSError):
            # A launch without a meter, or on a disk that was full.
            return ()
        if self._before_ns is None:
            self._before_ns = start_ns
            self.uses += uses_before(readings, start_ns, (end_ns - start_ns) / 1e9)
        use = machine_use(readings, start_ns, end_ns)
        if use is None:
            return ()
        found = judge_window(use, self.uses, self._limits)
        self.uses.append(use)
        return found
