"""
May the verdicts be trusted? `python -m benchmarks.calibration LANES…` judges what `calibration_record` recorded.

False alarms, coverage of the stated interval, and planted slow-downs found: by FlashProf, and on the same windows by a
before/after comparison and by t-tests. Then the same for 1,000 simulated comparisons of each kind of noise: drawn from
a Gaussian, and cut from recorded steps. Writes `results/calibration_….json`; about two minutes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, quantiles, stdev
from typing import Any

import click
import numpy as np

from benchmarks.calibration_trials import Recorded, Trial, cut_trials, read_blocks, simulate, step_differences
from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from flashprof.contracts.comparison import Comparison, DecisionRule, Verdict
from flashprof.stats.power import share_of

AA_RULE = DecisionRule(budget_s=40.0)
"""Long enough for eight blocks, so that many comparisons come out of an hour."""
PLANTED_RULE = DecisionRule(budget_s=600.0)
NUM_SIMULATED = 1_000
NUM_LOOKS = 60
NUM_REDRAWN = 200
STRETCH = 8
"""Blocks that stay neighbours when trials are redrawn: what drift and noise they share stays with them."""
EFFECTS = (0.0, 0.02, 0.05, 0.17)
BLOCK_SD = 0.02
ALARMS, COVERAGE, FOUND = Goal(high=1.0), Goal(low=93.0, high=97.0), Goal(low=90.0)
PAIRED_SD = Goal(high=1.0)
NAMES = {"0": "aa", "20": "2_pct", "50": "5_pct", "170": "17_pct"}


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What one lane recorded, hot."""

    task: str
    """`aa`, `competitor`, `2_pct`, …"""
    per_mille: int
    machine: str
    """Name of the folder that it was in."""
    blocks: Sequence[Recorded]
    steps: Sequence[np.ndarray]
    """Of each launch, (num_steps, 2): seconds and tokens."""


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, folders: tuple[Path, ...], results: Path) -> None:
    """Judge all lanes in FOLDERS, print, and write the results file."""
    lanes = [lane for folder in folders for lane in read_lanes(folder)]
    trials = {task: list(trials_of(lanes, task)) for task in ("aa", "competitor", "2_pct", "5_pct", "17_pct")}
    measures = [*noise_measures(lanes), *alarm_measures(trials), *found_measures(trials)]
    measures += [*redrawn_measures(lanes), *simulated_measures(lanes)]
    for measure in measures:
        click.echo(f"{measure}   {measure.note}")
    data = {
        "folders": {folder.name: sorted(path.name for path in folder.glob("*.json")) for folder in folders},
        "trials": {task: [_told(trial) for trial in found] for task, found in trials.items()},
    }
    click.echo(write_results("calibration", measures, data, folder=results))


def read_lanes(folder: Path) -> Iterator[Lane]:
    """All hot lanes of a folder."""
    for path in sorted(folder.glob("hot-*.json")):
        raw = json.loads(path.read_text(encoding="utf-8"))
        about = raw["about"]
        yield Lane(
            task="competitor" if about["competitor"] else NAMES[str(about["per_mille"])],
            per_mille=about["per_mille"],
            machine=folder.name,
            blocks=read_blocks(raw),
            steps=[_steps(launch["steps"]) for launch in raw["launches"] if len(launch["steps"]) > 200],
        )


def trials_of(lanes: Sequence[Lane], task: str) -> Iterator[Trial]:
    """Those of one task, lane by lane."""
    for lane in lanes:
        if lane.task == task:
            rule = PLANTED_RULE if lane.per_mille else AA_RULE
            yield from cut_trials(lane.blocks, rule, planted=lane.per_mille / 1000)


def noise_measures(lanes: Sequence[Lane]) -> Iterator[Measure]:
    """The paired difference over 20 s, of every machine and task that has blocks."""
    for machine in dict.fromkeys(lane.machine for lane in lanes):
        for task in dict.fromkeys(lane.task for lane in lanes if lane.machine == machine):
            own = [lane for lane in lanes if (lane.machine, lane.task) == (machine, task) and len(lane.blocks) > 2]
            values = [item.block.difference - mean(_differences(lane)) for lane in own for item in lane.blocks]
            if len(values) < 3:
                continue
            block_s = mean(item.end_s - item.start_s for lane in own for item in lane.blocks)
            yield Measure(
                name=f"paired_sd_20s_{machine}_{task}",
                value=100 * stdev(values) * math.sqrt(block_s / 20),
                unit="%",
                goal=PAIRED_SD if task == "aa" else None,
                note=f"{len(values)} blocks of {block_s:.1f} s, {100 * stdev(values):.2f} % each",
            )


