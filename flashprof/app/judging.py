"""Which windows of a launch the machine disturbed, and what the others say: read from its counters as they stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from flashprof.contracts.errors import FormatError
from flashprof.contracts.machine import MachineReading, MachineUse
from flashprof.contracts.results import Window, WindowKind
from flashprof.stats.disturbance import DisturbanceLimits, judge_window
from flashprof.store.counters_file import counters_before, read_counters
from flashprof.store.journal import LAUNCHES
from flashprof.windows.machine import machine_use, uses_before
from flashprof.windows.switches import Judge

NUM_LAUNCHES_BEFORE = 3
"""Of the same study: with the stretches of their starts they hold the 32 windows that are looked at."""
MIN_WINDOWS = 2
"""A launch of which fewer windows are undisturbed is left out as a whole."""


class MachineJudge:
    """
    Judges the windows of one launch, each once and in the order of time, against those before it.

    A launch of a study comes after others: what a neighbour does all the time while it lasts is no level of its own.
    Live and from the files of a finished launch it gives the same answers.
    """

    def __init__(self, counters: Path) -> None:
        self._counters = counters
        self._limits = DisturbanceLimits()
        self._readings: Sequence[MachineReading] = ()
        self._before_ns: int | None = None
        self.uses: list[MachineUse] = []
        """Of all windows so far, and of stretches before the first, in the launches before this one too."""

    def __call__(self, start_ns: int, end_ns: int) -> tuple[str, ...]:
        """A sentence for each disturbance between two moments; none where the machine was not read."""
        try:
            readings = self._readings_until(end_ns)
        except (FormatError, OSError):
            # A launch without a meter, or on a disk that was full.
            return ()
        if self._before_ns is None:
            self._before_ns = start_ns
            self.uses += self._uses_before(readings, start_ns, (end_ns - start_ns) / 1e9)
        use = machine_use(readings, start_ns, end_ns)
        if use is None:
            return ()
        found = judge_window(use, self.uses, self._limits)
        self.uses.append(use)
        return found

    def _uses_before(self, readings: Sequence[MachineReading], start_ns: int, length_s: float) -> list[MachineUse]:
        """Stretches as long as a window, of this launch and of those before it."""
        if not readings:
            return []
        earlier: Sequence[Sequence[MachineReading]] = ()
        if self._counters.absolute().parent.parent.name == LAUNCHES:
            earlier = counters_before(self._counters, readings[0].at_ns, at_most=NUM_LAUNCHES_BEFORE)
        spans = [(others, others[-1].at_ns) for others in earlier if others] + [(readings, start_ns)]
        return [use for taken, until_ns in spans for use in uses_before(taken, until_ns, length_s)]

    def _readings_until(self, end_ns: int) -> Sequence[MachineReading]:
        """Read the file again only for what it may hold since: an hour of readings takes 50 ms."""
        if not self._readings or self._readings[-1].at_ns < end_ns:
            self._readings = read_counters(self._counters)
        return self._readings


@dataclass(frozen=True, kw_only=True)
class LaunchRate:
    """What the measure windows of one launch say together."""

    log_tok_per_s: float
    """Mean over the windows that count; NaN where none holds a token."""
    num_windows: int
    """Those that count."""
    num_left_out: int
    """Disturbed ones of a launch that counts."""
    disturbances: tuple[str, ...]
    """Of all its windows, each once."""
    is_calm: bool
    """Whether the launch counts: enough of its windows are undisturbed."""


def measured_windows(windows: Sequence[Window]) -> list[Window]:
    """Measure windows that hold a token: the others have no tok/s."""
    return [window for window in windows if window.kind is WindowKind.MEASURE and window.num_tokens]


def launch_rate(windows: Sequence[Window], judge: Judge) -> LaunchRate:
    """
    Disturbed windows are left out of the mean; where fewer than two are left, the launch is disturbed as a whole.

    Args:
        windows: Of one launch.
        judge: Names what disturbed the machine between two moments.
    """
    measured = measured_windows(windows)
    judged = [(window, judge(window.start_ns, window.end_ns)) for window in measured]
    calm = [window for window, reasons in judged if not reasons]
    is_calm = len(calm) >= min(MIN_WINDOWS, len(measured))
    kept = calm if is_calm else measured
    return LaunchRate(
        log_tok_per_s=fmean(math.log(window.tok_per_s) for window in kept) if kept else math.nan,
        num_windows=len(kept),
        num_left_out=len(measured) - len(kept),
        disturbances=tuple(dict.fromkeys(text for _, reasons in judged for text in reasons)),
        is_calm=is_calm,
    )
