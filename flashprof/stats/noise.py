"""
Where the noise of log tok/s comes from, told apart by source from A/A launches. Pure.

Sources nest: steps within a window, windows within a launch, launches. Each has its own remedy: longer windows, more
blocks, more launches; so a budget of noise says what a comparison should spend its minutes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashprof.contracts.calibration import LEVEL, NoiseBudget, Spread, WindowChoice
from flashprof.contracts.comparison import ArmWindow, Block
from flashprof.contracts.results import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PAIR_S = 20.0
"""The stretch for which the paired difference is stated."""
ORDER_SIGNS = (-0.5, 0.5, 0.5, -0.5)
"""Of a block's four windows, in ABBA."""
MIN_RECUT_BLOCKS = 12
"""Fewer say too little of a length of window: the interval of their sd is wider than −30 % to +60 %."""
PAUSE = 10.0
"""Steps longer than this many medians are kept out of the fit of step time on tokens, not out of the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLaunch:
    """One A/A launch, as much as the noise needs to know."""

    launch: str
    windows: tuple[ArmWindow, ...]
    blocks: tuple[Block, ...]
    step_ends_ns: Sequence[int]
    """The lead rank's steps, all of them."""
    step_tokens: Sequence[int]
    begin_ns: int
    """Launch, on the events' clock."""
    length_s: float
    """From launch to the last step."""
    startup_s: float | None
    is_whole: bool = True
    """It ended as planned: only then does its mean stand for a launch."""

    @property
    def counted_windows(self) -> tuple[ArmWindow, ...]:
        """In the order of time, without disturbed ones."""
        return tuple(sorted((w for w in self.windows if not w.disturbances), key=lambda window: window.start_ns))

    @property
    def counted_blocks(self) -> tuple[Block, ...]:
        """In the order of time, without disturbed ones."""
        return tuple(block for block in self.blocks if not block.disturbances)

    @property
    def window_s(self) -> float:
        """Seconds in windows that count."""
        return sum(window.length_s for window in self.counted_windows)


def noise_budget(launches: Sequence[MeasuredLaunch], *, level: float = LEVEL) -> NoiseBudget:
    """
    Tell the sources of noise apart.

    Args:
        launches: A/A launches; only those that are whole speak of launches, all speak of blocks.
        level: Of all intervals.

    Raises:
        ValueError: No launch holds two blocks that count.

    Assumes: the truth is no difference, so a block difference has a known mean, 0; launches are independent. Intervals
    of standard deviations are chi-square with the degrees of freedom that the kurtosis leaves (Box, Biometrika 1953).
    Calibration: tests/flashprof/stats/test_noise.py, simulated components are recovered.
    """
    blocks = [block for launch in launches for block in launch.counted_blocks]
    if len(blocks) < 2:
        raise ValueError("noise needs two blocks at least")
    series = [_log_rates(launch) for launch in launches if len(launch.counted_windows) > 1]
    centred = [rates - rates.mean() for rates in series]
    differences = np.array([block.difference for block in blocks])
    block_s = float(np.mean([block.length_s for block in blocks]))
    block = _spread(differences, len(blocks), level)
    num_windows = sum(map(len, series))
    drifts = [drift for launch in launches if (drift := _drift_per_min(launch)) is not None]
    steps = [residuals for launch in launches if (residuals := _step_residuals(launch)).size > 2]
    return NoiseBudget(
        step=_correlated_spread(steps, level) if steps else None,
        step_autocorrelation=_autocorrelation(steps),
        window=_correlated_spread(centred, level),
        window_autocorrelation=_autocorrelation(centred),
        pair=_scaled(block, math.sqrt(block_s / PAIR_S)),
        block=block,
        launch=_launch_component(launches, _autocorrelation(centred), level),
        drift_per_min=_mean_interval(drifts, level),
        steepest_drift_per_min=max(drifts, key=abs, default=0.0),
        block_s=block_s,
        num_launches=len(launches),
        num_blocks=len(blocks),
        num_windows=num_windows,
        windows=window_choices(launches),
    )


def launch_spread(launches: Sequence[MeasuredLaunch], run_s: float, *, level: float = LEVEL) -> Spread | None:
    """
    How much the log tok/s of whole launches scatters when each is measured for *run_s*.

    Unlike `NoiseBudget.launch` this holds the noise of the windows too: it is what two runs differ by.

    Returns:
        None for fewer than two whole launches.
    """
    means = launch_means(launches, run_s)
    return _spread_of_few(np.array(means), level) if len(means) > 1 else None


def launch_means(launches: Sequence[MeasuredLaunch], run_s: float) -> tuple[float, ...]:
    """Log tok/s of each whole launch over its first *run_s* of windows."""
    return tuple(_mean_of_first(launch.counted_windows, run_s) for launch in _whole(launches))


