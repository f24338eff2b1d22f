"""What a rule about one suspect looks at, and how much of the change its evidence covers. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flashprof.contracts.localisation import FrameChange, Part
from flashprof.contracts.results import Interval, ThreadRow
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.lanes import MAIN_THREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """What some evidence covers of a change, in ns a token: candidate − base."""

    amount: float = 0.0
    low: float = 0.0
    high: float = 0.0
    is_clear: bool = False

    def __add__(self, other: Cover) -> Cover:
        """
        Both together.

        Errors add up as they are, which holds whatever their correlation: phases that a wait is charged to share it.
        """
        return Cover(
            amount=self.amount + other.amount,
            low=self.low + other.low,
            high=self.high + other.high,
            is_clear=self.is_clear or other.is_clear,
        )

    def within(self, limit: Cover) -> Cover:
        """No more than *limit*, of the same sign: work of a role that nobody waits for costs nothing."""
        return replace(
            self,
            amount=_clipped(self.amount, limit.amount),
            low=_clipped(self.low, limit.low if self.low < 0 else limit.high),
            high=_clipped(self.high, limit.low if self.high < 0 else limit.high),
            is_clear=self.is_clear and limit.is_clear,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule found."""

    evidence: str
    """The numbers of both arms."""
    cover: Cover | None = None
    """None: what it needs was not measured."""
    missing: str = ""
    """What would measure it, and the command."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that rules look at."""

    base: ArmEvidence
    candidate: ArmEvidence
    parts: Sequence[Part]
    frames: Sequence[FrameChange]
    difference_ns: float
    """A token."""

    @property
    def arms(self) -> tuple[ArmEvidence, ArmEvidence]:
        """Base and candidate."""
        return self.base, self.candidate

    def charged(self, wanted: Callable[[Part], bool]) -> Cover:
        """What the parts that are *wanted* have of the change; anything, where phases were not compared."""
        if not self.parts:
            return Cover(low=-math.inf, high=math.inf)
        covers = [_of_interval(part.charge, is_clear=part.is_clear) for part in self.parts if wanted(part)]
        total = sum(covers, Cover())
        return replace(total, is_clear=total.is_clear and (total.low > 0 or total.high < 0))

    def limit(self, role: str, phase: str = "") -> Cover:
        """The most that something within a role's work, or within one of its phases, can have of the change."""
        toward = 1 if self.difference_ns > 0 else -1
        held = [part for part in self.parts if part.role == role and (part.phase == phase or not phase)]
        grown = [part for part in held if part.charge.estimate * toward > 0 and (phase or part.kind == "work")]
        return sum((_of_interval(part.charge, is_clear=part.is_clear) for part in grown), Cover())

    def limited(self, cover: Cover, role: str, phase: str = "") -> Cover:
        """No more than what is charged there; as it is where phases are not known."""
        return cover.within(self.limit(role, phase)) if self.parts else cover

    def in_frames(self, wanted: Callable[[FrameChange], bool]) -> Cover:
        """
        What functions have of the change.

        Of functions in one phase the one that changed most counts, since they may call each other; and no more than the
        phase is charged with.
        """
        largest: dict[tuple[str, str], FrameChange] = {}
        for frame in filter(wanted, self.frames):
            place = (frame.role, frame.phase)
            if place not in largest or abs(frame.inclusive.estimate) > abs(largest[place].inclusive.estimate):
                largest[place] = frame
        covers = [
            self.limited(_of_interval(frame.inclusive, is_clear=frame.is_clear), frame.role, frame.phase)
            for frame in largest.values()
        ]
        return sum(covers, Cover())

    @property
    def roles(self) -> tuple[str, ...]:
        """Those that the change is charged to, the most first; those that train where phases were not compared."""
        if not self.parts:
            return tuple(sorted(self.candidate.trains))
        toward = 1 if self.difference_ns > 0 else -1
        roles = dict.fromkeys(part.role for part in self.parts)
        charged = {role: toward * self.limit(role).amount for role in roles}
        return tuple(sorted((role for role in roles if charged[role] > 0), key=lambda role: -charged[role]))

    @property
    def is_on_gpu(self) -> bool:
        """Whether an arm has a device's lane, or says that it ran on one."""
        return any(
            "cuda" in arm.facts.get("workload.device", "")
            or arm.gpus
            or any(":cuda" in r.lane.thread for r in arm.lanes)
            for arm in self.arms
        )

    @property
    def is_on_cpu(self) -> bool:
        """Whether both arms say that they ran on the CPU."""
        return all(arm.facts.get("workload.device") == "cpu" for arm in self.arms)


def exact(amount: float, *, is_clear: bool) -> Cover:
    """A figure that was counted, or of which only one value an arm is there."""
    return Cover(amount=amount, low=amount, high=amount, is_clear=is_clear)


def phase_ns(arm: ArmEvidence, wanted: Callable[[str, str], bool]) -> float | None:
    """Own ns a token of the phases for which *wanted(role, phase)*, main threads; None where there is none."""
    held = [own for (role, thread, phase), own in arm.phases.items() if thread == MAIN_THREAD and wanted(role, phase)]
    return arm.per_token(sum(held)) if held else None


def main_threads(arm: ArmEvidence, role: str) -> tuple[ThreadRow, ...]:
    """One row a rank: the busiest thread called as its process is, else the busiest."""
    return tuple(
        next((row for row in rows if row.thread == f"{role}-{rank}"), rows[0]) for rank, rows in _ranks(arm, role)
    )


def other_threads(arm: ArmEvidence, role: str) -> tuple[ThreadRow, ...]:
    """All but the main ones."""
    main = main_threads(arm, role)
    return tuple(row for row in arm.threads if row.role == role and not any(row is item for item in main))


def cost(ns: float) -> str:
    """`12.3 µs`, about three digits; below 0.1 µs in ns."""
    if abs(ns) < 100:
        return f"{_plain(ns, 0 if ns == 0 or abs(ns) >= 10 else 1)} ns"
    return f"{_plain(ns / 1e3, 0 if abs(ns) >= 99_950 else 1 if abs(ns) >= 9_995 else 2)} µs"


def change(base: float, candidate: float) -> str:
    """`1.2 µs → 3.4 µs a token`."""
    return f"{cost(base)} → {cost(candidate)} a token"


def percent(share: float) -> str:
    """A share as a percentage, one decimal below 10 %."""
    return f"{_plain(100 * share, 0 if abs(share) >= 0.0995 else 1)} %"


def _ranks(arm: ArmEvidence, role: str) -> list[tuple[int, list[ThreadRow]]]:
    held: dict[int, list[ThreadRow]] = {}
    for row in arm.threads:
        if row.role == role:
            held.setdefault(row.rank, []).append(row)
    return sorted(held.items())


def _of_interval(interval: Interval, *, is_clear: bool) -> Cover:
    return Cover(amount=interval.estimate, low=interval.low, high=interval.high, is_clear=is_clear)


def _clipped(amount: float, limit: float) -> float:
    if amount * limit <= 0:
        return 0.0
    return min(amount, limit) if amount > 0 else max(amount, limit)


def _plain(value: float, num_decimals: int) -> str:
    return f"{value:,.{num_decimals}f}".replace("-", "−")
