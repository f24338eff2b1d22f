"""How numbers are written, everywhere the same. A value that is not finite is written as a dash."""

from __future__ import annotations

import math

DASH = "–"


def rate(tok_per_s: float) -> str:
    """Tokens a second, about three digits, thousands set apart."""
    return _written(tok_per_s, 0 if tok_per_s >= 100 else 1)


def percent(share: float) -> str:
    """A share of 0 to 1 as a percentage; one decimal below 10 %."""
    text = _written(100 * share, 0 if abs(share) >= 0.0995 else 1)
    return text if text == DASH else f"{text} %"


def milliseconds(ns: float) -> str:
    """Nanoseconds as milliseconds, about three digits."""
    decimals = 0 if ns >= 99.95e6 else 1 if ns >= 9.995e6 else 2
    return _written(ns / 1e6, decimals)


def seconds(length_s: float) -> str:
    """Seconds, one decimal."""
    text = _written(length_s, 1)
    return text if text == DASH else f"{text} s"


def loss(value: float) -> str:
    """A loss, three decimals."""
    return _written(value, 3)


def _written(value: float, num_decimals: int) -> str:
    if not math.isfinite(value):
        return DASH
    text = f"{value:,.{num_decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")
