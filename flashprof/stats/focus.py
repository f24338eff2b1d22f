"""
The part of the step in which good and bad differ: a signal with the noise of all the rest taken out. Pure.

What a launch draws once, and what neighbours do, slows all phases by about the same factor. A change that lies in some
phases is then seen far better in how long these take *beside the others* than in tok/s. So the rest of the step is the
clock: values are what tok/s would be, had the rest taken its mean time. They stay on the scale of log tok/s, and so do
effects. Which phases differ is read from the ends; and a culprit is always shown on tok/s itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from flashprof.stats.basis import NoisePrior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

Phases = Mapping[str, float]
"""Own time of each phase of the training lane, gaps among them: they add up to the wall time of a token, in ns."""

PHASE_LAUNCH_SD = 0.02
"""By how much a phase differs from launch to launch beside the others, as a share of itself."""
CLEAR = 4.0
"""Standard errors by which a phase must differ. Of 20 phases of two launches alike, one in 800 pairs has one so far."""
ALIKE = 3.0
"""Standard errors within which the rest may differ."""
MIN_EXPLAINED = 2 / 3
"""Of the drop, by the phases in focus, where the rest differs by more: launches of a busy machine differ by 20 %."""
MIN_TO_KNOW = 8
"""Readings that show how much the rest differs anyway; before, it is taken from calibration or a guess."""
MAX_WEIGHT = 0.3
"""Of one phase in the pace of the step: one that is half of the step and doubles would be the clock itself."""
MAX_NOISE_SHARE = 0.7
"""With more of the noise left than this, a search gains less than one reading in two."""
MIN_READINGS = 2
"""Of each end."""
MIN_LOSS = 0.02
"""By how much log tok/s must fall in what is in focus: a search tolerates as much. A holder of the GIL slows all by a
fifth, and by a little more two phases of 0.1 % of the step: with the rest as the clock there was nothing to find."""


@dataclass(frozen=True, kw_only=True)
class Focus:
    """Where to look."""

    phases: tuple[str, ...]
    """Those that differ between the ends beside the others, either way."""
    rest_ns: float
    """What all others cost a token, mean over all readings."""
    noise_share: float
    """Of the sd of log tok/s, what is left of it."""
    gained: tuple[str, ...] = ()
    """Those that became faster and make up for it: they are taken to cost their mean, or they would mask the loss."""
    gained_ns: float = 0.0
    """What these cost a token, mean over all readings."""

    def log_tok_per_s(self, phases: Phases) -> float:
        """Say what tok/s would be, had all else in the step taken its mean time; *phases* of one reading."""
        focused_ns = _sum_ns(phases, self.phases)
        rest_ns = sum(phases.values()) - focused_ns - _sum_ns(phases, self.gained)
        return -math.log((self.rest_ns * (1 + focused_ns / rest_ns) + self.gained_ns) / 1e9)

    def loss_between(self, good: Sequence[Phases], bad: Sequence[Phases]) -> float:
        """By how much log tok/s falls from the readings of *good* to those of *bad*, as the focus sees it."""
        return fmean(map(self.log_tok_per_s, good)) - fmean(map(self.log_tok_per_s, bad))


@dataclass(frozen=True, kw_only=True)
class End:
    """The readings of good, or of bad."""

    phases: Sequence[Phases]
    launches: frozenset[str]
    """In which they were read. Ends of the same launches share what a launch draws."""


def find_focus(good: End, bad: End, everything: Sequence[Phases], noise: NoisePrior) -> Focus | None:
    """
    Find the phases that differ between the ends, if they are a better signal than tok/s.

    Args:
        good: Its readings.
        bad: Its readings.
        everything: All readings of the search, the ends' among them.
        noise: What windows and launches of one cell scatter by.

    Returns:
        None where too little is known, no phase differs clearly beside the others, those that do lose nothing, the rest
        has more than a third of the drop and differs clearly, or too much noise is left. Where phases that became
        faster make up for others, only these are in focus.
    """
    if min(len(good.phases), len(bad.phases)) < MIN_READINGS:
        return None
    names = sorted({name for phases in everything for name in phases})
    old, new = (np.array([[phases.get(name, 0.0) for name in names] for phases in end.phases]) for end in (good, bad))
    # What a launch draws is no difference between ends that were switched in it. Counted as one, a quarter of the drop
    # was in focus and three quarters passed for chance (13 toggles in one launch on an H200, docs/story.md).
    share = 0.0 if good.launches == bad.launches else 1 / len(good.launches) + 1 / len(bad.launches)
    ends = _Ends(old=old, new=new, share=share, noise=noise)
    changes = ends.clear_changes()
    if not changes.any() or changes.all():
        return None
    clear = [name for name, change in zip(names, changes, strict=True) if change]
    rests_ns = [sum(ns for name, ns in phases.items() if name not in clear) for phases in everything]
    if min(rests_ns) <= 0 or not ends.is_told_by(changes != 0, rests_ns):
        return None
    changed = Focus(phases=tuple(clear), rest_ns=fmean(rests_ns), noise_share=1.0)
    gained = tuple(name for name, change in zip(names, changes, strict=True) if change < 0)
    gained_ns = fmean(_sum_ns(phases, gained) for phases in everything)
    grown = replace(
        changed, phases=tuple(name for name in clear if name not in gained), gained=gained, gained_ns=gained_ns
    )
    losing = (focus for focus in (changed, grown) if focus.loss_between(good.phases, bad.phases) >= MIN_LOSS)
    focus = next(losing, None)
    if focus is None:
        return None
    in_focus = np.array([name in focus.phases for name in names])
    left = _scatter(focus, (good, bad)) / math.hypot(noise.window_sd, noise.launch_sd if share else 0.0)
    noise_share = max(left, ends.share_of(in_focus))
    return replace(focus, noise_share=noise_share) if noise_share <= MAX_NOISE_SHARE else None


def _sum_ns(phases: Phases, names: Sequence[str]) -> float:
    return sum(phases.get(name, 0.0) for name in names)


@dataclass(frozen=True, kw_only=True)
class _Ends:
    old: Floats
    """(num_readings, num_phases) of the good end."""
    new: Floats
    """Of the bad one."""
    share: float
    """1 / launches of good + 1 / launches of bad; 0 where these are the same."""
    noise: NoisePrior

    def clear_changes(self) -> Floats:
        """(num_phases,) ns a token by which they differ at the pace of the others; 0 where that may be chance."""
        old_ns, new_ns = self.old.mean(axis=0), self.new.mean(axis=0)
        pace = _weighted_median(new_ns / np.maximum(old_ns, 1e-9), np.minimum(old_ns, new_ns))
        # Each window at its own pace: what slows all phases alike is no scatter of one phase.
        old, new = self.old / self._pace_of(self.old, old_ns), self.new / self._pace_of(self.new, new_ns)
        scatter = np.maximum(_pooled_sd(old, new), self.noise.window_sd * np.maximum(old_ns, new_ns / pace))
        windows = 1 / len(old) + 1 / len(new)
        launch_ns = PHASE_LAUNCH_SD * np.maximum(old_ns, new_ns / pace)
        error: Floats = np.sqrt(scatter**2 * windows + launch_ns**2 * self.share)
        change = new_ns / pace - old_ns
        clear: Floats = np.where(np.abs(change) > CLEAR * error, change, 0.0)
        return clear

    def is_told_by(self, is_clear: Flags, rests_ns: Sequence[float]) -> bool:
        """
        Whether these phases have most of the drop, or the rest does not differ more than it does anyway.

        Args:
            is_clear: Of each phase.
            rests_ns: What the others cost in every reading of the search.
        """
        drop = self.new.sum(axis=1).mean() - self.old.sum(axis=1).mean()
        rest = self.new[:, ~is_clear].sum(axis=1).mean() - self.old[:, ~is_clear].sum(axis=1).mean()
        if abs(drop - rest) >= MIN_EXPLAINED * abs(drop) and (drop - rest) * drop > 0 and abs(rest) <= abs(drop):
            return True
        level = self.old[:, ~is_clear].sum(axis=1).mean()
        windows = self.noise.window_sd**2 * (1 / len(self.old) + 1 / len(self.new))
        usual = float(np.log(rests_ns).std()) if len(rests_ns) >= MIN_TO_KNOW else 0.0
        error = math.sqrt(windows + max(self.noise.launch_sd, PHASE_LAUNCH_SD, usual) ** 2 * self.share)
        return bool(abs(rest) <= ALIKE * error * level)

    def share_of(self, is_clear: Flags) -> float:
        """Of the step, in the bad end."""
        return float(self.new[:, is_clear].sum() / self.new.sum())

    @staticmethod
    def _pace_of(values: Floats, mean_ns: Floats) -> Floats:
        """(num_readings, 1) how slow each window is beside the mean of its end: the median over its phases."""
        return np.array([[_weighted_median(row / np.maximum(mean_ns, 1e-9), mean_ns)] for row in values])


def _weighted_median(values: Floats, weights: Floats) -> float:
    """The value below which lies half of the weight; phases of one end only have no weight, and none has most of it."""
    order = np.argsort(values)
    total = np.cumsum(np.minimum(weights, MAX_WEIGHT * weights.sum())[order])
    if total[-1] <= 0:
        return 1.0
    return float(values[order][np.searchsorted(total, total[-1] / 2)]) or 1.0


def _pooled_sd(old: Floats, new: Floats) -> Floats:
    """(num_phases,) over the ends."""
    squares = ((old - old.mean(axis=0)) ** 2).sum(axis=0) + ((new - new.mean(axis=0)) ** 2).sum(axis=0)
    sd: Floats = np.sqrt(squares / (len(old) + len(new) - 2))
    return sd


def _scatter(focus: Focus, ends: Sequence[End]) -> float:
    """Sd of what the focus sees, about the mean of each end."""
    values = [np.array([focus.log_tok_per_s(phases) for phases in end.phases]) for end in ends]
    squares = sum(float(((of_end - of_end.mean()) ** 2).sum()) for of_end in values)
    return math.sqrt(squares / (sum(map(len, values)) - 2))
