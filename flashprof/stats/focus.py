"""
The part of the step in which good and bad differ: a signal with the noise of all the rest taken out. Pure.

A launch draws its speed once, and every phase is slower or faster by about the same share; so does a neighbour's load.
A change that lies in one phase is then seen far better in the time of this phase than in tok/s. What the rest of the
step costs is set to its mean over all readings: values stay on the scale of log tok/s, and so do effects. That the
rest does not differ is checked on the ends; and a culprit is always shown on tok/s itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from flashprof.stats.basis import NoisePrior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Phases = Mapping[str, float]
"""Own time of each phase of the training lane, gaps among them: they add up to the wall time of a token, in ns."""

MIN_LAUNCH_SD = 0.02
"""What launches of one cell differ by before it is known better: two cores of a virtual machine have 2 to 5 %."""
CLEAR = 4.0
"""Standard errors by which a phase must differ. Of 20 phases of two launches alike, one in 800 pairs has one so far."""
ALIKE = 3.0
"""Standard errors within which the rest may differ."""
MAX_NOISE_SHARE = 0.7
"""With more of the noise left than this, a search gains less than one reading in two."""
MIN_READINGS = 2
"""Of each end."""


@dataclass(frozen=True, kw_only=True)
class Focus:
    """Where to look."""

    phases: tuple[str, ...]
    """Those that differ between the ends, either way."""
    rest_ns: float
    """What all others cost a token."""
    noise_share: float
    """Of the sd of log tok/s, what is left of it."""

    def log_tok_per_s(self, phases: Phases, log_tok_per_s: float) -> float:
        """
        Say what tok/s would be, had the rest of the step taken its mean time.

        Args:
            phases: Of one reading.
            log_tok_per_s: As it was counted, adjusted for what its batches were made of; the adjustment is kept in
                proportion to the time that the focus has of the step.
        """
        focused_ns = sum(phases.get(phase, 0.0) for phase in self.phases)
        wall_ns = sum(phases.values())
        adjustment = log_tok_per_s + math.log(wall_ns / 1e9)
        return -math.log((self.rest_ns + focused_ns) / 1e9) + adjustment * focused_ns / wall_ns


@dataclass(frozen=True, kw_only=True)
class End:
    """The readings of good, or of bad."""

    phases: Sequence[Phases]
    num_launches: int


def find_focus(good: End, bad: End, everything: Sequence[Phases], noise: NoisePrior) -> Focus | None:
    """
    Find the phases that differ between the ends, if they are a better signal than tok/s.

    Args:
        good: Its readings.
        bad: Its readings.
        everything: All readings of the search, the ends' among them.
        noise: What windows and launches of one cell scatter by.

    Returns:
        None where too little is known, no phase differs clearly, the rest differs too, or too much noise is left.
    """
    if min(len(good.phases), len(bad.phases)) < MIN_READINGS:
        return None
    names = sorted({name for phases in everything for name in phases})
    ends = [np.array([[phases.get(name, 0.0) for name in names] for phases in end.phases]) for end in (good, bad)]
    nums = (good.num_launches, bad.num_launches)
    is_clear = np.array(
        [_is_apart(ends[0][:, place], ends[1][:, place], nums, noise, by=CLEAR) for place in range(len(names))]
    )
    if not is_clear.any() or is_clear.all():
        return None
    old, new = ends
    rest = (old[:, ~is_clear].sum(axis=1), new[:, ~is_clear].sum(axis=1))
    if _is_apart(*rest, nums, noise, by=ALIKE):
        return None
    inside_ns = _spread(old[:, is_clear].sum(axis=1), new[:, is_clear].sum(axis=1), noise)
    noise_share = inside_ns / _spread(old.sum(axis=1), new.sum(axis=1), noise)
    if noise_share > MAX_NOISE_SHARE:
        return None
    chosen = tuple(name for name, clear in zip(names, is_clear, strict=True) if clear)
    rest_ns = fmean(sum(ns for name, ns in phases.items() if name not in chosen) for phases in everything)
    return Focus(phases=chosen, rest_ns=rest_ns, noise_share=noise_share)


def _is_apart(good: Floats, bad: Floats, num_launches: tuple[int, int], noise: NoisePrior, *, by: float) -> bool:
    """Whether the means differ by more than *by* standard errors: of windows within a launch, and of launches."""
    launch_ns = _launch_sd(good, bad, noise)
    windows = _window_sd(good, bad, noise) ** 2 * (1 / len(good) + 1 / len(bad))
    error = math.sqrt(windows + launch_ns**2 * (1 / num_launches[0] + 1 / num_launches[1]))
    return abs(float(bad.mean() - good.mean())) > by * error


def _spread(good: Floats, bad: Floats, noise: NoisePrior) -> float:
    """Sd of one window of a launch of its own."""
    return math.hypot(_window_sd(good, bad, noise), _launch_sd(good, bad, noise))


def _launch_sd(good: Floats, bad: Floats, noise: NoisePrior) -> float:
    return max(noise.launch_sd, MIN_LAUNCH_SD) * float(max(good.mean(), bad.mean()))


def _window_sd(good: Floats, bad: Floats, noise: NoisePrior) -> float:
    """Pooled over the ends; not less than what windows are known to scatter by, since four of them say little."""
    freedom = len(good) + len(bad) - 2
    squares = ((good - good.mean()) ** 2).sum() + ((bad - bad.mean()) ** 2).sum()
    return max(math.sqrt(float(squares) / freedom), noise.window_sd * float(max(good.mean(), bad.mean())))
