"""
How many steps after a switch are not yet the new cell's, found in the steps themselves. Pure.

A switch can be followed by old work (a queue that drains), by slow steps (a cache or a compiled function that is
used again), or by nothing. The steps are lined up by their place since the switch, the median over switches is
taken, and its beginning is cut off, split by split, until what is left is level.

Measured, 300 seeded profiles of 20 steps each, noise of 4.7 % a step with a correlation of 0.5 between neighbours:

    nothing to settle               0 in 95 to 98 %
    one slow step                   1 in 98 %, never less
    8 steps of old work, 10 % off   8 or more in 98 % after 6 switches, in 89 % after 3
    the same, 5 % off               in 72 % after 6 switches

So it does not see old work that differs from the new by little more than the noise. Who knows how deep a queue is
says so with `min_settle_steps` of a plan. Calibration: tests/flashprof/stats/test_settle.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

MAX_DEVIATIONS = 3.0
"""
Between a beginning and the rest, in standard errors of independent steps. A cut for nothing costs a few steps a
window; a cut that is missing gives the other cell's steps to a window.
"""
MEDIAN_ERROR = 1.25
"""The standard error of a median over that of a mean."""
MIN_LEFT = 4
LOG_STANDSTILL = math.log(4)
"""A step of over 4 times the median time per token is a compile or a pause, as in `stats.steady`."""
MIN_STEP_ERROR = 0.005
"""Of a step's log time: steps that are alike to half a percent are level."""


def find_settle_steps(profiles: Sequence[Sequence[float]], max_steps: int) -> int:
    """
    Find how many steps to drop.

    Args:
        profiles: One a switch to the same cell: log time per token of the first, second, … step after it. Cut to the
            shortest.
        max_steps: The most that can be dropped.

    Returns:
        0 to *max_steps*; *max_steps* where there are fewer than 2 profiles, or no 4 level steps at their end.
    """
    import numpy as np

    length = min(map(len, profiles), default=0)
    last_cut = min(max_steps, length - MIN_LEFT)
    if len(profiles) < 2 or last_cut < 0:
        return max_steps
    aligned = np.array([profile[:length] for profile in profiles], dtype=np.float64)
    # Each switch has a level of its own, from drift; only the shape is asked for.
    aligned -= np.median(aligned[:, last_cut:], axis=1, keepdims=True)
    shape = np.median(aligned, axis=0)
    error = _step_error(aligned)
    cut = 0
    while not _is_level(shape[cut:], error):
        if cut == last_cut:
            return max_steps
        cut += _best_split(shape[cut:], last_cut - cut)
    return cut


def settle_steps_of_changes(profiles: Sequence[Sequence[float]], rises: Sequence[float], max_steps: int) -> int:
    """
    As `find_settle_steps`, over changes between any cells.

    Old work that drains is slower than the new in one change and faster in the next, and a median over both would not
    show it; slow first steps are slow in all. So the profiles are asked twice: as they are, and turned so that all old
    work lies on one side.

    Args:
        profiles: One a change.
        rises: Log time per token of the cell before over that of the cell after, one a change.
        max_steps: The most that can be dropped.
    """
    turned = [[math.copysign(1.0, rise) * value for value in row] for row, rise in zip(profiles, rises, strict=True)]
    return max(find_settle_steps(profiles, max_steps), find_settle_steps(turned, max_steps))


def has_standstill(log_times: Sequence[float]) -> bool:
    """Whether a step takes over 4 times the median time per token."""
    import numpy as np

    return bool(log_times) and float(np.max(log_times) - np.median(log_times)) > LOG_STANDSTILL


def is_warm(log_times: Sequence[float], num_first: int) -> bool:
    """
    Whether the first steps of a cell show that it does nothing for the first time any more.

    Two dozen steps say so where nothing compiles; steady state (`stats.steady`) takes 3 s of steps and more. False says
    only that more must be seen. Of 400 seeded series of 24 steps with noise of 5 %, 94 % of the level ones were
    warm (77 % at a correlation of 0.5 between neighbours), 21 % of those that fell by 2 % a step, none at 4 %.

    Args:
        log_times: Log time per token of the steps since the first switch to it.
        num_first: Steps that may have any level, but hold no standstill; at least 8 that are level must follow.
    """
    import numpy as np

    if len(log_times) < num_first + 2 * MIN_LEFT or has_standstill(log_times):
        return False
    rest = np.array(log_times[num_first:], dtype=np.float64)
    # From neighbours' differences: around one median a steady fall would pass for noise.
    deviation = 1.4826 * float(np.median(np.abs(np.diff(rest)))) / math.sqrt(2)
    return _is_level(rest, max(deviation, MIN_STEP_ERROR))


def _step_error(aligned: NDArray[float64]) -> float:
    """Standard error of one step of the median shape, from the scatter over switches."""
    import numpy as np

    freedom = len(aligned) - 1
    # The median over places, since a compile after one switch spoils only its own; Wilson–Hilferty's median of chi².
    variance = float(np.median(aligned.var(axis=0, ddof=1))) / (1 - 2 / (9 * freedom)) ** 3
    return MEDIAN_ERROR * math.sqrt(variance / len(aligned))


def _is_level(values: NDArray[float64], error: float) -> bool:
    """Whether no beginning of *values*, of 1, 2, 4, … steps, differs from what follows it."""
    num_head = 1
    while num_head <= len(values) - MIN_LEFT // 2:
        head, rest = values[:num_head], values[num_head:]
        allowed = MAX_DEVIATIONS * error * math.sqrt(1 / num_head + 1 / len(rest))
        if abs(float(head.mean() - rest.mean())) > allowed:
            return False
        num_head *= 2
    return True


def _best_split(values: NDArray[float64], max_head: int) -> int:
    """The length of the beginning that makes two levels fit best."""
    import numpy as np

    def misfit(num_head: int) -> float:
        head, rest = values[:num_head], values[num_head:]
        return float(np.sum((head - head.mean()) ** 2) + np.sum((rest - rest.mean()) ** 2))

    return min(range(1, max_head + 1), key=misfit)
