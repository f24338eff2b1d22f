"""Small things that all views of the page share: names in the address, links, moments, signs of a verdict. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from urllib.parse import quote

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.outcome import Outcome
from flashprof.report import figures

MAX_SLUG = 60
MAX_TEXT = 400
"""Characters of a text of a run that the page shows: a function's name or a note may be megabytes long."""
SHORT_COMMIT = 12
"""Digits of a commit's id, as elsewhere."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict or an outcome in a word; the sign says the same to who sees no colours."""

    sign: str
    word: str
    tone: str
    """A class of the stylesheet: `good`, `bad`, `neutral`."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as a person reads it, and as a table sorts it."""

    text: str
    iso: str
    order: float
    """Seconds since the epoch; 0 where it is not known."""


def slugs(names: Iterable[str]) -> tuple[str, ...]:
    """One name for the address of each of *names*: `a-z0-9.+-` alone, each once, the same at every call."""
    taken: Counter[str] = Counter()
    made = []
    for name in names:
        stem = re.sub(r"[^a-z0-9.+]+", "-", name.lower()).strip("-.")[:MAX_SLUG] or "unnamed"
        slug = stem
        while slug in taken:
            taken[stem] += 1
            slug = f"{stem}-{taken[stem]}"
        taken[slug] += 1
        made.append(slug)
    return tuple(made)


def file_link(folder: str, path: str, root: str) -> str:
    """
    The address of a file of a run, relative to the page; empty where there is no safe one.

    Args:
        folder: Of the run, relative to the page; made by the reader, and may lead up where the page lies elsewhere.
        path: As the run wrote it down: where the file was then.
        root: Where the run's folder was then.
    """
    inner = PurePosixPath(path)
    if root and inner.is_relative_to(root):
        inner = inner.relative_to(root)
    if not folder or folder.startswith("/") or inner.is_absolute() or ".." in inner.parts:
        return ""
    whole = PurePosixPath(folder) / inner
    # `./` and the quoted colon: a folder called `javascript:…` or `//host` stays a folder.
    return "./" + quote(str(whole), safe="/", errors="replace")


def moment(iso: str) -> Moment:
    """An ISO 8601 time to the minute; anything else as it is."""
    try:
        read = datetime.fromisoformat(iso)
    except ValueError:
        return Moment(iso, iso, 0.0)
    known = read if read.tzinfo else read.replace(tzinfo=UTC)
    return Moment(f"{read:%Y-%m-%d %H:%M}", iso, (known - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


def clip(text: object, length: int = MAX_TEXT) -> str:
    """At most *length* characters."""
    whole = str(text)
    return whole if len(whole) <= length else f"{whole[: length - 1]}…"


def verdict_badge(verdict: Verdict, *, is_failed: bool = False) -> Badge:
    """A verdict with its sign and tone."""
    if is_failed:
        return Badge("✕", "failed", "bad")
    sign, tone = {
        Verdict.REGRESSION: ("▼", "bad"),
        Verdict.NO_REGRESSION: ("✓", "good"),
        Verdict.INCONCLUSIVE: ("?", "neutral"),
    }[verdict]
    return Badge(sign, str(verdict), tone)


def outcome_badge(outcome: Outcome) -> Badge:
    """The end of a launch; what may be compared with others has no loud colour."""
    if outcome.is_measurement:
        return Badge("✓", str(outcome), "quiet")
    is_fault = outcome not in (Outcome.INTERRUPTED, Outcome.ENDED_EARLY)
    return Badge("✕" if is_fault else "!", str(outcome), "bad" if is_fault else "neutral")


def bar_pct(share: float) -> float:
    """Length of a bar, 0 to 100."""
    return round(100 * min(max(share, 0.0), 1.0), 2) if math.isfinite(share) else 0.0


def microseconds(ns: float) -> str:
    """A time a token, about three digits, in µs."""
    if not math.isfinite(ns):
        return figures.DASH
    return f"{ns / 1e3:,.{1 if abs(ns) >= 9_995 else 2 if abs(ns) >= 99.5 else 3}f}"
