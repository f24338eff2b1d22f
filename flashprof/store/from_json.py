"""
Frozen dataclasses back from the JSON that was made of them: strict on types, fields that are not known left out.

No library: none reads `null` as a number that JSON cannot hold, and a cause as the list of its members, without marks
on the fields, and the contracts are of the standard library alone.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from flashprof.contracts.results import Interval
from flashprof.contracts.search import Cause

Kind = TypeVar("Kind")

PAIRS = tuple[tuple[str, str], ...]
MAX_SHOWN = 60
"""Characters of a wrong value in a message."""


def from_json(kind: type[Kind], raw: Any, name: str) -> Kind:
    """
    A dataclass from what JSON made of it; a field that is missing has its default.

    Args:
        kind: The dataclass.
        raw: What `json.loads` returned.
        name: What the document is called in messages.

    Raises:
        TypeError, ValueError, OverflowError: It is no such object; says where in the document.
    """
    return cast("Kind", _read_object(kind, raw, name))


def _read(kind: Any, raw: Any, name: str) -> Any:
    if kind is Any:
        return raw
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (some,) = (part for part in parts if part is not types.NoneType)
        return None if raw is None else _read(some, raw, name)
    if origin is tuple:
        # Pairs, as of paths, are an object in a file.
        items = [list(pair) for pair in raw.items()] if kind == PAIRS and isinstance(raw, dict) else raw
        _checked(items, list, name)
        kinds = [parts[0]] * len(items) if parts[-1] is Ellipsis else list(parts)
        if len(kinds) != len(items):
            raise ValueError(f"{name} has {len(items)} entries instead of {len(kinds)}")
        return tuple(
            _read(part, item, f"{name}[{place}]") for place, (part, item) in enumerate(zip(kinds, items, strict=True))
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _read(parts[1], item, f"{name}.{key}") for key, item in _checked(raw, dict, name).items()}
    if is_dataclass(kind):
        return _read_object(kind, raw, name)
    return _read_scalar(kind, raw, name)


def _read_object(kind: Any, raw: Any, name: str) -> Any:
    if kind is Cause:
        return Cause(_read(tuple[str, ...], raw, name))
    known = _checked(raw, dict, name)
    if kind is Interval:
        known = _with_open_ends(known)
    hints = _hints(kind)
    values = {}
    for field in fields(kind):
        if field.name in known:
            values[field.name] = _read(hints[field.name], known[field.name], f"{name}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{name} has no {field.name}")
    return kind(**values)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Evaluating them anew takes 60 % of the time of a summary's 100 objects."""
    return get_type_hints(kind)


def _read_scalar(kind: Any, raw: Any, name: str) -> Any:
    if kind is float:
        # What could not be told, NaN, was written as null.
        return math.nan if raw is None else float(_checked(raw, (int, float), name))
    if issubclass(kind, StrEnum):
        if _checked(raw, str, name) not in list(kind):
            raise ValueError(f"{name} is {raw[:MAX_SHOWN]!r}, none of {', '.join(kind)}")
        return kind(raw)
    return _checked(raw, kind, name)


def _checked(raw: Any, kind: type | tuple[type, ...], name: str) -> Any:
    # Python counts true and false as numbers.
    if not isinstance(raw, kind) or (isinstance(raw, bool) and kind is not bool):
        raise TypeError(f"{name} is {str(raw)[:MAX_SHOWN]!r}")
    return raw


def _with_open_ends(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    ends = {"low": -math.inf, "high": math.inf}
    return {**raw, **{end: bound for end, bound in ends.items() if raw.get(end, bound) is None}}
