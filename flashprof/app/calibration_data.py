"""Run folders of A/A launches → calibration. A function of the folders: it can be made again from them at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from flashprof.app.hot import hot_results
from flashprof.app.judging import MachineJudge
from flashprof.contracts.calibration import Calibration, PowerPoint, Spread, TrialSummary
from flashprof.contracts.comparison import Block, DecisionRule
from flashprof.contracts.errors import FormatError
from flashprof.contracts.events import EventLog, Step
from flashprof.contracts.experiment import WindowPlan
from flashprof.contracts.outcome import Outcome
from flashprof.stats.noise import MeasuredLaunch, launch_means, launch_spread, noise_budget
from flashprof.stats.power import POWER, Judge, clear_share, find_power, judge_errors
from flashprof.stats.recommend import Evidence, recommend
from flashprof.stats.redraw import disjoint_stretches, drawn_pairs, random_pairings, redrawn_stretches
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import cut_windows, find_switches

if TYPE_CHECKING:
    from numpy.random import Generator

RUN_S = WindowPlan.num_measure * WindowPlan.measure_s
"""What `flashprof run` measures of a launch: two such runs differ by the spread that is stated for it."""
STRETCH_BLOCKS = 12
"""Of a comparison as it was recorded: short, for there are few blocks that are used once only."""
NUM_REDRAWN = 400
"""None of 369 or more says `at most 1 %` with its 95 % interval."""
MAX_LOOKS = 200
"""Of a redrawn comparison. A look takes 0.3 ms; 400 comparisons of a machine that never settles take 25 s."""
NUM_PAIRINGS = 200
MIN_COLD_LAUNCHES = 4
NUM_POWER_TRIALS = 60
EFFECTS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.17)
TOLERANCES = (0.005, 0.01, 0.02, 0.03, 0.05)
POWER_S = 600.0
"""Longest hot comparison whose power is tried."""
MAX_COLD_PAIRS = 24


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """All launches of a calibration's folder."""

    launches: tuple[MeasuredLaunch, ...]
    """Those that hold a block that counts, by name."""
    settle_steps: int
    """The most that was dropped after a switch once it had been found."""
    notes: tuple[str, ...]

    @property
    def num_blocks(self) -> int:
        """Blocks that count."""
        return sum(len(launch.counted_blocks) for launch in self.launches)


def read_launches(folder: Path) -> Recorded:
    """
    Read all launches under *folder*, however they ended.

    A launch that was cut off gives its complete blocks and is no whole launch; its folder still begins with a dot.
    """
    launches, settle_steps, notes = [], [0], []
    for path in sorted(folder.iterdir(), key=launch_name) if folder.is_dir() else ():
        if not (path / "events").is_dir():
            continue
        name, outcome = launch_name(path), _outcome(path)
        logs = read_event_logs(path / "events")
        launch = _measured(name, path, logs, is_whole=outcome == Outcome.COMPLETED)
        if launch is None or outcome != Outcome.COMPLETED:
            held = len(launch.counted_blocks) if launch else 0
            notes.append(f"{name}: {outcome}; {held} blocks of it count, as a launch it does not")
        if launch is not None:
            launches.append(launch)
            settle_steps.append(find_switches(logs)[-1].settle_steps)
            num_left_out = len(launch.blocks) - len(launch.counted_blocks)
            if num_left_out:
                notes.append(f"{name}: {num_left_out} of {len(launch.blocks)} blocks were disturbed and are left out")
    return Recorded(launches=tuple(launches), settle_steps=max(settle_steps), notes=tuple(notes))


def analyse(
    recorded: Recorded,
    judge: Judge,
    *,
    facts: Mapping[str, str],
    toggles: str,
    date: str,
    rule: DecisionRule | None = None,
    seed: int = 0,
) -> Calibration:
    """
    Find noise, errors, power and settings.

    Args:
        recorded: At least two blocks that count.
        judge: `stats.compare.compare_blocks`.
        facts: Those that a cell must match.
        toggles: What was on.
        date: Of the analysis, ISO.
        rule: Of the comparisons that are tried; None for the defaults of `flashprof compare`.
        seed: Of the redrawings; equal for equal seeds.
    """
    import numpy as np

    rule, rng, launches = rule or DecisionRule(), np.random.default_rng(seed), recorded.launches
    noise, overhead_s = noise_budget(launches), median(map(_overhead_s, launches))
    run_s = min(RUN_S, median(launch.window_s for launch in launches))
    launch_sd = launch_spread(launches, run_s)
    pair_s = 2 * (overhead_s + run_s)
    hot = [launch.counted_blocks for launch in launches]
    draws = list(redrawn_stretches(hot, max(2, round(POWER_S / noise.block_s)), NUM_POWER_TRIALS, rng))
    trials = _trials(hot, launch_means(launches, run_s), judge, rule, rng, pair_s=pair_s, block_s=noise.block_s)
    power = [find_power(draws, effect, judge, rule, start_s=overhead_s) for effect in EFFECTS]
    power += _cold_power(launch_sd, judge, rule, rng, pair_s=pair_s)
    evidence = Evidence(
        noise=noise,
        trials=trials,
        power=power,
        clear_shares=_clear_shares(draws, judge, rule),
        settle_steps=recorded.settle_steps,
        window_s=sum(launch.window_s for launch in launches) / noise.num_windows,
        overhead_s=overhead_s,
        rule=rule,
    )
    return Calibration(
        facts=dict(facts),
        toggles=toggles,
        date=date,
        measured_min=sum(launch.length_s for launch in launches) / 60,
        startup_s=_median_startup_s(launches),
        overhead_s=overhead_s,
        noise=noise,
        launch_sd=launch_sd,
        run_s=run_s,
        rule=rule,
        trials=tuple(trials),
        power=tuple(power),
        settings=recommend(evidence),
        notes=recorded.notes,
    )


