"""
Which phases a change of tok/s lies in, along the chain of waits. Pure.

The training lane's time per token is its phases and the gaps between them, so their changes add up to the change. What
it waits longer is the work of whom it waits for: the charge goes on to the phases of that lane, in the proportions in
which they grew, and from there to whom that lane waits for. A wait that nobody's work explains keeps its charge: the
queue is too shallow, or a hand-over too slow. What the awaited lane waits for the one that waits for it is its slack,
and no cause. Where a chain would come back to a role, it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from flashprof.contracts.localisation import AWAITED, BETWEEN, Part
from flashprof.contracts.results import Interval
from flashprof.stats.sequential import t_quantile
from flashprof.windows.costs import LaneCosts, OwnPhase, RoleLane
from flashprof.windows.lanes import MAIN_THREAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.intp]

LEVEL = 0.95
NUM_REDRAWS = 400
"""They tell a standard error to 4 %, and take 50 ms."""
BUSY_SHARE = 0.9
"""A device stream that is busy this share of the wall time limits its role, whatever its host thread says."""
RESOLUTION_NS_PER_TOKEN = 1e-6
"""A clock tells whole nanoseconds and a window has up to a million tokens: a change below this is rounding."""
MIN_LAUNCHES = 3
"""An arm with fewer launches is redrawn by windows: two launches have three redraws."""

PartKey = tuple[str, str, str, tuple[str, ...]]
"""Role, phase, kind, and the waits along which it is charged."""


@dataclass(frozen=True, kw_only=True)
class Charges:
    """The parts of one change."""

    difference: Interval
    """Of the training lane's time, ns a token: candidate − base."""
    base_ns_per_token: float
    parts: tuple[Part, ...]
    """The largest charge in the direction of the change first."""
    explained_share: float
    """Of the change, by clear parts."""
    is_by_launch: bool
    """Whether the intervals speak of other launches, too; else only of these."""


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Both arms as arrays over one list of phases, so that a redraw is a mean of rows."""

    lane_of: Mapping[str, RoleLane]
    """Role → the lane that is followed."""
    phases: Mapping[str, tuple[OwnPhase, ...]]
    """Role → phases of its lane, the gaps last."""
    values: tuple[Mapping[str, Floats], Mapping[str, Floats]]
    """An arm: role → (num_windows, num_phases)."""
    launches: tuple[Sequence[str], Sequence[str]]
    top: str
    """The role that trains."""


@dataclass(frozen=True, kw_only=True)
class _Redraws:
    charges: Sequence[Mapping[PartKey, float]]
    is_by_launch: bool
    num_units: tuple[int, int]
    """Launches or windows of each arm."""


@dataclass(slots=True)
class _Walk:
    changes: Mapping[str, Mapping[OwnPhase, float]]
    charges: dict[PartKey, float] = field(default_factory=dict)

    def take(self, role: str, amount: float | None, through: tuple[str, ...], seen: frozenset[str]) -> float:
        """Charge *amount* (None: all that changed) to the phases of *role* and whom it waits for; returns how much."""
        own: dict[OwnPhase, float] = {}
        upstream: dict[OwnPhase, float] = {}
        for (phase, kind), change in self.changes[role].items():
            awaited = AWAITED.get(phase, "") if kind == "wait" else ""
            if awaited in seen:
                continue
            is_chain = awaited in self.changes and awaited != role
            (upstream if is_chain else own)[phase, kind] = change
        growth = sum(own.values()) + sum(upstream.values())
        scale = 1.0 if amount is None else _share(amount, growth)
        for (phase, kind), change in own.items():
            self._charge(role, phase, kind, through, change * scale)
        for (phase, kind), change in upstream.items():
            step = (*through, f"{role} {phase}")
            passed = self.take(AWAITED[phase], change * scale, step, seen | {role})
            self._charge(role, phase, kind, through, change * scale - passed)
        return growth * scale

    def _charge(self, role: str, phase: str, kind: str, through: tuple[str, ...], amount: float) -> None:
        key = (role, phase, kind, through)
        self.charges[key] = self.charges.get(key, 0.0) + amount


def _share(amount: float, growth: float) -> float:
    """How much of *growth* makes up *amount*: 0 where it goes the other way, 1 where it does not reach."""
    if amount == 0 or growth == 0 or (amount > 0) != (growth > 0):
        return 0.0
    # Compared first: a growth of next to nothing (1e-308) would overflow the quotient.
    return 1.0 if abs(growth) <= abs(amount) else amount / growth


def charge_phases(
    base: Sequence[LaneCosts], candidate: Sequence[LaneCosts], rng: np.random.Generator
) -> Charges | None:
    """
    Take the change of the training lane's time per token apart.

    Args:
        base: Windows of one arm that count.
        candidate: Of the other.
        rng: Redraws launches, or windows where an arm has fewer than three launches.

    Returns:
        Parts that sum to the change, each with a 95 % interval: the redraws' standard error by Student's t. None where
        an arm has fewer than two windows, or no events of a role that trains.
    """
    columns = _columns(base, candidate)
    if columns is None:
        return None
    walked = _charges(columns, np.arange(len(base)), np.arange(len(candidate)))
    redraws = _redraws(columns, rng)
    total = sum(walked.values())
    difference = _interval(total, [sum(charges.values()) for charges in redraws.charges], redraws.num_units)
    parts = [_part(columns, key, charge, total, redraws) for key, charge in walked.items() if charge]
    ordered = sorted(parts, key=lambda part: -part.charge.estimate * np.sign(total))
    return Charges(
        difference=difference,
        base_ns_per_token=float(columns.values[0][columns.top].sum(axis=1).mean()),
        parts=_with_places(ordered, redraws.charges),
        explained_share=float(sum(part.share for part in parts if part.is_clear)),
        is_by_launch=redraws.is_by_launch,
    )


def _columns(base: Sequence[LaneCosts], candidate: Sequence[LaneCosts]) -> _Columns | None:
    both = (base, candidate)
    trains = sorted({role for costs in both for window in costs for role in window.trains})
    roles = sorted({role for costs in both for window in costs for role, _ in window.lanes})
    if min(len(base), len(candidate)) < 2 or not trains or trains[0] not in roles:
        return None
    lane_of = {role: _followed(role, candidate) for role in roles}
    phases = {role: _phases(lane, both) for role, lane in lane_of.items()}
    base_values, new_values = (
        {role: np.array([_row(window, lane, phases[role]) for window in costs]) for role, lane in lane_of.items()}
        for costs in both
    )
    return _Columns(
        lane_of=lane_of,
        phases=phases,
        values=(base_values, new_values),
        launches=([window.launch for window in base], [window.launch for window in candidate]),
        top=trains[0],
    )


def _followed(role: str, candidate: Sequence[LaneCosts]) -> RoleLane:
    """The device stream that is all but always busy, where there is one; else the main thread."""
    busy: dict[RoleLane, float] = {}
    wall_ns = sum(window.wall_ns_per_token for window in candidate)
    for window in candidate:
        for lane, phases in window.lanes.items():
            if lane[0] == role and lane[1] != MAIN_THREAD:
                work = sum(own_ns for (_, kind), own_ns in phases.items() if kind == "work")
                busy[lane] = busy.get(lane, 0.0) + work / wall_ns
    best = max(busy, key=lambda lane: busy[lane], default=(role, MAIN_THREAD))
    return best if busy.get(best, 0.0) >= BUSY_SHARE else (role, MAIN_THREAD)


def _phases(lane: RoleLane, both: Sequence[Sequence[LaneCosts]]) -> tuple[OwnPhase, ...]:
    found = dict.fromkeys(phase for costs in both for window in costs for phase in window.lanes.get(lane, {}))
    return (*found, (BETWEEN, "work"))


def _row(window: LaneCosts, lane: RoleLane, phases: Sequence[OwnPhase]) -> list[float]:
    held = window.lanes.get(lane, {})
    row = [held.get(phase, 0.0) for phase in phases[:-1]]
    return [*row, window.wall_ns_per_token - sum(row)]


def _charges(columns: _Columns, base: Indices, candidate: Indices) -> dict[PartKey, float]:
    old, new = columns.values
    changes = {
        role: dict(zip(phases, new[role][candidate].mean(axis=0) - old[role][base].mean(axis=0), strict=True))
        for role, phases in columns.phases.items()
    }
    walk = _Walk(changes)
    walk.take(columns.top, None, (), frozenset())
    return walk.charges


def _redraws(columns: _Columns, rng: np.random.Generator) -> _Redraws:
    num_launches = [len(set(launches)) for launches in columns.launches]
    is_by_launch = min(num_launches) >= MIN_LAUNCHES
    units = num_launches if is_by_launch else [len(launches) for launches in columns.launches]
    old, new = columns.launches
    return _Redraws(
        charges=[
            _charges(columns, _redraw(old, rng, by_launch=is_by_launch), _redraw(new, rng, by_launch=is_by_launch))
            for _ in range(NUM_REDRAWS)
        ],
        is_by_launch=is_by_launch,
        num_units=(units[0], units[1]),
    )


def _redraw(launches: Sequence[str], rng: np.random.Generator, *, by_launch: bool) -> Indices:
    """Indices of windows, drawn with replacement: whole launches, or windows of all of them."""
    if not by_launch:
        return rng.integers(len(launches), size=len(launches)).astype(np.intp)
    names = np.array(launches)
    drawn = rng.choice(np.unique(names), size=len(np.unique(names)))
    return np.concatenate([np.flatnonzero(names == name) for name in drawn])


def _part(columns: _Columns, key: PartKey, charge: float, total: float, redraws: _Redraws) -> Part:
    role, phase, kind, through = key
    place = columns.phases[role].index((phase, kind))
    old, new = (values[role][:, place].mean() for values in columns.values)
    interval = _interval(charge, [charges.get(key, 0.0) for charges in redraws.charges], redraws.num_units)
    return Part(
        role=role,
        phase=phase,
        kind=kind,
        thread=columns.lane_of[role][1],
        base_ns_per_token=float(old),
        candidate_ns_per_token=float(new),
        charge=interval,
        share=float(charge / total) if abs(total) > RESOLUTION_NS_PER_TOKEN else 0.0,
        through=through,
        is_clear=bool(interval.low > 0 or interval.high < 0),
    )


def _with_places(ordered: Sequence[Part], redraws: Sequence[Mapping[PartKey, float]]) -> tuple[Part, ...]:
    """How often each part has the largest charge, in the direction of the whole change."""
    if not ordered:
        return ()
    keys = [(part.role, part.phase, part.kind, part.through) for part in ordered]
    sign = np.sign(ordered[0].charge.estimate)
    table = np.array([[sign * redraw.get(key, 0.0) for key in keys] for redraw in redraws])
    shares = np.bincount(table.argmax(axis=1), minlength=len(keys)) / len(redraws)
    return tuple(replace(part, first_share=float(share)) for part, share in zip(ordered, shares, strict=True))


def _interval(estimate: float, redrawn: Sequence[float], num_units: tuple[int, int]) -> Interval:
    """Percentiles of so few units would be too narrow: those of five windows cover 84 %, not 95."""
    fewest = min(num_units)
    # A redraw of n units has (n − 1) / n of the variance.
    error = float(np.std(redrawn)) * (fewest / (fewest - 1)) ** 0.5
    half = t_quantile(sum(num_units) - 2, tail=(1 - LEVEL) / 2) * error
    return Interval(
        estimate=float(estimate),
        low=float(estimate - half),
        high=float(estimate + half),
        level=LEVEL,
        num_samples=sum(num_units),
        method=f"Student's t on the standard error of {len(redrawn)} redraws",
    )
