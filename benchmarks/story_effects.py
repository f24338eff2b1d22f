"""
Cells of the story, and what their readings say. Pure.

Cells come in two groups, those near `none` and those near `all`. A round visits each cell of both once; a group's
readings of a round share what the machine was like then. So log tok/s = its cell + its group's round + noise, fitted
by least squares over all cells, and the noise that a cell with few readings cannot show is taken from all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import stdtrit

from flashprof.contracts.results import Interval
from flashprof.contracts.toggles import Toggle, ToggleValues

NONE, ALL = "none", "all"
PAIRS = (
    ("compile", "analytic-mask"),
    ("compile", "swa"),
    ("analytic-mask", "swa"),
    ("async-metrics", "grad-norm"),
    ("compile-target", "packed-target"),
)
"""
Two that may do the same work or hide each other: an evaluated mask is avoided by either of the first two, needed half
as often with the third; one synchronisation of a step hides the next; a target that is neither compiled nor packed is
what `flashprof bisect` found on an H200, where either of the two is enough.
"""
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One assignment of the hot toggles."""

    name: str
    group: str
    """`none` or `all`: what it is near, and compared with."""
    members: tuple[str, ...]
    """The toggles in which it differs from there; empty for the group's own cell."""
    values: ToggleValues
    """Hot toggles only."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A visit that is planned."""

    cell: Cell
    round: int
    counts: bool
    """False where the queue still holds what was made under the last cell's setting."""


@dataclass(frozen=True, kw_only=True)
class CellReading:
    """One window of a cell."""

    cell: str
    round: int
    log_tok_per_s: float


@dataclass(frozen=True, kw_only=True)
class CellEffect:
    """A cell against its group's own."""

    cell: str
    group: str
    members: tuple[str, ...]
    tok_per_s: float
    effect: Interval
    """Relative change of tok/s; positive for a toggle alone that helps, negative for one that is missed."""
    share: float
    """Of the log change between `none` and `all`, in that direction."""


def make_cells(registry: Sequence[Toggle], left_out: Sequence[str]) -> list[Cell]:
    """
    Both ends, each hot toggle alone and left out, and the pairs that matter, left out together.

    Args:
        registry: All toggles; cold ones are not switched here.
        left_out: Names of those that this machine cannot honour.
    """
    hot = [toggle for toggle in registry if toggle.hot and toggle.name not in left_out]
    off: ToggleValues = {toggle.name: toggle.default for toggle in hot}
    on: ToggleValues = {toggle.name: toggle.on for toggle in hot}
    cells = [Cell(name=NONE, group=NONE, members=(), values=off), Cell(name=ALL, group=ALL, members=(), values=on)]
    for toggle in hot:
        needed = {name for name in toggle.requires if name in on}
        alone = off | {name: on[name] for name in (toggle.name, *needed)}
        cells.append(Cell(name=toggle.name, group=NONE, members=(toggle.name,), values=alone))
        cells.append(_without(hot, on, off, (toggle.name,)))
    names = {toggle.name for toggle in hot}
    return [*cells, *(_without(hot, on, off, pair) for pair in PAIRS if names.issuperset(pair))]


def tour(cells: Sequence[Cell], upstream: frozenset[str], rng: np.random.Generator) -> Iterator[Stop]:
    """
    Visits without end: rounds, in each both groups, in each its own cell first and half-way, the others in random
    order.

    Args:
        cells: Each is visited once a round, `none` and `all`, which all others are compared with, twice.
        upstream: Toggles that act in front of the queue. Behind a change of one, the first window is thrown away: the
            queue drains in it, which flatters the cell or gives it the last one's speed.
        rng: Of the orders.
    """
    before: Cell | None = None
    number = 0
    while True:
        number += 1
        for group in rng.permutation((NONE, ALL)):
            for cell in _pass(cells, group, rng):
                if before is not None and any(before.values[name] != cell.values[name] for name in upstream):
                    yield Stop(cell=cell, round=number, counts=False)
                yield Stop(cell=cell, round=number, counts=True)
                before = cell


