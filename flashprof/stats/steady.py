"""
Where steady state begins, found while the subject runs. Pure.

The rule, in words:

1. Steps are joined to blocks of at least 0.25 s; each block has a log time per token, so that a long batch and a
   short one compare.
2. A pause is a block of over 4 times the median, and the last one begins the series anew: it was a compile. But where
   there are at least 6, alike, and as many in the later half of the time since the first of them as in the earlier one
   (within a factor of 2), they are part of the steady state, as checkpoints are, and are passed over in what follows.
3. The warm-up is what must be cut so that the mean of the rest is known best (MSER, White 1997): the cut that
   minimises variance over count.
4. It has settled when the cut leaves at least half of the blocks and at least 12 (8 where those last 10 s; 5 where
   those last 10 s and scatter by at most 2 %), the medians of the rest's halves differ by at most 5 %, and no falling
   trend of 1 % or more shows in the rest (t ≥ −0.5). Where the rest has such a trend, its later half is looked at too.

Measured, 200 seeded series each, 0.1 s a step, CV 8 % and batches of 512 to 2,048 tokens, asked every 0.5 s:

    steady from the start          settled after 4.2 s (95 %: 6.1 s)
    slow compile at the start      cut at step 5 to 51, always behind the compile; settled 6 s behind it (12 s)
    compile after 2 good seconds   cut behind it, always; settled after 11.6 s (16.6 s)
    falls by half, time constant   6 % stop while the level is still 5 % off; the others settle after 32 s (43 s)
    of 4 s
    8 shapes, the rarest 2 %,      settled after 41 s; 1 % stop with a compile of before among the steady steps
    compiled one by one
    pauses of 1.5 s every 3.5 s    settled after 20 s (25 s)
    the same every 2.5 s           settled after 15 s (21 s)
    pauses by chance, every 2 s    settled after 17 s (44 s)

And with steps that all have as many tokens, until 45 s have passed:

    5 s a step, CV 1 %             settled after 26 s (35 s)
    7 s a step, CV 1 %             90 % settled, after 37 s (43 s)
    5 s a step, CV 8 %             60 % settled, after 40 s (45 s)
    5 s a step, CV 1 %, falls by   asked without end: 3 % stop while the level is still 5 % off
    20 %, time constant 8 steps

What no rule sees: a compile that comes after the answer, and a fall much slower than the steps looked at (12 steps
of 0.4 s do not show a time constant of 16 s). Calibration: tests/flashprof/stats/test_steady.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float64, intp
    from numpy.typing import NDArray

BLOCK_NS = 250_000_000
MIN_BLOCKS = 12
"""With 8, six of ten series that fall by half in 4 s are called steady too early; with 12, one."""
MIN_SLOW_BLOCKS = 8
MIN_REGULAR_BLOCKS = 5
SLOW_S = 10.0
MAX_REGULAR_SD = 0.02
"""Of log time around a line: so little that a trend shows in 5 blocks; of 50 samples of noise of 8 % one has it."""
LOG_PAUSE = math.log(4)
"""
A block of over 4 times the median is no noise but a compile, and is cut off whatever follows: a minute after it the
least-variance cut would see it, but 12 blocks after it still prefers the many blocks before.
"""
MIN_PAUSES = 6
"""With 5, one of 20 series whose rare shapes compile one by one is taken for one with pauses."""
MIN_PAUSE_DISTANCE = 3
"""In blocks: pauses closer than that are one standstill, of several compilations."""
MAX_RATE_RATIO = 2
MAX_PAUSE_RATIO = 4
"""Longest over shortest of pauses that are alike."""
MAX_DRIFT = 0.05
MIN_FALL = 0.01
"""A line that falls by less than 1 % over all its blocks is level, however certain its slope."""
MIN_TREND_T = -0.5


@dataclass(frozen=True, slots=True)
class Steady:
    """Whether step times have settled, and what shows it."""

    index: int | None
    """First steady step, at least 1 because the first step's start is not known; None while they have not settled."""
    reason: str
    """What keeps them from it, or which pauses are part of the steady state; empty for one without."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Steps joined; one entry a block."""

    lengths_s: NDArray[float64]
    log_time: NDArray[float64]
    """Natural log of seconds a token."""
    first_steps: NDArray[intp]

    def __len__(self) -> int:
        return len(self.lengths_s)

    def __getitem__(self, wanted: slice | NDArray[intp]) -> _Blocks:
        return _Blocks(self.lengths_s[wanted], self.log_time[wanted], self.first_steps[wanted])

    @property
    def length_s(self) -> float:
        return float(self.lengths_s.sum())


