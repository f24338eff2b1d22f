"""Numbers and paths of the command line that Click has no type for."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import click

from flashprof.contracts.errors import UsageError

Callback = Callable[[click.Context, click.Parameter, str], float]

SECONDS_A_UNIT = MappingProxyType({"s": 1.0, "m": 60.0, "h": 3600.0})


class NamedPath(click.Path):
    """A path with a name: of an empty variable of a script, `Path` would make the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path that *value* spells."""
        if not os.fspath(value):
            self.fail("an empty string is no path.", param, ctx)
        return super().convert(value, param, ctx)


def share_between(low: float, high: float, *, example: str) -> Callback:
    """
    A callback that reads a share, as `1%` or `0.01`; `1` alone is refused where it would be 100 %.

    Args:
        low: Smallest share allowed, 0 to 1.
        high: Largest.
        example: A value as a user may write it, `1%`.
    """

    def read(ctx: click.Context, param: click.Parameter, value: str) -> float:
        del ctx
        text = value.strip()
        number = _float(text.removesuffix("%"))
        share = number / 100 if text.endswith("%") else number
        if not low <= share <= high:
            as_number = f"{float(example.removesuffix('%')) / 100:g}"
            allowed = f"{100 * low:.4g} % to {100 * high:.4g} %, written {example} or {as_number}"
            raise _not_taken(param, text, allowed, example)
        return share

    return read


def minutes(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """A callback that reads minutes above zero that end: Click's own range lets `inf` and `nan` pass."""
    del ctx
    number = _float(value)
    if not 0 < number < math.inf:
        raise _not_taken(param, value, "a number of minutes above 0", "14")
    return number


def duration_s(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """A callback that reads a length of time as seconds: `90s`, `30m`, `1.5h`; a bare number is minutes."""
    del ctx
    text = value.strip()
    unit_s = SECONDS_A_UNIT.get(text[-1:].lower())
    number = _float(text if unit_s is None else text[:-1])
    length_s = number * (unit_s or SECONDS_A_UNIT["m"])
    if not 0 < length_s < math.inf:
        raise _not_taken(param, value, "a time above 0, such as 90s, 30m or 1.5h; a bare number is minutes", "30m")
    return length_s


def parse_gpu_sets(texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """
    Read `0,1;2,3`, which may come in several options.

    Returns:
        One tuple a set.

    Raises:
        UsageError: Not of that form, a GPU twice, or sets of different sizes.
    """
    example = "--gpus '0,1;2,3'"
    parts = [part.strip() for text in texts for part in text.split(";")]
    for part in parts:
        if not re.fullmatch(r"[0-9]{1,4}(\s*,\s*[0-9]{1,4})*", part, flags=re.ASCII):
            raise UsageError(
                f"{part!r} is no set of GPUs",
                offered=";".join(texts),
                allowed="numbers with commas; a semicolon between sets",
                next_command=example,
            )
    sets = tuple(tuple(int(number) for number in part.split(",")) for part in parts)
    numbers = [number for gpus in sets for number in gpus]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise UsageError(
            f"GPU {twice[0]} is named twice",
            offered=";".join(texts),
            allowed="each GPU once, in one set",
            next_command=example,
        )
    if len({len(gpus) for gpus in sets}) > 1:
        raise UsageError(
            "the sets of GPUs differ in size, and so would the cells",
            offered=";".join(texts),
            allowed="as many GPUs in each set",
            next_command=example,
        )
    return sets


def _float(text: str) -> float:
    """NaN for what is no number: it is in no range."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _not_taken(param: click.Parameter, text: str, allowed: str, example: str) -> UsageError:
    option = param.opts[0]
    return UsageError(
        f"{option} does not take {text!r}", offered=text, allowed=allowed, next_command=f"{option} {example}"
    )