def alarm_measures(trials: Mapping[str, Sequence[Trial]]) -> Iterator[Measure]:
    """Real A/A comparisons, looked at after every block."""
    for name, found in (
        ("aa", trials["aa"]),
        ("competitor", trials["competitor"]),
        ("all", [*trials["aa"], *trials["competitor"]]),
    ):
        if not found:
            continue
        yield _share(f"false_alarm_real_{name}", [trial.is_alarm for trial in found], ALARMS)
        yield _share(f"coverage_real_{name}", [trial.covers(0.0) for trial in found], COVERAGE)
        for method in ("t_test", "before_after", "before_after_t"):
            called = [getattr(trial, method) is not Verdict.INCONCLUSIVE for trial in found]
            yield _share(f"false_alarm_{method}_{name}", called, None)


def found_measures(trials: Mapping[str, Sequence[Trial]]) -> Iterator[Measure]:
    """Planted slow-downs, and how long it took."""
    for task, effect in (("2_pct", 0.02), ("5_pct", 0.05), ("17_pct", 0.17)):
        found = trials[task]
        if not found:
            continue
        yield _share(f"found_{task}", [trial.is_found for trial in found], FOUND)
        spent_min = [trial.spent_s / 60 for trial in found if trial.is_found]
        if len(spent_min) > 1:
            note = (
                f"90 % within {quantiles(spent_min, n=10)[-1]:.2f} min; start-up and warm-up, once a launch, not in it"
            )
            yield Measure(name=f"minutes_{task}", value=median(spent_min), unit="min", note=note)
        yield _share(f"covered_{task}", [trial.covers(-effect) for trial in found], None)
        for method in ("t_test", "before_after", "before_after_t"):
            called = [getattr(trial, method) is Verdict.REGRESSION for trial in found]
            yield _share(f"found_{method}_{task}", called, None)


def redrawn_measures(lanes: Sequence[Lane]) -> Iterator[Measure]:
    """
    Planted slow-downs in trials drawn with replacement from the recorded blocks of one machine.

    A real trial of 2 % takes minutes, so that an hour of recording holds a dozen; redrawn ones say what is to be
    expected of more, as far as the recorded blocks stand for them.
    """
    rng = np.random.default_rng(1)
    for task, effect in (("2_pct", 0.02), ("5_pct", 0.05), ("17_pct", 0.17)):
        for machine in dict.fromkeys(lane.machine for lane in lanes if lane.task == task):
            own = [lane for lane in lanes if (lane.machine, lane.task) == (machine, task)]
            long = [lane for lane in own if len(lane.blocks) > STRETCH]
            if long:
                yield from _redrawn(f"redrawn_{machine}_{task}", long, effect, rng)


def _redrawn(name: str, lanes: Sequence[Lane], effect: float, rng: np.random.Generator) -> Iterator[Measure]:
    num_blocks = sum(len(lane.blocks) for lane in lanes)
    block_s = sum(_gaps_s(lanes)) / num_blocks
    looks = int(PLANTED_RULE.budget_s / block_s)
    draws = [_redraw(lanes, looks, rng) for _ in range(NUM_REDRAWN)]
    found = list(simulate(draws, replace(PLANTED_RULE, budget_s=math.inf), block_s=block_s))
    yield _share(f"found_{name}", [item.verdict is Verdict.REGRESSION for item in found], FOUND)
    yield _share(f"covered_{name}", [item.effect.low <= -effect <= item.effect.high for item in found], None)
    spent_min = [item.num_blocks * block_s / 60 for item in found]
    note = f"90 % within {quantiles(spent_min, n=10)[-1]:.2f} min; from {num_blocks} blocks, within 10 min each"
    yield Measure(name=f"minutes_{name}", value=median(spent_min), unit="min", note=note)


