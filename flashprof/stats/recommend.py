"""Settings that a calibration recommends, each with its reason in numbers. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashprof.contracts.calibration import NoiseBudget, PowerPoint, Setting, TrialSummary, WindowChoice
from flashprof.contracts.comparison import DecisionRule, Method
from flashprof.stats.power import POWER

NEARLY_BEST = 1.05
"""A shorter window that is at most 5 % noisier is better: there are more blocks to stop after."""
SHORTEST_MEASURE_S = 10.0
LONGEST_MEASURE_S = 120.0
BUDGETED_EFFECTS = (0.05, 0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the settings are read from."""

    noise: NoiseBudget
    trials: Sequence[TrialSummary]
    power: Sequence[PowerPoint]
    clear_shares: Mapping[float, float]
    """Tolerance → share of A/A comparisons that were clear within the rule's budget."""
    settle_steps: int
    """The most that was dropped after a switch."""
    window_s: float
    """Mean length of the windows that were measured."""
    overhead_s: float
    """From launch to first window."""
    rule: DecisionRule


def recommend(evidence: Evidence) -> tuple[Setting, ...]:
    """The settings, in the order in which a user would set them."""
    return (
        *_windows(evidence.noise.windows),
        _settle(evidence.settle_steps),
        _measure(evidence),
        *(_budget(effect, evidence.power) for effect in BUDGETED_EFFECTS),
        _alpha(evidence.rule, evidence.trials),
        _tolerance(evidence),
    )


def _windows(choices: Sequence[WindowChoice]) -> tuple[Setting, Setting]:
    if not choices:
        reason = "too few steps were recorded to try other lengths"
        return (
            Setting(name="window_tokens", value=None, unit="tokens", reason=reason),
            Setting(name="window_steps", value=None, unit="steps", reason=reason),
        )
    best = min(choice.sd_per_20_s for choice in choices)
    chosen = next(choice for choice in choices if choice.sd_per_20_s <= NEARLY_BEST * best)
    others = ", ".join(f"{choice.num_steps}: {_percent(choice.sd_per_20_s)}" for choice in choices)
    reason = f"the shortest of the quietest; sd of the paired difference per 20 s by steps a window: {others}"
    return (
        Setting(name="window_tokens", value=chosen.num_tokens, unit="tokens", reason=reason),
        Setting(name="window_steps", value=chosen.num_steps, unit="steps", reason="the same in steps"),
    )


def _settle(settle_steps: int) -> Setting:
    return Setting(
        name="settle_steps",
        value=settle_steps,
        unit="steps",
        reason="dropped after a switch here; equal arms have nothing to settle: compare finds its own for its toggles",
    )


def _measure(evidence: Evidence) -> Setting:
    """The length at which a minute buys most: the classic n* = √(cost ratio × variance ratio) of two-stage sampling."""
    noise = evidence.noise
    setting = {"name": "measure_s", "unit": "s"}
    if noise.launch is None:
        return Setting(value=None, reason="one launch says nothing about launches", **setting)
    if noise.launch.sd == 0:
        reason = "launches differ by no more than their windows do: few long launches are as good as many short ones"
        return Setting(value=LONGEST_MEASURE_S, reason=reason, **setting)
    correlation = min(0.95, max(0.0, noise.window_autocorrelation))
    variance_s = noise.window.sd**2 * evidence.window_s * (1 + correlation) / (1 - correlation)
    best_s = math.sqrt(evidence.overhead_s * variance_s) / noise.launch.sd
    return Setting(
        value=float(round(min(LONGEST_MEASURE_S, max(SHORTEST_MEASURE_S, best_s)))),
        reason=f"a launch takes {evidence.overhead_s:.0f} s to its first window and differs from others by "
        f"{_percent(noise.launch.sd)}: {best_s:.0f} s of windows a cold launch buy most a minute "
        f"(kept within {SHORTEST_MEASURE_S:.0f} to {LONGEST_MEASURE_S:.0f} s)",
        **setting,
    )


def _budget(effect: float, power: Sequence[PowerPoint]) -> Setting:
    setting = {"name": f"budget_{100 * effect:.0f}_pct", "unit": "min"}
    points = [point for point in power if point.method == Method.HOT and math.isclose(point.effect, effect)]
    taken = points[0].minutes_for(POWER) if points else None
    if taken is None:
        reason = (
            f"a slow-down of {_percent(effect)} was not found in {_percent(POWER)} of the trials within the time tried"
        )
        return Setting(value=None, reason=reason, **setting)
    reason = (
        f"{_percent(POWER)} of planted slow-downs of {_percent(effect)} were called by then, hot, start-up included"
    )
    return Setting(value=math.ceil(10 * taken) / 10, reason=reason, **setting)


def _alpha(rule: DecisionRule, trials: Sequence[TrialSummary]) -> Setting:
    broken = [trial for trial in trials if trial.false_alarms.low > rule.alpha]
    if broken:
        worst = broken[0].false_alarms
        reason = (
            f"{worst.count} of {worst.total} equal comparisons ({broken[0].name}) were called different, more than the "
            f"stated {_percent(rule.alpha)}: be stricter, and look for what disturbs the machine"
        )
        return Setting(name="alpha", value=rule.alpha / 2, unit="share", reason=reason)
    reason = (
        f"no kind of comparison had more false alarms than the stated {_percent(rule.alpha)}, as far as trials tell"
    )
    return Setting(name="alpha", value=rule.alpha, unit="share", reason=reason)


def _tolerance(evidence: Evidence) -> Setting:
    clear = [tolerance for tolerance, share in sorted(evidence.clear_shares.items()) if share >= POWER]
    minutes = evidence.rule.budget_s / 60
    if not clear:
        reason = f"no tolerance that was tried lets {_percent(POWER)} of equal arms be cleared within {minutes:.0f} min"
        return Setting(name="tolerance", value=None, unit="share", reason=reason)
    reason = f"the smallest with which {_percent(POWER)} of equal arms were cleared within {minutes:.0f} min, hot"
    return Setting(name="tolerance", value=clear[0], unit="share", reason=reason)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
