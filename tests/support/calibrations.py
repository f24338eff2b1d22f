"""A calibration as a quiet two-core machine would give it, and one of a single short launch."""

from __future__ import annotations

from dataclasses import replace

from flashprof.contracts.calibration import (
    Calibration,
    NoiseBudget,
    PowerPoint,
    Setting,
    Share,
    Spread,
    TrialSummary,
    WindowChoice,
)
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.results import Interval

FACTS = {
    "machine.host": "lab-7",
    "machine.cpu": "a CPU <of some kind>",
    "machine.num_cores": "2",
    "workload.preset": "tiny",
    "topology": "1+1",
}


def spread(sd: float, freedom: float = 200.0) -> Spread:
    return Spread(sd=sd, low=0.9 * sd, high=1.12 * sd, freedom=freedom)


def power_point(method: str, effect: float, minutes: float, num_found: int = 20) -> PowerPoint:
    times = tuple(minutes * (0.5 + 0.5 * index / 17) for index in range(num_found))
    return PowerPoint(method=method, effect=effect, num_trials=20, minutes=times, coverage=0.95)


def trial(name: str, alarms: int, covered: int, total: int, note: str) -> TrialSummary:
    return TrialSummary(
        name=name,
        false_alarms=Share(count=alarms, total=total, low=0.0, high=0.009),
        coverage=Share(count=covered, total=total, low=covered / total - 0.02, high=covered / total + 0.02),
        num_blocks=120,
        note=note,
    )


def quiet() -> Calibration:
    """Six launches, everything known."""
    noise = NoiseBudget(
        step=spread(0.047, 4000),
        step_autocorrelation=0.52,
        window=spread(0.019, 1100),
        window_autocorrelation=0.31,
        pair=spread(0.0071, 280),
        block=spread(0.0142, 280),
        launch=Spread(sd=0.011, low=0.004, high=0.031, freedom=5),
        drift_per_min=Interval(
            estimate=-0.0012, low=-0.004, high=0.0016, level=0.95, num_samples=6, method="t-interval over 6 launches"
        ),
        steepest_drift_per_min=-0.0061,
        block_s=5.0,
        num_launches=6,
        num_blocks=96,
        num_windows=384,
        windows=(
            WindowChoice(num_steps=2, num_tokens=600, sd_per_20_s=0.0092),
            WindowChoice(num_steps=4, num_tokens=1200, sd_per_20_s=0.0071),
            WindowChoice(num_steps=8, num_tokens=2400, sd_per_20_s=0.0083),
        ),
    )
    return Calibration(
        facts=FACTS,
        toggles="compile,swa",
        date="2026-11-30T04:00:00",
        measured_min=10.2,
        startup_s=8.4,
        overhead_s=21.0,
        noise=noise,
        launch_sd=Spread(sd=0.013, low=0.008, high=0.032, freedom=5),
        run_s=25.0,
        rule=DecisionRule(),
        trials=(
            trial("hot, redrawn", 0, 381, 400, "blocks of all launches, each turned round by a coin"),
            trial("hot, as recorded", 0, 8, 8, "disjoint stretches of 12 blocks"),
            trial("cold, paired at random", 1, 188, 200, "6 launches, each once"),
        ),
        power=(
            power_point("hot", 0.01, 8.0),
            power_point("hot", 0.02, 2.6),
            power_point("hot", 0.05, 0.8),
            power_point("hot", 0.17, 0.5),
            power_point("cold", 0.02, 40.0, num_found=6),
            power_point("cold", 0.05, 22.0),
            power_point("cold", 0.17, 7.5),
        ),
        settings=(
            Setting(name="window_tokens", value=1200, unit="tokens", reason="the shortest of the quietest"),
            Setting(name="measure_s", value=31.0, unit="s", reason="a launch costs 21 s beside its windows"),
            Setting(name="budget_2_pct", value=2.6, unit="min", reason="90 % were called by then"),
            Setting(name="budget_5_pct", value=None, unit="min", reason="not found"),
            Setting(name="alpha", value=0.01, unit="share", reason="as stated"),
        ),
        notes=("launch-04: crashed (status 1); left out",),
        paths=(("page", "reports/calibration-0123/calibration.md"),),
    )


def scant() -> Calibration:
    """One launch that ended soon."""
    full = quiet()
    noise = replace(full.noise, step=None, launch=None, drift_per_min=None, num_launches=1, num_blocks=3, windows=())
    return replace(
        full, noise=noise, launch_sd=None, trials=(), power=(), startup_s=None, notes=(), settings=full.settings[3:4]
    )