def find_steady(step_ends_ns: Sequence[int], step_tokens: Sequence[int]) -> int | None:
    """The first step of the steady state; None while the steps have not settled. See `judge_steady`."""
    return judge_steady(step_ends_ns, step_tokens).index


def judge_steady(step_ends_ns: Sequence[int], step_tokens: Sequence[int]) -> Steady:
    """
    Find the first step of the steady state, or what is not steady; costs about 1 ms for 5,000 steps.

    Args:
        step_ends_ns: End of each step of one rank so far, ascending.
        step_tokens: Tokens of each step.
    """
    import numpy as np

    blocks = _join(step_ends_ns, step_tokens)
    if len(blocks) < MIN_REGULAR_BLOCKS:
        return _too_few(blocks)
    pauses = np.flatnonzero(blocks.log_time > np.median(blocks.log_time) + LOG_PAUSE)
    recurring = _recurring(blocks, pauses)
    others = pauses[: len(pauses) - len(recurring)]
    start = int(others[-1]) + 1 if len(others) else 0
    calm = blocks[np.setdiff1d(np.arange(start, len(blocks)), recurring)]
    steady = _judge_level(calm)
    if steady.index is not None:
        return Steady(steady.index, _describe_recurring(blocks, recurring))
    if start and len(calm) < MIN_BLOCKS:
        return Steady(None, f"a pause of {blocks.lengths_s[start - 1]:.1f} s ended {calm.length_s:.1f} s ago")
    return steady


def _join(step_ends_ns: Sequence[int], step_tokens: Sequence[int]) -> _Blocks:
    """Whole blocks only; one without tokens joins the next."""
    import numpy as np

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
    lengths_s = np.array(lengths_ns, dtype=np.float64) / 1e9
    return _Blocks(lengths_s, np.log(lengths_s / np.array(num_tokens)), np.array(first_steps, dtype=np.intp))


def _recurring(blocks: _Blocks, pauses: NDArray[intp]) -> NDArray[intp]:
    """The last of *pauses*, as many as come at a rate that has not fallen since the first of them."""
    import numpy as np

    starts_s = np.cumsum(blocks.lengths_s) - blocks.lengths_s
    for first in range(len(pauses) - MIN_PAUSES + 1):
        chain = pauses[first:]
        middle_s = (starts_s[chain[0]] + blocks.length_s) / 2
        num_early = int(np.count_nonzero(starts_s[chain] < middle_s))
        counts = sorted((num_early, len(chain) - num_early))
        lengths_s = blocks.lengths_s[chain]
        if (
            counts[1] <= MAX_RATE_RATIO * counts[0]
            and lengths_s.max() <= MAX_PAUSE_RATIO * lengths_s.min()
            and np.diff(chain).min() >= MIN_PAUSE_DISTANCE
        ):
            return chain
    return pauses[:0]