def _gaps_s(lanes: Sequence[Lane]) -> Iterator[float]:
    """What each block takes, from the end of the one before where that is of the same launch."""
    for lane in lanes:
        for before, item in zip([None, *lane.blocks[:-1]], lane.blocks, strict=True):
            is_next = before is not None and before.block.launches == item.block.launches
            yield item.end_s - (before.end_s if is_next and before is not None else item.start_s)


def _redraw(lanes: Sequence[Lane], num_blocks: int, rng: np.random.Generator) -> list[float]:
    """Stretches of neighbouring blocks, each from a random place of a random lane."""
    drawn: list[float] = []
    while len(drawn) < num_blocks:
        differences = _differences(lanes[int(rng.integers(len(lanes)))])
        first = int(rng.integers(len(differences) - STRETCH + 1))
        drawn += differences[first : first + STRETCH]
    return drawn[:num_blocks]


def simulated_measures(lanes: Sequence[Lane]) -> Iterator[Measure]:
    """1,000 comparisons of each kind of noise, looked at after every block."""
    rng = np.random.default_rng(0)
    gaussian = rng.normal(0.0, BLOCK_SD, size=(NUM_SIMULATED, NUM_LOOKS))
    yield from _simulated("gaussian", gaussian.tolist(), AA_RULE)
    for effect in EFFECTS[1:]:
        covered = [item.effect.low <= -effect <= item.effect.high for item in _judged(gaussian.tolist(), effect)]
        yield _share(f"coverage_simulated_gaussian_{100 * effect:g}_pct", covered, COVERAGE)
    for machine in dict.fromkeys(lane.machine for lane in lanes):
        series = [steps for lane in lanes if (lane.machine, lane.task) == (machine, "aa") for steps in lane.steps]
        draws = []
        while series and len(draws) < NUM_SIMULATED:
            drawn = step_differences(series[int(rng.integers(len(series)))], rng, num_blocks=8)
            if drawn is not None:
                draws.append(drawn)
        if draws:
            yield from _simulated(f"steps_{machine}", draws, AA_RULE)


def _simulated(name: str, draws: Sequence[Sequence[float]], rule: DecisionRule) -> Iterator[Measure]:
    found = list(simulate(draws, replace(rule, budget_s=math.inf)))
    alarms = [item.verdict is Verdict.REGRESSION or item.deciding.low > 0 for item in found]
    yield _share(f"false_alarm_simulated_{name}", alarms, ALARMS)
    covered = [item.effect.low <= 0 <= item.effect.high for item in found]
    yield _share(f"coverage_simulated_{name}", covered, COVERAGE)


def _judged(draws: Sequence[Sequence[float]], effect: float) -> Iterator[Comparison]:
    return simulate(draws, AA_RULE, shift=math.log1p(-effect))


def _share(name: str, shown: Sequence[bool], goal: Goal | None) -> Measure:
    share = share_of(sum(shown), len(shown))
    note = f"{share.count} of {share.total} (95 %: {100 * share.low:.2f} to {100 * share.high:.2f} %)"
    return Measure(name=name, value=100 * share.share, unit="%", goal=goal, note=note)


def _differences(lane: Lane) -> list[float]:
    return [item.block.difference for item in lane.blocks]


def _steps(raw: Sequence[Sequence[int]]) -> np.ndarray:
    """The later part of a launch: its beginning compiles, and visits each arm for the first time."""
    table = np.array(raw, dtype=np.float64)
    seconds = np.diff(table[:, 0]) / 1e9
    return np.column_stack([seconds, table[1:, 1]])[100:]


def _told(trial: Trial) -> dict[str, Any]:
    effect = trial.comparison.effect
    return {
        "verdict": str(trial.comparison.verdict),
        "effect_pct": [round(100 * value, 3) for value in (effect.estimate, effect.low, effect.high)],
        "num_blocks": trial.num_blocks,
        "spent_s": round(trial.spent_s, 1),
        "t_test": str(trial.t_test),
        "before_after": str(trial.before_after),
        "before_after_t": str(trial.before_after_t),
    }


if __name__ == "__main__":
    main()
