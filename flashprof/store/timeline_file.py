"""
`timeline.json` in a run folder: some steps of its lanes and its gauges, so that a page is drawn without the events.

Format history
    1  2026-11  start_s, length_s, lanes {name, phases, kinds, pieces}, series {name, at_s, values}
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import SpanKind
from flashprof.contracts.site import Series, Timeline, TimelineLane

FORMAT = "flashprof-timeline"
VERSION = 1
FILE = "timeline.json"
REMEDY = "read it with the FlashProf that wrote it, or measure again"
MAX_BYTES = 4 * 2**20
"""A full one, 4,000 pieces and 34 series, takes 0.3 MiB."""
MAX_ITEMS = 10_000
"""Of any list: a page must not drown in what a folder from elsewhere holds."""
MAX_CHARACTERS = 300
MAX_S = 1e9
"""30 years."""
MAX_US = 10**15
MAX_VALUE = 1e300
"""The difference of two, times a height in pixels, is a number still."""


def timeline_to_json(timeline: Timeline) -> str:
    """One JSON document."""
    document = {"format": FORMAT, "version": VERSION, **asdict(timeline)}
    return json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"


def read_timeline(folder: Path) -> Timeline | None:
    """
    The timeline of a run folder; None where it has none, as those of older versions.

    Raises:
        FormatError: Of another version, damaged, larger than one can be, or no plain file.
    """
    path = folder / FILE
    try:
        # Neither a pipe, which would hang the reader, nor a link, which could lead out of the folder.
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            raise FormatError(
                "the timeline is no plain file of a sensible size",
                where=str(path),
                offered=f"{found.st_size:,} bytes",
                allowed=f"at most {MAX_BYTES:,}",
                next_command=REMEDY,
            )
        document = json.loads(path.read_bytes())
        name, version = document["format"], document["version"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{FILE} is no timeline", where=str(path), next_command=REMEDY) from error
    if name != FORMAT or version != VERSION:
        raise FormatError(
            f"timeline format {str(name)[:MAX_CHARACTERS]} version {str(version)[:MAX_CHARACTERS]} is not known",
            where=str(path),
            allowed=f"{FORMAT} version {VERSION}",
            next_command=REMEDY,
        )
    try:
        return _timeline(document)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FormatError(
            f"the timeline is damaged: {str(error)[:MAX_CHARACTERS]}", where=str(path), next_command=REMEDY
        ) from error


def _timeline(raw: Mapping[str, Any]) -> Timeline:
    return Timeline(
        start_s=_number(raw["start_s"], MAX_S),
        length_s=abs(_number(raw["length_s"], MAX_S)),
        lanes=tuple(_lane(lane) for lane in _list(raw["lanes"])),
        series=tuple(_series(series) for series in _list(raw["series"])),
    )


def _lane(raw: Mapping[str, Any]) -> TimelineLane:
    phases = tuple(_text(phase) for phase in _list(raw["phases"]))
    kinds = tuple(str(SpanKind(kind)) for kind in _list(raw["kinds"]))
    if len(phases) != len(kinds):
        raise ValueError("as many kinds as phases are needed")
    pieces = []
    at_us = 0
    for start_us, end_us, phase in _list(raw["pieces"]):
        if any(type(value) is not int for value in (start_us, end_us, phase)):
            raise ValueError("a piece is three whole numbers")
        if not at_us <= start_us <= end_us <= MAX_US or not 0 <= phase < len(phases):
            raise ValueError("a piece overlaps another, or has no phase")
        pieces.append((start_us, end_us, phase))
        at_us = end_us
    return TimelineLane(name=_text(raw["name"]), phases=phases, kinds=kinds, pieces=tuple(pieces))


def _series(raw: Mapping[str, Any]) -> Series:
    at_s = tuple(_number(value, MAX_S) for value in _list(raw["at_s"]))
    values = tuple(_number(value, MAX_VALUE) for value in _list(raw["values"]))
    if len(at_s) != len(values):
        raise ValueError("as many values as moments are needed")
    return Series(name=_text(raw["name"]), at_s=at_s, values=values)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise ValueError(f"a list of at most {MAX_ITEMS:,} was expected")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a name was expected")
    return value[:MAX_CHARACTERS]


def _number(value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number was expected")
    # Compared first: `float` of a whole number above 1e308 is an error. NaN is not below anything.
    if not abs(value) <= most:
        raise ValueError("a number is out of range")
    return float(value)
