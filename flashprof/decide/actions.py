"""What a study wants next. The application does it, and tells the study what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from flashprof.contracts.comparison import Arm, Comparison, Standing, Verdict
from flashprof.decide.observations import cold_run_id, hot_run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureHot:
    """Switch the arms in one launch, block after block, for as long as this is what the study wants."""

    launch: int
    """Of the study's hot launches, from 1."""
    first_block: int
    site: str

    @property
    def run_id(self) -> str:
        """Name of the run folder; never used twice in a study."""
        return hot_run_id(self.launch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCold:
    """Launch one arm and measure it."""

    arm: Arm
    block: int
    attempt: int
    """Of this arm in this block, from 1."""
    site: str

    @property
    def run_id(self) -> str:
        """Name of the run folder; never used twice in a study."""
        return cold_run_id(self.block, self.arm, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Nothing more to measure: the answer."""

    verdict: Verdict
    standing: Standing
    comparisons: tuple[Comparison, ...]
    """Screening first, then confirmation, where they have blocks; none once a launch gave wrong numbers."""
    spent_s: float
    """Measuring time of all calls."""
    num_reused: int
    """Blocks that earlier calls had measured."""
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Action = MeasureHot | LaunchCold | Finish
