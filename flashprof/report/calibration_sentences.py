"""What a calibration says in words and rows: the same for the page and for the console. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flashprof.contracts.calibration import Calibration, Setting, Share, Spread, TrialSummary
from flashprof.contracts.comparison import Method
from flashprof.contracts.results import Interval
from flashprof.report import figures
from flashprof.stats.power import POWER, smallest_effect

SHOWN_MIN = (1, 2, 5, 10)
"""Minutes for which the smallest effect is stated."""
LOW_COVERAGE = 0.93
"""Intervals that are stated at 95 % and hold the truth less often than this are not what they say (design §4.4)."""
MANY_BLOCKS = 50
Row = tuple[str, ...]


def headline(calibration: Calibration) -> str:
    """The line to read if only one is read."""
    alarms = [trial.false_alarms for trial in calibration.trials]
    if not alarms:
        return "too little was measured to judge comparisons"
    worst = max(alarms, key=lambda alarm: (alarm.share, alarm.total))
    verdict = "comparisons keep their word here"
    if any(trial.coverage.high < LOW_COVERAGE for trial in calibration.trials):
        verdict = "stated intervals are too narrow here"
    if any(alarm.low > calibration.rule.alpha for alarm in alarms):
        verdict = "comparisons cry wolf here"
    return f"{verdict}: at most {share(worst)} of equal cells called different; stated: {pct(calibration.rule.alpha)}"


def finds(calibration: Calibration) -> str:
    """What hot comparisons find, in one sentence; empty where none was tried."""
    hot = [point for point in calibration.power if point.method == Method.HOT]
    found = [(minutes, smallest_effect(hot, minutes)) for minutes in SHOWN_MIN]
    parts = [f"{pct(effect)} in {minutes} min" for minutes, effect in found if effect is not None]
    if not hot:
        return ""
    if not parts:
        return f"no slow-down up to {pct(max(p.effect for p in hot))} is found within {SHOWN_MIN[-1]} min"
    return f"finds with {pct(POWER)} power, hot: a slow-down of {', of '.join(parts)}"


def run(calibration: Calibration) -> str:
    """What was measured."""
    noise = calibration.noise
    launches = "1 launch" if noise.num_launches == 1 else f"{noise.num_launches} launches"
    blocks = f"{noise.num_blocks:,} blocks of both arms ({noise.num_windows:,} windows, {noise.block_s:.1f} s a block)"
    return (
        f"{launches}, {blocks}, {calibration.measured_min:.1f} min in all; both arms {calibration.toggles}; "
        f"start-up {figures.seconds(_known(calibration.startup_s))}, "
        f"{figures.seconds(calibration.overhead_s)} from launch to first window"
    )


def cell(calibration: Calibration) -> str:
    """For which machine and workload it holds."""
    named = ("workload.preset", "topology", "machine.host", "machine.cpu", "machine.num_cores")
    facts = [calibration.facts[name] for name in named if calibration.facts.get(name)]
    return " · ".join((*facts, calibration.date.replace("T", " ")))


def trial_rows(calibration: Calibration) -> list[Row]:
    """Kind, false alarms, coverage, length, where from."""
    return [
        (trial.name, share(trial.false_alarms), share(trial.coverage), f"{trial.num_blocks:,}", trial.note)
        for trial in calibration.trials
    ]


def noise_rows(calibration: Calibration) -> list[Row]:
    """Source, sd, interval, what helps against it."""
    noise = calibration.noise
    steps = f"neighbours correlate by {noise.step_autocorrelation:+.2f}; longer windows help"
    windows = f"drift included, neighbours correlate by {noise.window_autocorrelation:+.2f}; interleaving removes most"
    rows = [
        ("within a window, step to step", noise.step, steps),
        ("between windows of a launch", noise.window, windows),
        ("paired difference, per block", noise.block, "what interleaving leaves"),
        ("paired difference, per 20 s", noise.pair, "halves with four times the minutes"),
        ("between launches", noise.launch, "windows' noise taken off; only more launches help"),
        (f"runs of {calibration.run_s:.0f} s of windows", calibration.launch_sd, "windows' noise included"),
    ]
    found: list[Row] = [
        (name, pct(spread.sd), ends(spread), remedy) for name, spread, remedy in rows if spread is not None
    ]
    drift = noise.drift_per_min
    if drift is None:
        return found
    steepest = f"steepest launch {signed(noise.steepest_drift_per_min)}; balanced orders remove it"
    return [*found, ("drift within a launch, a minute", signed(drift.estimate), signed_ends(drift), steepest)]


def power_rows(calibration: Calibration) -> list[Row]:
    """Effect, then for each method the minutes for 90 % power, and the stated interval's coverage."""
    rows: list[Row] = []
    for effect in sorted({point.effect for point in calibration.power}):
        cells = [pct(effect)]
        for method in (Method.HOT, Method.COLD):
            points = [p for p in calibration.power if p.method == method and p.effect == effect]
            cells += _power_cells(points[0].minutes_for(POWER), points[0].coverage) if points else [figures.DASH] * 2
        rows.append(tuple(cells))
    return rows


