"""An axis for small pictures: which stretch of numbers is drawn, where each lies, which are written beside it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

EDGE_PCT = 1.0
"""Room at both ends, so that no mark is cut."""
NUM_TICKS = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """From the lowest number to the highest."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Where a number lies, 0 to 1; what is off the axis lies at its end."""
        if math.isnan(value):
            return 0.0
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    def pct(self, value: float) -> float:
        """The same along the picture's width, in per cent."""
        return round(EDGE_PCT + (100 - 2 * EDGE_PCT) * self.share(value), 2)

    def ticks(self) -> list[float]:
        """Round numbers, about five."""
        step = _round_step((self.high - self.low) / NUM_TICKS)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def axis_of(core: Iterable[float], rest: Iterable[float], *, least: float) -> Axis:
    """
    Make an axis that shows all of *core*, and of *rest* what does not stretch it by more than half at either end.

    Args:
        core: Estimates and marks.
        rest: Ends of intervals; some have none.
        least: How long it is at least.
    """
    kept = [value for value in core if math.isfinite(value)] or [0.0]
    low, high = min(kept), max(kept)
    room = max((high - low) / 2, least)
    marks = [value for value in rest if math.isfinite(value)]
    low, high = max(min([low, *marks]), low - room), min(max([high, *marks]), high + room)
    short = max(0.0, least - (high - low)) / 2
    return Axis(low - short, high + short)


def _round_step(least: float) -> float:
    scale = 10.0 ** math.floor(math.log10(least))
    return next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= least * (1 - 1e-9))
