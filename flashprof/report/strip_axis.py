"""Where a value stands on one line of characters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A line from one value to another."""

    low: float
    high: float
    width: int
    """Characters."""

    def column(self, value: float) -> int:
        """From 0; what lies beyond an end stands there."""
        share = (value - self.low) / (self.high - self.low)
        return round((self.width - 1) * min(max(share, 0.0), 1.0))
