"""
What A/A comparisons on this machine said about FlashProf itself: its noise, its errors, what it can find.

Both arms of an A/A comparison are the same, so every difference is noise, and every alarm is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

from flashprof.contracts.cell import ABSENT, Cell
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.results import Interval

MATCHED = ("machine.*", "workload.preset", "topology", "topology.*")
"""Facts that must be equal for a calibration to hold; noise is the machine's and the workload's, not a toggle's."""
LEVEL = 0.95
"""Of all intervals of a calibration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A standard deviation of log tok/s (0.01 is 1 %), with its interval."""

    sd: float
    low: float
    high: float
    freedom: float
    """Degrees of freedom behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChoice:
    """What the paired difference would be, had windows been of this length."""

    num_steps: int
    num_tokens: int
    """What a window of so many steps holds, rounded."""
    sd_per_20_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseBudget:
    """Where the noise of log tok/s comes from."""

    step: Spread | None
    """One step's time a token, once its number of tokens is accounted for; within windows."""
    step_autocorrelation: float
    """Of neighbouring steps, −1 to 1."""
    window: Spread
    """Between the windows of a launch, drift included."""
    window_autocorrelation: float
    """Of neighbouring windows of a launch."""
    pair: Spread
    """Of candidate − base over 20 s of blocks: what a hot comparison has to fight."""
    block: Spread
    """The same over one block."""
    launch: Spread | None
    """Between launches, the noise of their windows taken off; None for a single launch."""
    drift_per_min: Interval | None
    """Mean change within a launch, a share of tok/s a minute."""
    steepest_drift_per_min: float
    """Of the launch that drifted most, signed."""
    block_s: float
    """Mean length of a block."""
    num_launches: int
    num_blocks: int
    num_windows: int
    windows: tuple[WindowChoice, ...] = ()
    """Other lengths of windows, re-cut from the same steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """*count* of *total*, with the Clopper–Pearson interval of the share."""

    count: int
    total: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.count / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSummary:
    """Many comparisons of one kind, each looked at after every block until it was clear or its data ended."""

    name: str
    false_alarms: Share
    """Called a regression or a gain."""
    coverage: Share
    """The stated interval held the truth, 0, when the comparison stopped."""
    num_blocks: int
    """The most that one comparison could see."""
    note: str
    """Where the comparisons come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPoint:
    """A planted slow-down and how soon it is called a regression."""

    method: str
    effect: float
    """Relative: 0.05 is 5 % slower."""
    num_trials: int
    minutes: tuple[float, ...]
    """When it was called, start-up included, in order; trials that did not get there are left out."""
    coverage: float
    """Share of the trials whose stated interval held the planted effect."""

    def power(self, minutes: float) -> float:
        """Share of trials that called it within so many minutes."""
        return sum(taken <= minutes for taken in self.minutes) / self.num_trials if self.num_trials else 0.0

    def minutes_for(self, power: float) -> float | None:
        """Minutes after which that share of the trials had called it; None where fewer ever did."""
        needed = max(1, -int(-power * self.num_trials // 1))
        return sorted(self.minutes)[needed - 1] if len(self.minutes) >= needed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One recommended setting."""

    name: str
    value: float | None
    """None: the data do not say."""
    unit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All that `flashprof calibrate` knows in the end."""

    facts: Mapping[str, str]
    """The cell's facts that must match, by `MATCHED`."""
    toggles: str
    """What was on while it was measured."""
    date: str
    """ISO, of the analysis."""
    measured_min: float
    """Life of all launches together."""
    startup_s: float | None
    """Median, launch to first step; None where no launch knows it."""
    overhead_s: float
    """Median, from launch to first window: start-up and warm-up."""
    noise: NoiseBudget
    launch_sd: Spread | None
    """Of the log tok/s of whole launches as `flashprof run` sees them, windows' noise included; None for one launch."""
    run_s: float
    """How much of each launch `launch_sd` speaks of, in seconds of windows."""
    rule: DecisionRule
    trials: tuple[TrialSummary, ...]
    power: tuple[PowerPoint, ...]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()
    paths: tuple[tuple[str, str], ...] = ()

    def setting(self, name: str) -> float | None:
        """The recommended value; None where there is none."""
        return next((setting.value for setting in self.settings if setting.name == name), None)

    def unlike(self, cell: Cell) -> tuple[str, ...]:
        """Names of the matched facts in which *cell* differs; empty where this calibration holds for it."""
        theirs = matched_facts(cell)
        names = sorted({*self.facts, *theirs})
        return tuple(name for name in names if self.facts.get(name, ABSENT) != theirs.get(name, ABSENT))


def matched_facts(cell: Cell) -> dict[str, str]:
    """Those facts of *cell* that decide whether a calibration holds for it."""
    return {
        name: text for name, text in sorted(cell.facts.items()) if any(fnmatch(name, pattern) for pattern in MATCHED)
    }