def _judge_level(blocks: _Blocks) -> Steady:
    """As `judge_steady`, for blocks without a pause."""
    num_blocks, enough = len(blocks), _num_enough(blocks)
    if num_blocks < enough:
        return _too_few(blocks)
    last_cut = min(num_blocks // 2, num_blocks - enough)
    cut = _best_cut(blocks.log_time, enough)
    if cut > last_cut:
        return Steady(None, _describe_change(blocks, cut))
    # A long rest still shows the end of a slow fall that its later half has left behind.
    moves = [_describe_move(blocks[place:]) for place in (cut, last_cut)]
    level = (place for place, move in zip((cut, last_cut), moves, strict=True) if not move)
    place = next(level, None)
    return Steady(None, moves[0]) if place is None else Steady(int(blocks.first_steps[place]), "")


def _num_enough(blocks: _Blocks) -> int:
    """How many of these blocks must be left; fewer where they are long, fewest where the last ones hardly scatter."""
    last = blocks[-MIN_REGULAR_BLOCKS:]
    if last.length_s >= SLOW_S and len(last) == MIN_REGULAR_BLOCKS and _line(last.log_time)[1] <= MAX_REGULAR_SD:
        return MIN_REGULAR_BLOCKS
    return MIN_SLOW_BLOCKS if blocks[-MIN_SLOW_BLOCKS:].length_s >= SLOW_S else MIN_BLOCKS


def _best_cut(values: NDArray[float64], min_left: int) -> int:
    """The number of leading values without which the squared standard error of the mean is least."""
    import numpy as np

    # Centred first: sums of squares from the end lose digits where the mean is far larger than the noise.
    backwards = (values - np.median(values))[::-1]
    counts = np.arange(1, len(values) + 1)
    sums_of_squares = np.cumsum(backwards**2) - np.cumsum(backwards) ** 2 / counts
    error_by_cut = (sums_of_squares / counts**2)[::-1]
    return int(np.argmin(error_by_cut[: len(values) - min_left + 1]))


def _describe_move(rest: _Blocks) -> str:
    """What shows that *rest* is not level: its halves' medians, or a line through it that still falls."""
    import numpy as np

    values, half = rest.log_time, len(rest) // 2
    drift = float(np.median(values[-half:]) - np.median(values[:half]))
    if abs(drift) > MAX_DRIFT:
        return f"tok/s drifts: {math.expm1(-drift):+.0%} between the halves of the last {rest.length_s:.0f} s"
    slope, sd = _line(values)
    fall = slope * len(rest)
    place_sd = math.sqrt((len(rest) ** 2 - 1) / 12)
    error = sd / place_sd / math.sqrt(len(rest))
    if fall <= -MIN_FALL and slope < MIN_TREND_T * error:
        return f"tok/s still rises: by {math.expm1(-fall):.1%} over the last {rest.length_s:.0f} s"
    if len(rest) < MIN_SLOW_BLOCKS and sd > MAX_REGULAR_SD:
        return f"{len(rest)} steps in {rest.length_s:.0f} s that scatter by {sd:.0%} are too few to judge"
    return ""


def _line(values: NDArray[float64]) -> tuple[float, float]:
    """Slope of the line through *values*, a block, and their standard deviation around it."""
    import numpy as np

    place = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(place @ values / (place @ place))
    around = values - values.mean() - slope * place
    return slope, math.sqrt(float(around @ around) / (len(values) - 2))


def _describe_change(blocks: _Blocks, cut: int) -> str:
    import numpy as np

    change = float(np.median(blocks.log_time[:cut]) - np.median(blocks.log_time[cut:]))
    return f"tok/s changed by {math.expm1(change):+.0%} as late as {blocks[cut:].length_s:.0f} s ago"


def _describe_recurring(blocks: _Blocks, recurring: NDArray[intp]) -> str:
    import numpy as np

    if not len(recurring):
        return ""
    starts_s = np.cumsum(blocks.lengths_s)[recurring]
    every_s = (starts_s[-1] - starts_s[0]) / (len(recurring) - 1)
    return f"pauses of {np.median(blocks.lengths_s[recurring]):.1f} s every {every_s:.1f} s are part of it"


def _too_few(blocks: _Blocks) -> Steady:
    return Steady(None, f"{blocks.length_s:.0f} s of steps are too few to judge")