def smallest_rows(calibration: Calibration) -> list[Row]:
    """Minutes, smallest effect hot, smallest effect cold."""
    rows: list[Row] = []
    for minutes in SHOWN_MIN:
        cells = [f"{minutes} min"]
        for method in (Method.HOT, Method.COLD):
            effect = smallest_effect([p for p in calibration.power if p.method == method], minutes)
            cells.append(figures.DASH if effect is None else pct(effect))
        rows.append(tuple(cells))
    return rows


def setting_rows(calibration: Calibration) -> list[Row]:
    """Name, value, reason."""
    return [(setting.name, setting_value(setting), setting.reason) for setting in calibration.settings]


def setting_value(setting: Setting) -> str:
    """With its unit; a dash where the data do not say."""
    if setting.value is None:
        return figures.DASH
    if setting.unit == "share":
        return pct(setting.value)
    return f"{setting.value:,.6g} {setting.unit}"


def limits(calibration: Calibration) -> list[str]:
    """What this page does not cover."""
    freedom = calibration.launch_sd.freedom if calibration.launch_sd else 0
    lines = [
        "Another preset, topology or machine: compare and gate take a calibration only where those facts are equal.",
        "A busier machine, another temperature, another time of day: calibrate while the machine does what it will do.",
        "What a real toggle does after a switch: both arms were equal here, so nothing had to settle.",
        "Redrawn comparisons reuse these minutes: they show what the method makes of this noise, not of other noise.",
        f"A slow-down below the tolerance, {pct(calibration.rule.tolerance)}, is `no regression` by rule.",
    ]
    if calibration.noise.num_blocks < MANY_BLOCKS:
        lines.append(
            f"Few blocks were measured ({calibration.noise.num_blocks}): redrawn, they soon repeat themselves."
        )
    if freedom < 9:
        launches = f"Few launches were made ({freedom + 1:.0f})" if freedom else "No two launches can be compared"
        lines.append(f"{launches}: what is said of cold comparisons is rough; the same command adds launches.")
    return lines


def share(value: Share) -> str:
    """Count, total and interval."""
    return f"{value.count} of {value.total:,} ({pct(value.low)} to {pct(value.high)})"


def ends(spread: Spread) -> str:
    """Both ends of a spread's interval."""
    return f"{pct(spread.low)} to {pct(spread.high)}"


def signed_ends(interval: Interval) -> str:
    """Both ends of an interval of changes."""
    return f"{signed(interval.low)} to {signed(interval.high)}"


def pct(value: float) -> str:
    """A share as a percentage, two digits or three."""
    if not math.isfinite(value):
        return figures.DASH
    percent = 100 * value
    num_decimals = 2 if abs(percent) < 0.995 else 1 if abs(percent) < 9.95 else 0
    text = f"{percent:.{num_decimals}f}".replace("-", "−")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def signed(value: float) -> str:
    """A change as a percentage with its sign."""
    return f"+{pct(value)}" if value > 0 else pct(value)


def trial_titles() -> Sequence[str]:
    """Of `trial_rows`."""
    return ("equal cells compared", "false alarms", "interval held the truth", "blocks at most", "where they come from")


def uncertain(trials: Sequence[TrialSummary], stated: float) -> list[str]:
    """Names of the kinds whose trials are too few to show the stated rate."""
    return [trial.name for trial in trials if trial.false_alarms.high > stated >= trial.false_alarms.low]


def _power_cells(minutes: float | None, coverage: float) -> list[str]:
    return [figures.DASH if minutes is None else f"{minutes:.1f} min", pct(coverage)]


def _known(value: float | None) -> float:
    return math.nan if value is None else value