def window_choices(launches: Sequence[MeasuredLaunch]) -> tuple[WindowChoice, ...]:
    """
    Re-cut the steps into windows of other lengths, to see which gives the quietest pairs.

    Allowed because the arms are the same: where a switch lies does not matter, only what it costs. That is the usual
    gap that was seen between two windows: settle steps, and the time until the next command is read.
    """
    usable = [launch for launch in launches if len(launch.counted_blocks) > 1 and _step_residuals(launch).size > 2]
    if not usable:
        return ()
    step_s = float(np.median([np.median(_step_seconds(launch)[0]) for launch in usable]))
    tokens = float(np.mean([np.mean(_step_seconds(launch)[1]) for launch in usable]))
    gap_steps = max(0, round(_usual_gap_s(usable) / step_s))
    choices = []
    for num_steps in (2**power for power in range(11)):
        sds = np.concatenate([_recut(launch, num_steps, gap_steps) for launch in usable])
        if len(sds) < MIN_RECUT_BLOCKS:
            break
        block_s = 4 * (num_steps + gap_steps) * step_s
        sd = float(np.sqrt(np.mean(sds**2)) * math.sqrt(block_s / PAIR_S))
        choices.append(WindowChoice(num_steps=num_steps, num_tokens=round(num_steps * tokens), sd_per_20_s=sd))
    return tuple(choices)


def _whole(launches: Iterable[MeasuredLaunch]) -> list[MeasuredLaunch]:
    return [launch for launch in launches if launch.is_whole and launch.counted_windows]


def _log_rates(launch: MeasuredLaunch) -> Floats:
    return np.array([window.log_tok_per_s for window in launch.counted_windows])


def _mean_of_first(windows: Sequence[ArmWindow], run_s: float) -> float:
    """Mean log tok/s of the first windows that make up *run_s*; of all where they are shorter."""
    lengths_s = np.cumsum([window.length_s for window in windows])
    num_windows = min(len(windows), int(np.searchsorted(lengths_s, run_s)) + 1)
    return float(np.mean([window.log_tok_per_s for window in windows[:num_windows]]))


def _step_seconds(launch: MeasuredLaunch) -> tuple[Floats, Floats]:
    """Length and tokens of the steps between the first window's start and the last one's end."""
    ends_ns = np.asarray(launch.step_ends_ns, dtype=np.int64)
    windows = launch.counted_windows
    if len(ends_ns) < 2 or not windows:
        return np.empty(0), np.empty(0)
    inside = (ends_ns[1:] > windows[0].start_ns) & (ends_ns[1:] <= windows[-1].end_ns)
    seconds = np.diff(ends_ns)[inside] / 1e9
    tokens = np.asarray(launch.step_tokens, dtype=np.float64)[1:][inside]
    # A step without tokens has no time a token; one of no length is a clock's fault.
    usable = (seconds > 0) & (tokens > 0)
    return seconds[usable], tokens[usable]


def _expected_seconds(seconds: Floats, tokens: Floats) -> Floats:
    """Step time as a line in its tokens, least squares; the mean where that makes no sense."""
    fitted = seconds <= PAUSE * np.median(seconds)
    if np.ptp(tokens[fitted]) == 0:
        return np.full(len(seconds), seconds[fitted].mean())
    slope, base = np.polyfit(tokens[fitted], seconds[fitted], 1)
    expected = base + slope * tokens
    floor = 0.1 * float(np.median(seconds))
    return np.asarray(np.maximum(expected, floor), dtype=np.float64)


def _step_residuals(launch: MeasuredLaunch) -> Floats:
    seconds, tokens = _step_seconds(launch)
    if seconds.size < 3:
        return np.empty(0)
    logs = np.log(seconds / _expected_seconds(seconds, tokens))
    return np.asarray(logs - logs.mean(), dtype=np.float64)


def _usual_gap_s(launches: Sequence[MeasuredLaunch]) -> float:
    """Between two windows of one block; the median, since the first blocks of a launch drop more steps."""
    gaps_ns = [
        later.start_ns - earlier.end_ns
        for launch in launches
        for earlier, later in zip(launch.counted_windows, launch.counted_windows[1:], strict=False)
        if earlier.block == later.block and later.position == earlier.position + 1
    ]
    return float(np.median(gaps_ns)) / 1e9 if gaps_ns else 0.0


