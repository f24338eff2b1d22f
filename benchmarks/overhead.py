"""
What measuring costs: `python -m benchmarks.overhead`, about twelve minutes on two quiet cores.

*samplers*: a real launch of the pipeline, windows with and without each sampler: `benchmarks.overhead_samplers`.
*emitter*: a span (`benchmarks.emitter`), and what all of it adds to a step: `benchmarks.overhead_emitter`.
*profiler*: torch.profiler around drafter steps in this process: `benchmarks.overhead_torch`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch

from benchmarks.emitter import time_rounds, to_measures
from benchmarks.overhead_configurations import Configuration, configurations
from benchmarks.overhead_emitter import REAL_ROW, first_device, make_silent_bench, measure_emitter
from benchmarks.overhead_samplers import Study
from benchmarks.overhead_torch import study_profilers
from benchmarks.results_file import RESULTS, Measure, write_results
from flashprof.app.measure import record
from flashprof.app.subject import pipeline_command
from flashprof.app.wiring import wire
from flashprof.cli.subjects import split_options, workload_options
from flashprof.cli.terminal import progress_on_stderr
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.experiment import Experiment, Output, SubjectSpec, apply_settings
from flashprof.contracts.outcome import Outcome
from flashprof.store.run_folder import create_run_folder
from flashprof.store.tail import read_event_logs

EMITTER_ROUNDS = 51


@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much of each part."""

    num_pairs: int
    num_profiler_pairs: int
    num_rounds: int
    window_s: float
    samplers: tuple[str, ...] = ()
    """Names of configurations; all where there are none."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one part found."""

    measures: list[Measure]
    data: dict[str, Any]
    left_out: dict[str, str] = field(default_factory=dict)
    """What could not be had here, and why."""


@click.command()
@click.option(
    "--only", "names", multiple=True, type=click.Choice(["emitter", "samplers", "profiler"]), help="Prints only."
)
@click.option("--pairs", default=5_000, show_default=True, type=click.IntRange(min=2), help="Of short steps.")
@click.option("--profiler-pairs", default=12, show_default=True, type=click.IntRange(min=2), help="Of three steps.")
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(min=2), help="All samplers, each time.")
@click.option("--window-s", default=2.0, show_default=True, type=click.FloatRange(min=0.2))
@click.option("--sampler", "chosen", multiple=True, metavar="NAME", help="Only this one; default: all.")
@click.option("--toggles", default="compile,swa", show_default=True, help="Of the launch under the samplers.")
@workload_options
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(
    *,
    names: tuple[str, ...],
    pairs: int,
    profiler_pairs: int,
    rounds: int,
    window_s: float,
    chosen: tuple[str, ...],
    results: Path,
    **cell: Any,
) -> None:
    """Measure, print, and write the results file."""
    load = os.getloadavg()
    amount = Amount(
        num_pairs=pairs, num_profiler_pairs=profiler_pairs, num_rounds=rounds, window_s=window_s, samplers=chosen
    )
    # The launch first: a wrong option shows at once, and this process is still small.
    todo: dict[str, Callable[[Path], Part]] = {
        "samplers": lambda folder: measure_samplers(_experiment(folder, cell), amount),
        "emitter": lambda folder: measure_spans(folder, amount),
        "profiler": lambda _: measure_profiler(amount),
    }
    parts: dict[str, Part] = {}
    for name, measure in todo.items():
        if name in (names or todo):
            with TemporaryDirectory() as folder:
                parts[name] = _try(measure, Path(folder))
            show(parts[name])
    if names:
        return
    measures = [measure for name in ("emitter", "samplers", "profiler") for measure in parts[name].measures]
    data = {"load_average_before": load, "left_out": parts["samplers"].left_out}
    for part in parts.values():
        data |= part.data
    click.echo(write_results("overhead", measures, data, folder=results))


def measure_samplers(experiment: Experiment, amount: Amount) -> Part:
    """
    What each sampler costs a launch of the pipeline.

    Raises:
        FlashProfError: It does not start, or does not train to the end.
    """
    ports = wire(experiment, os.environ, Path.cwd())
    all_of_them = chosen_of(configurations(ports), amount.samplers)
    refused = {one.name: one.refusal for one in all_of_them if one.refusal}
    wanted = [one for one in all_of_them if not one.refusal]
    reports = experiment.output.reports
    study = Study(
        wanted,
        reports / "samples",
        num_rounds=amount.num_rounds,
        window_s=amount.window_s,
        seed=experiment.subject.seed,
    )
    folder = create_run_folder(reports, experiment.output.run_id)
    with progress_on_stderr() as progress:
        progress.note(f"{len(study.turns)} blocks of 4 windows: about {study.length_s / 60:.0f} min")
        recording = record(experiment, folder, replace(ports, samplers=(), meter=None), progress, study.run)
    if recording.outcome is not Outcome.COMPLETED:
        raise click.ClickException(f"the launch {recording.outcome}: {recording.reason}")
    costs = study.costs(read_event_logs(folder.events))
    blocks = {cost.name: list(cost.differences) for cost in costs}
    never = {name: why for name, why in study.left_out.items() if name not in blocks}
    return Part(
        measures=[cost.as_measure() for cost in costs],
        data={"log_differences_by_block": blocks, "remarks": study.remarks, "notes": list(recording.notes)},
        left_out=refused | never,
    )


def chosen_of(those: Sequence[Configuration], names: Sequence[str]) -> list[Configuration]:
    """
    Those of the names, or all.

    Raises:
        click.UsageError: There is none of a name.
    """
    known = [one.name for one in those]
    if unknown := sorted(set(names) - set(known)):
        raise click.UsageError(f"no such sampler: {unknown[0]}; there are {', '.join(known)}")
    return [one for one in those if one.name in names or not names]


def measure_spans(folder: Path, amount: Amount) -> Part:
    """What a span costs, and the whole emitter a step."""
    torch.set_num_threads(1)
    rounds = time_rounds(EMITTER_ROUNDS, seed=0)
    measures = [*to_measures(rounds), *measure_emitter(folder, amount.num_pairs)]
    return Part(measures=measures, data={"ns_per_span_by_round": rounds})


def measure_profiler(amount: Amount) -> Part:
    """What torch.profiler costs a step."""
    torch.set_num_threads(1)
    bench = make_silent_bench(first_device())
    costs = study_profilers(lambda: bench.run_step(REAL_ROW), amount.num_profiler_pairs)
    ratios = {cost.name: list(cost.ratios) for cost in costs}
    return Part(measures=[cost.as_measure() for cost in costs], data={"step_ratios_by_pair": ratios})


def _experiment(folder: Path, cell: dict[str, Any]) -> Experiment:
    subject = SubjectSpec(
        preset=cell["preset"],
        topology=cell["topology"],
        toggles=cell["toggles"],
        seed=cell["seed"],
        train_options=split_options(cell["train_options"]),
    )
    subject = replace(subject, command=pipeline_command(subject))
    experiment = Experiment(subject=subject, output=Output(reports=folder, run_id="overhead"))
    return apply_settings(experiment, cell["settings"])


def _try(measure: Callable[[Path], Part], folder: Path) -> Part:
    try:
        return measure(folder)
    except FlashProfError as error:
        click.echo(error, err=True)
        raise SystemExit(error.exit_code) from None


def show(part: Part) -> None:
    """The table, with what is not in it."""
    for measure in part.measures:
        click.echo(f"{measure}   {measure.note}")
    for name, why in part.left_out.items():
        click.echo(f"{name:32} left out: {why}")


if __name__ == "__main__":
    main()