def launch_name(path: Path) -> str:
    """The run id, also of a folder that was cut off."""
    return path.name.removeprefix(".").removesuffix(".part")


def _trials(
    hot: Sequence[Sequence[Block]],
    means: Sequence[float],
    judge: Judge,
    rule: DecisionRule,
    rng: Generator,
    *,
    pair_s: float,
    block_s: float,
) -> list[TrialSummary]:
    num_blocks = max(2, min(MAX_LOOKS, round(rule.budget_s / block_s)))
    redrawn = redrawn_stretches(hot, num_blocks, NUM_REDRAWN, rng)
    recorded = disjoint_stretches(hot, STRETCH_BLOCKS)
    found = [
        judge_errors("hot, redrawn", redrawn, judge, rule, note="recorded blocks, each turned round by a coin"),
        judge_errors("hot, as recorded", recorded, judge, rule, note="disjoint stretches, each used once"),
    ]
    if len(means) >= MIN_COLD_LAUNCHES:
        pairings = random_pairings(means, NUM_PAIRINGS, rng, pair_s=pair_s)
        note = f"{len(means)} launches paired at random: few, used again and again"
        found.append(judge_errors("cold, paired at random", pairings, judge, rule, note=note))
    return [trial for trial in found if trial is not None]


def _cold_power(
    launch_sd: Spread | None, judge: Judge, rule: DecisionRule, rng: Generator, *, pair_s: float
) -> list[PowerPoint]:
    if launch_sd is None:
        return []
    draws = list(drawn_pairs(launch_sd.sd, MAX_COLD_PAIRS, NUM_POWER_TRIALS, rng, pair_s=pair_s))
    # What a pair takes holds its own start-up.
    return [find_power(draws, effect, judge, rule, start_s=0.0) for effect in EFFECTS]


def _clear_shares(draws: Sequence[Sequence[Block]], judge: Judge, rule: DecisionRule) -> dict[float, float]:
    """From the smallest tolerance up, until one is large enough."""
    shares: dict[float, float] = {}
    for tolerance in TOLERANCES:
        shares[tolerance] = clear_share(draws, judge, replace(rule, tolerance=tolerance))
        if shares[tolerance] >= POWER:
            break
    return shares


def _measured(name: str, path: Path, logs: Sequence[EventLog], *, is_whole: bool) -> MeasuredLaunch | None:
    """None where there is no block that counts."""
    if not cut_windows(logs):
        return None
    windows, blocks = hot_results(logs, launch=name, judge=MachineJudge(path / COUNTERS_FILE))
    if all(block.disturbances for block in blocks):
        return None
    steps = _lead_steps(logs)
    startup_s = _startup_s(path)
    begin_ns = min(log.header.monotonic_ns for log in logs)
    if startup_s is not None:
        begin_ns = steps[0].end_ns - round(startup_s * 1e9)
    return MeasuredLaunch(
        launch=name,
        windows=windows,
        blocks=blocks,
        step_ends_ns=[step.end_ns for step in steps],
        step_tokens=[step.num_tokens for step in steps],
        begin_ns=begin_ns,
        length_s=(steps[-1].end_ns - begin_ns) / 1e9,
        startup_s=startup_s,
        is_whole=is_whole,
    )


def _lead_steps(logs: Sequence[EventLog]) -> Sequence[Step]:
    trainers = [log for log in logs if log.header.trains and log.steps]
    return min(trainers, key=lambda log: log.header.rank).steps


def _overhead_s(launch: MeasuredLaunch) -> float:
    return (launch.counted_windows[0].start_ns - launch.begin_ns) / 1e9


def _median_startup_s(launches: Sequence[MeasuredLaunch]) -> float | None:
    known = [launch.startup_s for launch in launches if launch.startup_s is not None]
    return median(known) if known else None


def _outcome(path: Path) -> str:
    """As the manifest says; `cut off` where FlashProf was killed before it could write."""
    return _read(path / "manifest.json").get("outcome") or "cut off"


def _startup_s(path: Path) -> float | None:
    return _read(path / "summary.json").get("startup_s")


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path.name} cannot be read", where=str(path), next_command="--fresh") from error
