"""
Does the gate cry wolf, and does it bite? `python -m benchmarks.gate --from DIR…` judges what `gate_real` recorded.

Besides real gates, 1,000 simulated ones of each kind of noise and change, and series of runs for the history's drift.
Beside each what a fixed 3 % threshold on one run would have said. Writes `results/gate_….json`; seven minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from benchmarks import gate_drift
from benchmarks.gate_measures import FALSE, SEEN, drift_measures, real_measures, simulated_measures
from benchmarks.gate_noise import has_gates, make_noise, noise_names, pair_sd
from benchmarks.gate_repos import KINDS
from benchmarks.gate_simulation import EFFECTS, LAUNCH_S, simulate
from benchmarks.gate_trials import Trial, read_trials
from benchmarks.results_file import RESULTS, Measure, write_results

DRIFTS = ((0.01, 2), (0.015, 3), (0.02, 4), (0.02, 3), (0.02, 2), (0.01, 1))
"""Noise of a run, and runs of a level."""
FLAT_SD = 0.015
"""In flat series; where nothing is lost, twice the noise is the same series on another scale."""
NUM_RECORDED = 4
"""Runs between losses where each change has a gate: its launches of base."""


@click.command()
@click.option("--from", "folders", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--num", default=1000, show_default=True, type=click.IntRange(min=2), help="Simulated gates, and series.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, folders: tuple[Path, ...], num: int, results: Path) -> None:
    """Judge all trials in the folders, simulate, print, and write the results file."""
    trials = read_trials(folders)
    harmless = [trial for trial in trials if KINDS[trial.kind].is_harmless and trial.pairs]
    measures = []
    for measure in all_measures(trials, harmless, num):
        click.echo(f"{measure}   {measure.note}")
        measures.append(measure)
    data: dict[str, Any] = {"simulated": num, "launch_s": LAUNCH_S, "trials": [_told(trial) for trial in trials]}
    hardware = " and ".join(dict.fromkeys(trial.hardware for trial in trials))
    click.echo(f"written to {write_results('gate', measures, data, folder=results, measured_on=hardware)}")


def all_measures(trials: Sequence[Trial], harmless: Sequence[Trial], num: int) -> Iterator[Measure]:
    """
    Real gates first, where there are any.

    Args:
        trials: All that were recorded.
        harmless: Those without a difference between base and head, with pairs: noise for simulated ones.
        num: Of simulated gates of each kind, and of series.
    """
    if trials:
        yield from real_measures(trials)
    for name in noise_names(harmless):
        noise = make_noise(name, harmless)
        gates = {effect: list(simulate(noise, effect, num=num)) for effect in EFFECTS}
        yield from simulated_measures(name, pair_sd(noise), gates)
    yield from _drift(harmless, num)


def _drift(harmless: Sequence[Trial], num: int) -> Iterator[Measure]:
    for sd, num_each in DRIFTS:
        yield from _losses(gate_drift.gaussian(sd), f"noise_{_percent(sd)}", num_each, num)
    for make in (gate_drift.gaussian, gate_drift.heavy_tails, gate_drift.odd_runs):
        yield from drift_measures(f"false_{make.__name__}", list(gate_drift.flat(make(FLAT_SD), num=num)), FALSE)
    if has_gates(harmless):
        draw = gate_drift.recorded(harmless)
        yield from _losses(draw, "recorded_gates", NUM_RECORDED, num)
        yield from drift_measures("false_recorded_gates", list(gate_drift.flat(draw, num=num)), FALSE)


def _losses(draw: gate_drift.Draw, name: str, num_each: int, num: int) -> Iterator[Measure]:
    courses = list(gate_drift.losses(draw, num_each=num_each, num=num))
    yield from drift_measures(f"seen_{name}_{num_each}_runs", courses, SEEN)


def _percent(share: float) -> str:
    return f"{100 * share:g}_pct"


def _told(trial: Trial) -> dict[str, Any]:
    """As it stands in the file: digits that nobody reads left out."""
    pairs = tuple(
        replace(
            pair,
            difference=round(pair.difference, 5),
            base_log_tok_per_s=round(pair.base_log_tok_per_s, 5),
            length_s=round(pair.length_s, 1),
        )
        for pair in trial.pairs
    )
    change = trial.change and [round(value, 5) for value in trial.change]
    told = replace(trial, pairs=pairs, spent_s=round(trial.spent_s, 1), wall_s=round(trial.wall_s, 1))
    return {**asdict(told), "change": change}


if __name__ == "__main__":
    main()
