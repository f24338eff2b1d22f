"""A change taken apart as a staircase from base to candidate, laid out for whatever draws it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashprof.contracts.localisation import Localisation, Part
from flashprof.report.localisation_sentences import part_name, through

MAX_STEPS = 10
LEAST_SHARE = 0.01
"""Clear parts with less of the change than this are in the last step."""
LEAST_UNCLEAR_SHARE = 0.05
REST = "the rest"
UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One part. Times are ns a token, from the base's total on."""

    name: str
    through: str
    start_ns: float
    end_ns: float
    low_ns: float
    """Ends of the interval of `end_ns`, as far as they are drawn; NaN where there is none."""
    high_ns: float
    share: float
    is_clear: bool
    is_wait: bool

    @property
    def change_ns(self) -> float:
        """What it adds to a token."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """All of it."""

    base: str
    candidate: str
    base_ns: float
    total_ns: float
    """The whole change."""
    steps: tuple[Step, ...]
    low_ns: float
    """Ends of the axis."""
    high_ns: float

    def place(self, ns: float) -> float:
        """Where a time lies on the axis, 0 to 1."""
        reach = self.high_ns - self.low_ns
        return min(max((ns - self.low_ns) / reach, 0.0), 1.0) if reach > 0 else 0.0


def waterfall(localisation: Localisation, *, max_steps: int = MAX_STEPS) -> Waterfall | None:
    """
    Lay the parts of a change one behind the other.

    Args:
        localisation: Its parts sum to the change; those that are small, or too many, are put together in a last step.
        max_steps: So many parts at most, without the last step.

    Returns:
        None where the change is no number.
    """
    total_ns = localisation.difference.estimate
    if not (math.isfinite(total_ns) and math.isfinite(localisation.base_ns_per_token)):
        return None
    steps: list[Step] = []
    at_ns = 0.0
    for part in _drawn(localisation.parts, max_steps):
        steps.append(_step(part, at_ns))
        at_ns = steps[-1].end_ns
    if abs(total_ns - at_ns) > 1e-9 * max(abs(total_ns), 1.0) or not steps:
        steps.append(_rest(at_ns, total_ns, is_all=not steps))
    ends = [0.0, total_ns, *(step.end_ns for step in steps)]
    low_ns, high_ns = min(ends), max(ends)
    # Intervals may reach on for half as much; one that is wider would hide the bars.
    room_ns = (high_ns - low_ns) / 2 or 1.0
    marks = [ns for step in steps for ns in (step.low_ns, step.high_ns) if math.isfinite(ns)]
    return Waterfall(
        base=localisation.base,
        candidate=localisation.candidate,
        base_ns=localisation.base_ns_per_token,
        total_ns=total_ns,
        steps=tuple(steps),
        low_ns=max(min([low_ns, *marks]), low_ns - room_ns),
        high_ns=min(max([high_ns, *marks]), high_ns + room_ns),
    )


def _drawn(parts: tuple[Part, ...], max_steps: int) -> list[Part]:
    """In the order of the parts: the largest in the direction of the change first, the largest against it last."""
    tall = [part for part in parts if _is_tall(part)]
    largest = sorted(tall, key=lambda part: (not part.is_clear, -abs(part.charge.estimate)))[:max_steps]
    return [part for part in tall if part in largest]


def _is_tall(part: Part) -> bool:
    if not (math.isfinite(part.charge.estimate) and math.isfinite(part.share)):
        return False
    return abs(part.share) >= (LEAST_SHARE if part.is_clear else LEAST_UNCLEAR_SHARE)


def _step(part: Part, start_ns: float) -> Step:
    return Step(
        name=part_name(part),
        through=through(part),
        start_ns=start_ns,
        end_ns=start_ns + part.charge.estimate,
        low_ns=start_ns + part.charge.low,
        high_ns=start_ns + part.charge.high,
        share=part.share,
        is_clear=part.is_clear,
        is_wait=part.kind == "wait",
    )


def _rest(start_ns: float, total_ns: float, *, is_all: bool) -> Step:
    return Step(
        name=UNEXPLAINED if is_all else REST,
        through="",
        start_ns=start_ns,
        end_ns=total_ns,
        low_ns=math.nan,
        high_ns=math.nan,
        share=(total_ns - start_ns) / total_ns if total_ns else 0.0,
        is_clear=False,
        is_wait=False,
    )
