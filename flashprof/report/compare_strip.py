"""A comparison's blocks drawn one below the other, so that drift and outliers are seen. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flashprof.contracts.comparison import Block
from flashprof.report.compare_sentences import block_change, change
from flashprof.report.strip_axis import Axis

MAX_ROWS = 24
"""More blocks than this share rows: a screenful is looked at, a longer list is scrolled past."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Characters of the drawing."""

    point: str
    spread: str
    zero: str
    left_out: str


ASCII = Marks(point="*", spread="-", zero="|", left_out="x")
UNICODE = Marks(point="●", spread="─", zero="│", left_out="×")


@dataclass(frozen=True, slots=True, kw_only=True)
class StripRow:
    """One block, or a few that follow each other."""

    label: str
    """`7`, or `7-9`."""
    order: str
    """Of one block alone."""
    difference: str
    """Mean relative change, as a percentage; a dash where no block counts."""
    drawing: str
    is_left_out: bool


def strip_rows(blocks: Sequence[Block], *, width: int, marks: Marks) -> list[StripRow]:
    """
    Draw each block's difference as a point on one common axis.

    Args:
        blocks: Of one method, in the order of their numbers; those left out are drawn, but do not stretch the axis.
        width: Columns of the drawing.
        marks: Characters to draw with.
    """
    axis = _axis(blocks, width)
    per_row = max(1, math.ceil(len(blocks) / MAX_ROWS))
    groups = [blocks[start : start + per_row] for start in range(0, len(blocks), per_row)]
    return [_row(group, axis, marks) for group in groups]


def scale(blocks: Sequence[Block], *, width: int) -> str:
    """The axis' two ends, written at its two ends."""
    axis = _axis(blocks, width)
    low, high = f"{change(axis.low)} %", f"{change(axis.high)} %"
    return low + high.rjust(max(width - len(low), len(high) + 1))


def _axis(blocks: Sequence[Block], width: int) -> Axis:
    values = _changes([block for block in blocks if not block.disturbances]) or _changes(blocks) or [0.0]
    low, high = min(values), max(values)
    # Zero is drawn where that leaves the scatter at least half of the axis: beside −17 % it would hide it.
    reach = high - low
    low, high = (min(low, 0.0) if low <= reach else low), (max(high, 0.0) if high >= -reach else high)
    # One point alone, or many at the same place: 0.1 % either way.
    room = max(0.0, 0.001 - (high - low) / 2)
    return Axis(low - room, high + room, width)


def _row(group: Sequence[Block], axis: Axis, marks: Marks) -> StripRow:
    counted = _changes([block for block in group if not block.disturbances])
    first, last = group[0].number, group[-1].number
    return StripRow(
        label=str(first) if len(group) == 1 else f"{first}-{last}",
        order=group[0].order if len(group) == 1 else "",
        difference=f"{change(sum(counted) / len(counted))} %" if counted else "left out",
        drawing=_draw(counted, _changes([block for block in group if block.disturbances]), axis, marks),
        is_left_out=not counted,
    )


def _draw(counted: Sequence[float], left_out: Sequence[float], axis: Axis, marks: Marks) -> str:
    cells = [" "] * axis.width
    if axis.low <= 0 <= axis.high:
        cells[axis.column(0.0)] = marks.zero
    for value in left_out:
        cells[axis.column(value)] = marks.left_out
    if counted:
        for column in range(axis.column(min(counted)), axis.column(max(counted)) + 1):
            cells[column] = marks.spread
        cells[axis.column(sum(counted) / len(counted))] = marks.point
    return "".join(cells).rstrip()


def _changes(blocks: Sequence[Block]) -> list[float]:
    return [value for value in map(block_change, blocks) if math.isfinite(value)]
