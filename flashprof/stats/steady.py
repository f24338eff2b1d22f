"""
Where steady state begins, found while the subject runs. Pure.

The rule, in words:

1. Steps are joined to blocks of at least 0.25 s; each block has a log time per token, so that a long batch and a
   short one compare.
2. The warm-up is what must be cut so that the mean of the rest is known best (MSER, White 1997): the cut that
   minimises variance over count. A standstill, a block of over 4 times the median, is always cut.
3. It has settled when the cut leaves at least half of the blocks and at least 12 (8 where those last 10 s), the
   medians of the rest's halves differ by at most 5 %, and no falling trend of 1 % or more shows in the rest
   (t ≥ −0.5). Where the rest has such a trend, its later half is looked at too.

Measured, 200 seeded series each, 0.1 s a step, CV 8 % and batches of 512 to 2,048 tokens, asked every 0.5 s:

    steady from the start          settled after 4.4 s (95 %: 6.2 s)
    slow compile at the start      cut at step 6 to 25, always behind the compile; settled after 4.8 s (6.5 s)
    compile after 2 good seconds   cut behind it, always
    falls by half, time constant   4 % stop while the level is still 5 % off; the others settle after 28 s (42 s)
    of 4 s

What no rule sees: a compile that comes after the answer, and a fall much slower than the steps looked at (12 steps
of 0.4 s do not show a time constant of 16 s). Pauses of over 4 times the median that come back for ever, closer
than half of the run, are never settled. Calibration: tests/flashprof/stats/test_steady.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

BLOCK_NS = 250_000_000
MIN_BLOCKS = 12
"""With 8, six of ten series that fall by half in 4 s are called steady too early; with 12, one."""
MIN_SLOW_BLOCKS = 8
SLOW_NS = 10_000_000_000
LOG_STANDSTILL = math.log(4)
"""
A block of over 4 times the median is no noise but a compile, and is cut off whatever follows: a minute after it the
least-variance cut would see it, but 12 blocks after it still prefers the many blocks before.
"""
MAX_DRIFT = 0.05
MIN_FALL = 0.01
"""A line that falls by less than 1 % over all its blocks is level, however certain its slope."""
MIN_TREND_T = -0.5


def find_steady(step_ends_ns: Sequence[int], step_tokens: Sequence[int]) -> int | None:
    """
    Find the first step of the steady state; costs about 1 ms for 5,000 steps.

    Args:
        step_ends_ns: End of each step of one rank so far, ascending.
        step_tokens: Tokens of each step.

    Returns:
        Index of the first steady step, at least 1 because the first step's start is not known; None while the
        steps have not settled.
    """
    import numpy as np

    lengths_ns, num_tokens, first_steps = _blocks(step_ends_ns, step_tokens)
    slow = sum(lengths_ns[-MIN_SLOW_BLOCKS:]) >= SLOW_NS
    min_blocks = MIN_SLOW_BLOCKS if slow else MIN_BLOCKS
    if len(lengths_ns) < min_blocks:
        return None
    log_time = np.log(np.array(lengths_ns, dtype=np.float64) / np.array(num_tokens))
    last_cut = min(len(log_time) // 2, len(log_time) - min_blocks)
    first_cut = max(_best_cut(log_time, min_blocks), _after_last_stop(log_time))
    # A long rest still shows the end of a slow fall that its later half has left behind.
    level = (cut for cut in (first_cut, last_cut) if first_cut <= cut <= last_cut and _is_level(log_time[cut:]))
    return next((first_steps[cut] for cut in level), None)


def _blocks(step_ends_ns: Sequence[int], step_tokens: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Length in ns, tokens and first step's index of each whole block; a block without tokens joins the next."""
    lengths_ns: list[int] = []
    num_tokens: list[int] = []
    first_steps: list[int] = []
    start_ns, tokens, first = step_ends_ns[0] if step_ends_ns else 0, 0, 1
    for index in range(1, len(step_ends_ns)):
        tokens += step_tokens[index]
        length_ns = step_ends_ns[index] - start_ns
        if length_ns >= BLOCK_NS and tokens > 0:
            lengths_ns.append(length_ns)
            num_tokens.append(tokens)
            first_steps.append(first)
            start_ns, tokens, first = step_ends_ns[index], 0, index + 1
    return lengths_ns, num_tokens, first_steps


def _best_cut(values: NDArray[float64], min_left: int) -> int:
    """The number of leading values without which the squared standard error of the mean is least."""
    import numpy as np

    # Centred first: sums of squares from the end lose digits where the mean is far larger than the noise.
    backwards = (values - np.median(values))[::-1]
    counts = np.arange(1, len(values) + 1)
    sums_of_squares = np.cumsum(backwards**2) - np.cumsum(backwards) ** 2 / counts
    error_by_cut = (sums_of_squares / counts**2)[::-1]
    return int(np.argmin(error_by_cut[: len(values) - min_left + 1]))


def _after_last_stop(values: NDArray[float64]) -> int:
    """The number of leading values up to the last one that is a standstill."""
    import numpy as np

    stops = np.flatnonzero(values > np.median(values) + LOG_STANDSTILL)
    return int(stops[-1]) + 1 if len(stops) else 0


def _is_level(values: NDArray[float64]) -> bool:
    """Whether neither the halves' medians nor a line through *values* show that they still fall."""
    import numpy as np

    half = len(values) // 2
    if abs(float(np.median(values[:half]) - np.median(values[-half:]))) > MAX_DRIFT:
        return False
    place = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(place @ values / (place @ place))
    if slope * len(values) > -MIN_FALL:
        return True
    rest = values - values.mean() - slope * place
    error = float(np.sqrt(rest @ rest / (len(values) - 2) / (place @ place)))
    return slope >= MIN_TREND_T * error
