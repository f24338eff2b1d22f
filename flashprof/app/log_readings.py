"""Throughput that a foreign trainer prints, read from its log while it grows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.errors import UsageError

_NUMBER = r"(?P<value{n}>\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_SECOND = r"s(?:ec(?:onds?)?)?"
_WORDS = rf"(?:(?:\w+_)?tok(?:ens?)?(?:/|_|_per_|\sper\s){_SECOND}(?:(?:/|_per_)(?:gpu|device))?|tps)"
# A unit ends there: the M of `tokens/s: 900 MFU 40 %` is none.
_AFTER = rf"\b{_WORDS}\b['\"]?\s*[:=]\s*['\"]?{_NUMBER.format(n='')}(?:\s?(?P<unit>[kKM])\b)?"
_BEFORE = rf"{_NUMBER.format(n='2')}\s*(?P<unit2>[kKM])?\s*tok(?:ens?)?(?:/|\sper\s){_SECOND}\b(?!\s*[:=])"
DEFAULT_PATTERN = f"{_AFTER}|{_BEFORE}"
"""
`tps: 1,234` (torchtitan), `'train_tokens_per_second': 99.1` (HF Trainer), `tokens_per_second_per_gpu:831` (torchtune),
`tok/s=12,345` (ours), `1.2k tokens/s`. Megatron prints no token rate: it needs a pattern or the emitter.
"""
_WRONG_LOSS = re.compile(r"\b(?:train_)?loss['\"]?\s*[:=]\s*['\"]?[-+]?(?:nan|inf)", re.IGNORECASE)
# Colours: torchtitan prints `\x1b[34mtps: 1,234`, where the m would be part of the word.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

EXAMPLE = r"--tok-per-s 'tok/s=([\d,.]+)'"
MAX_SHOWN = 120
"""Characters of a pattern in a message."""
FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}


@dataclass(frozen=True, slots=True)
class Reading:
    """A throughput that the subject printed, and when it was seen."""

    at_ns: int
    tok_per_s: float


class LogReadings:
    """All readings of one log so far; each call reads only what is new."""

    def __init__(self, path: Path, pattern: str) -> None:
        self._path = path
        self._pattern = compile_pattern(pattern or DEFAULT_PATTERN)
        self._offset = 0
        self.readings: list[Reading] = []
        self.last_line = ""
        self.wrong = ""
        """The first line in which the subject printed a loss that is no number."""

    def poll(self, now_ns: int) -> bool:
        """Read what came since the last call; whether there was anything."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return False
        # tqdm ends its updates with a carriage return, so those count as lines too.
        whole = content[: max(content.rfind(b"\n"), content.rfind(b"\r")) + 1]
        self._offset += len(whole)
        for line in re.split(r"[\r\n]+", whole.decode("utf-8", errors="replace")):
            self._read_line(_ESCAPES.sub("", line).strip(), now_ns)
        return bool(whole)

    def _read_line(self, line: str, now_ns: int) -> None:
        if not line:
            return
        self.last_line = line
        if not self.wrong and _WRONG_LOSS.search(line):
            self.wrong = f"the subject printed a loss that is no number: {line[:120]}"
        match = self._pattern.search(line)
        value = parse_match(match) if match else None
        if value is not None:
            self.readings.append(Reading(now_ns, value))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """
    A user's pattern.

    Raises:
        UsageError: No regular expression, or one without a group for the number.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else error
        raise UsageError(
            f"--tok-per-s is no regular expression: {what}",
            offered=pattern[:MAX_SHOWN],
            allowed="one with a group for the number",
            next_command=EXAMPLE,
        ) from error
    if not compiled.groups:
        raise UsageError(
            "--tok-per-s has no group for the number",
            offered=pattern,
            allowed="one group, or one named `value`",
            next_command=EXAMPLE,
        )
    return compiled


def parse_match(match: re.Match[str]) -> float | None:
    """Tok/s from a match: group `value` with its `unit` (k, M), or the first group; None where it is no rate."""
    groups = match.groupdict()
    text = groups.get("value") or groups.get("value2") or match.group(1)
    unit = groups.get("unit") or groups.get("unit2") or ""
    try:
        tok_per_s = float((text or "").replace(",", "")) * FACTORS[unit]
    except (ValueError, KeyError):
        return None
    return tok_per_s if math.isfinite(tok_per_s) and tok_per_s > 0 else None
