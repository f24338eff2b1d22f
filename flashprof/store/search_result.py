"""
A search's result for programs: what `flashprof bisect --json` prints, and `result.json` in the search's folder.

    format, version
    search, kind, good, bad, cell, verdict, standing, reason
    drop                      an interval, or null
    culprits, gains           causes; a cause is the list of its members: ["swa"], ["compile", "swa"], ["<commit id>"]
    beliefs                   [{causes, probability, effects}], the likeliest first
    proofs                    [{number, cause, is_back, base, candidate, comparison, is_shown, is_refuted}]
    cells                     [{cell, label, num_launches, num_readings, tok_per_s, outcome}]
    num_readings, num_left_out, num_launches, num_builds, spent_s, num_reused, to_resolve_s, is_interrupted
    failures, notes           sentences
    labels                    member of a cause → what it is, for a person; or null
    paths                     what → where

Fields are those of `flashprof.contracts.search`, where they are explained. An interval is {estimate, low, high, level,
num_samples, method}; an end that is not bounded is null. Effects and drops are shares: −0.17 for 17 % slower.

Format history
    1  2026-11  as above
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

from flashprof.contracts.errors import FormatError
from flashprof.contracts.results import Interval
from flashprof.contracts.search import Belief, Cause, Proof, SearchResult
from flashprof.store.json_numbers import finite

FORMAT = "flashprof-search-result"
VERSION = 1
FILE = "result.json"
REMEDY = "flashprof bisect --resume writes it again"


def search_to_json(result: SearchResult) -> str:
    """One JSON document; an end of an interval that is not bounded becomes null."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        **asdict(result),
        "culprits": _members(result.culprits),
        "gains": _members(result.gains),
        "beliefs": [_belief(belief) for belief in result.beliefs],
        "proofs": [_proof(proof) for proof in result.proofs],
        "paths": dict(result.paths),
    }
    return json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def search_from_json(text: str, *, where: str | None = None) -> SearchResult:
    """
    Read what `search_to_json` made.

    Args:
        text: The document.
        where: Its file, for messages.

    Raises:
        FormatError: It is no result of a search, is damaged, or of another version.
    """
    try:
        document = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError("not a search's result", where=where, next_command=REMEDY) from error
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise FormatError(
            f"search result format {document.get('format')} version {document.get('version')} is not known",
            where=where,
            allowed=f"{FORMAT} version {VERSION}",
            next_command=f"read it with the FlashProf that wrote it, or {REMEDY}",
        )
    try:
        paths = [list(path) for path in dict(document["paths"]).items()]
        result = _read(SearchResult, {**document, "paths": paths}, "result")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"the search's result is damaged: {error}", where=where, next_command=REMEDY) from error
    assert isinstance(result, SearchResult)
    return result


def _members(causes: tuple[Cause, ...]) -> list[list[str]]:
    return [list(cause.members) for cause in causes]


def _belief(belief: Belief) -> dict[str, Any]:
    return {**asdict(belief), "causes": _members(belief.causes)}


def _proof(proof: Proof) -> dict[str, Any]:
    derived = {"is_shown": proof.is_shown, "is_refuted": proof.is_refuted}
    return {**asdict(proof), "cause": list(proof.cause.members), **derived}


def _read(kind: Any, raw: Any, name: str) -> Any:
    """
    A value of the annotated *kind* from what JSON made of it.

    Raises:
        TypeError, ValueError: It is no such value; says where in the document.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (some,) = (part for part in parts if part is not types.NoneType)
        return None if raw is None else _read(some, raw, name)
    if origin is tuple:
        items = _checked(raw, list, name)
        kinds = [parts[0]] * len(items) if parts[-1] is Ellipsis else list(parts)
        named = [f"{name}[{place}]" for place in range(len(items))]
        return tuple(_read(*item) for item in zip(kinds, items, named, strict=True))
    if origin is dict:
        return {key: _read(parts[1], item, f"{name}.{key}") for key, item in _checked(raw, dict, name).items()}
    if is_dataclass(kind):
        return _read_object(kind, raw, name)
    return _read_scalar(kind, raw, name)


def _read_object(kind: Any, raw: Any, name: str) -> Any:
    if kind is Cause:
        return Cause(_read(tuple[str, ...], raw, name))
    if kind is Interval:
        raw = _with_open_ends(_checked(raw, dict, name))
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind) if field.name in _checked(raw, dict, name)]
    return kind(**{key: _read(hints[key], raw[key], f"{name}.{key}") for key in known})


def _read_scalar(kind: Any, raw: Any, name: str) -> Any:
    if kind is float:
        # What could not be told, NaN, was written as null.
        return math.nan if raw is None else float(_checked(raw, (int, float), name))
    if issubclass(kind, StrEnum):
        return kind(_checked(raw, str, name))
    return _checked(raw, kind, name)


def _checked(raw: Any, kind: type | tuple[type, ...], name: str) -> Any:
    # Python counts true and false as numbers.
    if not isinstance(raw, kind) or (isinstance(raw, bool) and kind is not bool):
        raise TypeError(f"{name} is {raw!r}")
    return raw


def _with_open_ends(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    ends = {"low": -math.inf, "high": math.inf}
    return {**raw, **{end: bound for end, bound in ends.items() if raw.get(end, bound) is None}}
