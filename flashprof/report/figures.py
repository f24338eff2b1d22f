"""How numbers are written, everywhere the same. A value that is not finite is written as a dash."""

from __future__ import annotations

import math
from collections.abc import Callable

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


def time_text(ns: float) -> str:
    """A time of some ns, about three digits in the unit that suits."""
    scale, unit = time_unit(ns)
    value = ns / scale
    text = _written(value, 0 if abs(value) >= 99.95 or not value else 1 if abs(value) >= 9.995 else 2)
    return text if text == DASH else f"{text} {unit}"


def time_unit(largest_ns: float) -> tuple[float, str]:
    """How many ns the unit has that suits a time, or a table whose largest is this one; and what it is called."""
    size = abs(largest_ns)
    return (1.0, "ns") if not size >= 999.5 else (1e3, "µs") if size < 999.5e3 else (1e6, "ms")


def signed(value: float, write: Callable[[float], str]) -> str:
    """An amount with its sign, whichever it is."""
    text = write(value)
    return f"+{text}" if value > 0 and any(digit in text for digit in "123456789") else text


def amount(value: float) -> str:
    """A number of whatever unit, about three digits."""
    size = abs(value)
    return _written(value, 0 if size >= 99.95 or not value else 1 if size >= 9.995 else 2)


def ratio(part: float, whole: float) -> float:
    """A part of a whole; NaN where it cannot be told, whatever a file holds."""
    try:
        return part / whole if whole else math.nan
    except OverflowError:
        return math.nan


def _written(value: float, num_decimals: int) -> str:
    if not math.isfinite(value):
        return DASH
    text = f"{value:,.{num_decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")