def _recut(launch: MeasuredLaunch, num_steps: int, gap_steps: int) -> Floats:
    """Differences of the blocks that windows of *num_steps*, *gap_steps* apart, would have made."""
    seconds, tokens = _step_seconds(launch)
    expected = _expected_seconds(seconds, tokens)
    pitch = gap_steps + num_steps
    num_blocks = len(seconds) // (4 * pitch)
    shape = (num_blocks, 4, pitch)
    taken, due = (
        values[: num_blocks * 4 * pitch].reshape(shape)[:, :, gap_steps:].sum(2) for values in (seconds, expected)
    )
    return np.asarray(np.log(due / taken) @ np.array(ORDER_SIGNS), dtype=np.float64)


def _drift_per_min(launch: MeasuredLaunch) -> float | None:
    windows = launch.counted_windows
    if len(windows) < 4:
        return None
    minutes = np.array([(window.start_ns + window.end_ns) / 2 for window in windows]) / 60e9
    return float(np.polyfit(minutes - minutes.mean(), _log_rates(launch), 1)[0])


def _launch_component(launches: Sequence[MeasuredLaunch], correlation: float, level: float) -> Spread | None:
    """
    One-way random effects with unequal counts, on unweighted means (Thomas & Hultquist, Ann. Stat. 1978).

    The interval takes the windows' variance as known: it has hundreds of degrees of freedom, launches a handful.
    """
    series = [_log_rates(launch) for launch in _whole(launches) if len(launch.counted_windows) > 1]
    if len(series) < 2:
        return None
    within = sum(float(np.sum((rates - rates.mean()) ** 2)) for rates in series) / sum(len(r) - 1 for r in series)
    # Correlated windows average out more slowly: an AR(1) series of n is worth n (1 − r) / (1 + r).
    thinning = (1 - max(0.0, correlation)) / (1 + max(0.0, correlation))
    noise = within * float(np.mean([1 / max(1.0, thinning * len(rates)) for rates in series]))
    total = _spread_of_few(np.array([rates.mean() for rates in series]), level)
    sd, low, high = (math.sqrt(max(0.0, value**2 - noise)) for value in (total.sd, total.low, total.high))
    return Spread(sd=sd, low=low, high=high, freedom=total.freedom)


def _autocorrelation(series: Sequence[Floats]) -> float:
    """At lag 1, pooled over series that are centred already."""
    pairs = [(values[:-1], values[1:]) for values in series if values.size > 2]
    power = sum(float(np.mean(values**2)) * (values.size - 1) for values in series if values.size > 2)
    return sum(float(earlier @ later) for earlier, later in pairs) / power if power else 0.0


def _correlated_spread(series: Sequence[Floats], level: float) -> Spread:
    """Of series that are centred already."""
    correlation = _autocorrelation(series)
    # Of the variance of an AR(1) series; Bartlett's formula. Without it, at 0.7 the 95 % interval held 74 %.
    thinning = (1 - correlation**2) / (1 + correlation**2)
    values = np.concatenate(series)
    return _spread(values, values.size - len(series), level, thinning=thinning)


def _spread(values: Floats, count: int, level: float, *, thinning: float = 1.0) -> Spread:
    """Of values about 0 with *count* degrees of freedom, of which correlation leaves a share, *thinning*."""
    sd = math.sqrt(float(values @ values) / count)
    freedom = float(count)
    if sd > 0:
        # Heavy tails make a standard deviation less certain than its count of values says.
        kurtosis = float(np.mean(values**4) / np.mean(values**2) ** 2)
        freedom = max(1.0, thinning * count * min(1.0, 2 / max(kurtosis - 1, 1e-9)))
    return _chi_square(sd, freedom, level)


def _spread_of_few(values: Floats, level: float) -> Spread:
    """About their own mean; too few to know their tails, so taken for Gaussian."""
    return _chi_square(float(np.std(values, ddof=1)), len(values) - 1.0, level)


def _chi_square(sd: float, freedom: float, level: float) -> Spread:
    from scipy.special import chdtri

    low, high = (math.sqrt(freedom / float(chdtri(freedom, tail))) for tail in ((1 - level) / 2, (1 + level) / 2))
    return Spread(sd=sd, low=sd * low, high=sd * high, freedom=freedom)


def _scaled(spread: Spread, factor: float) -> Spread:
    return Spread(sd=spread.sd * factor, low=spread.low * factor, high=spread.high * factor, freedom=spread.freedom)


def _mean_interval(values: Sequence[float], level: float) -> Interval | None:
    if len(values) < 2:
        return None
    from scipy.special import stdtrit

    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(stdtrit(len(values) - 1, (1 + level) / 2)) * error
    return Interval(
        estimate=mean,
        low=mean - half,
        high=mean + half,
        level=level,
        num_samples=len(values),
        method=f"t-interval over {len(values)} launches",
    )
