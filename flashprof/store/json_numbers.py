"""JSON has no infinity and no NaN: where a number of ours is one, its place holds null."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """The same dicts, lists and values, tuples as lists, with null for each number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