def fit_effects(cells: Sequence[Cell], readings: Sequence[CellReading]) -> list[CellEffect]:
    """
    Every cell that was read, against its group's own cell.

    Returns:
        Empty where an end has no reading, or nothing is left to see noise by.
    """
    by_name = {cell.name: cell for cell in cells}
    known = [reading for reading in readings if reading.cell in by_name]
    names = list(dict.fromkeys(reading.cell for reading in known))
    if not {NONE, ALL} <= set(names):
        return []
    rounds = list(dict.fromkeys((by_name[r.cell].group, r.round) for r in known))
    # The first round of each group is the level that the others are told from.
    later = [key for key in rounds if key[1] != min(number for group, number in rounds if group == key[0])]
    rows = np.array(
        [
            [*(r.cell == name for name in names), *((by_name[r.cell].group, r.round) == key for key in later)]
            for r in known
        ],
        dtype=float,
    )
    values = np.array([reading.log_tok_per_s for reading in known])
    rank = int(np.linalg.matrix_rank(rows))
    freedom = len(known) - rank
    if freedom < 1:
        return []
    inverse = np.linalg.pinv(rows.T @ rows)
    found = inverse @ rows.T @ values
    variance = float(np.sum((values - rows @ found) ** 2)) / freedom
    position = {name: index for index, name in enumerate(names)}
    span = float(found[position[ALL]] - found[position[NONE]])
    effects = []
    for name in names:
        cell = by_name[name]
        contrast = np.zeros(len(found))
        contrast[position[name]] += 1
        contrast[position[cell.group]] -= 1
        difference = float(contrast @ found)
        error = math.sqrt(max(0.0, variance * float(contrast @ inverse @ contrast)))
        sign = 1 if cell.group == NONE else -1
        effects.append(
            CellEffect(
                cell=name,
                group=cell.group,
                members=cell.members,
                tok_per_s=math.exp(float(found[position[name]])),
                effect=_interval(difference, error, freedom, len(known)),
                share=sign * difference / span if span else 0.0,
            )
        )
    return effects


def joint_costs(effects: Sequence[CellEffect]) -> list[tuple[tuple[str, str], float, float]]:
    """Pairs that were left out together: `(pair, change together, change that both have alone, added up)`, as log."""
    alone = {effect.members[0]: _log(effect) for effect in effects if effect.group == ALL and len(effect.members) == 1}
    together = {effect.members: _log(effect) for effect in effects if effect.group == ALL and len(effect.members) > 1}
    return [
        (pair, together[pair], alone[pair[0]] + alone[pair[1]])
        for pair in (pair for names in together for pair in combinations(names, 2) if names == pair)
        if set(pair) <= alone.keys()
    ]


def _pass(cells: Sequence[Cell], group: str, rng: np.random.Generator) -> list[Cell]:
    (own,) = (cell for cell in cells if cell.name == group)
    others = [cell for cell in cells if cell.group == group and cell is not own]
    order = [others[index] for index in rng.permutation(len(others))]
    return [own, *order[: len(order) // 2], own, *order[len(order) // 2 :]]


def _without(hot: Sequence[Toggle], on: ToggleValues, off: ToggleValues, members: tuple[str, ...]) -> Cell:
    """`all` less *members*, and less what requires one of them."""
    gone = {toggle.name for toggle in hot if toggle.name in members or set(toggle.requires) & set(members)}
    return Cell(
        name=",".join((ALL, *(f"-{name}" for name in members))),
        group=ALL,
        members=members,
        values=on | {name: off[name] for name in gone},
    )


def _interval(difference: float, error: float, freedom: int, num_readings: int) -> Interval:
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    return Interval(
        estimate=math.expm1(difference),
        low=math.expm1(difference - half),
        high=math.expm1(difference + half),
        level=LEVEL,
        num_samples=num_readings,
        method="t-interval, noise pooled over all cells of one launch; another launch may differ by more",
    )


def _log(effect: CellEffect) -> float:
    return math.log1p(effect.effect.estimate)
