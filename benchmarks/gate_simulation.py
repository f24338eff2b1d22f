"""
Simulated gates: the course and the judge of `flashprof gate`, with a drawn rate in place of each launch.

Only what a launch gives is made up: when to launch which arm, what counts, and when the answer is clear is decided by
`flashprof.decide.study` and `flashprof.app.gate_metrics`, as in the command.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.gate_noise import Noise
from benchmarks.gate_trials import MAX_REGRESSION
from flashprof.app.gate_metrics import GateJudge
from flashprof.contracts.comparison import Arm, DecisionRule, Verdict
from flashprof.contracts.gate import TOK_PER_S, Threshold
from flashprof.contracts.study import MethodChoice
from flashprof.decide.actions import LaunchCold
from flashprof.decide.observations import ColdLaunch
from flashprof.decide.plan import StudyPlan
from flashprof.decide.study import StudyState, next_action, observe
from flashprof.stats.margin import MarginRule

ALPHA, BUDGET_S = 0.01, 1200.0
"""The command's own defaults."""
LAUNCH_S = 35.0
"""Start-up and warm-up 15 s, windows 20 s: 18 pairs at the most."""
BASE_LOG_RATE = 9.0
EFFECTS = (0.0, -0.05, -0.17)


@dataclass(frozen=True, kw_only=True)
class SimulatedGate:
    """What came of one."""

    verdict: Verdict
    num_pairs: int
    first_difference: float
    """By which a fixed threshold judges."""
    covers: bool
    """Whether the stated 95 % interval holds the truth."""


def simulate(noise: Noise, effect: float, *, num: int, seed: int = 0) -> Iterator[SimulatedGate]:
    """
    Some gates of one kind; number n is the same whoever runs it.

    Args:
        noise: Of launches.
        effect: Of head on tok/s: −0.05 for 5 % less.
        num: Of gates.
        seed: Of all.
    """
    for number in range(num):
        yield run_gate(noise(np.random.default_rng([seed, number])), effect, seed=number)


def run_gate(launches: Iterator[float], effect: float, *, seed: int, budget_s: float = BUDGET_S) -> SimulatedGate:
    """
    One gate.

    Args:
        launches: Log tok/s of each launch about its arm's, in the order of time.
        effect: As in `simulate`.
        seed: Of the order of base and head.
        budget_s: Of measuring.
    """
    threshold = Threshold(metric=TOK_PER_S, max_regression=MAX_REGRESSION)
    judge = GateJudge(Path(), (threshold,), MarginRule(alpha=ALPHA, budget_s=budget_s))
    state = StudyState(plan=_plan(seed, budget_s))
    while isinstance(action := next_action(state, judge), LaunchCold):
        rate = BASE_LOG_RATE + next(launches) + (math.log1p(effect) if action.arm is Arm.CANDIDATE else 0.0)
        state = observe(state, _launch(action, rate))
    (metric,) = judge.metrics(state.cold_blocks, state.spent_s)
    change = metric.change
    return SimulatedGate(
        verdict=metric.verdict,
        num_pairs=len(state.cold_blocks),
        first_difference=state.cold_blocks[0].difference,
        covers=change is not None and change.low <= effect <= change.high,
    )


def _plan(seed: int, budget_s: float) -> StudyPlan:
    return StudyPlan(
        base="base",
        candidate="head",
        method=MethodChoice.COLD,
        confirmed=(),
        rule=DecisionRule(alpha=ALPHA, tolerance=MAX_REGRESSION, budget_s=budget_s),
        seed=seed,
    )


def _launch(action: LaunchCold, rate: float) -> ColdLaunch:
    return ColdLaunch(
        arm=action.arm,
        block=action.block,
        run_id=action.run_id,
        site=action.site,
        log_tok_per_s=rate,
        num_windows=5,
        length_s=LAUNCH_S,
    )
