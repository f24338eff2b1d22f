"""
Tok/s against topology, measured and foretold: `python -m benchmarks.scaling measure`, about 4 minutes on two cores.

    measure      run each topology, take the stages' capacities from one of them, compare with the model
    judge        the same for run folders that exist, or with capacities that were measured alone
    predict      no run: every split of N devices, for Qwen3-8B and for a dense model of 27B

Capacities come from `1+1`, whose workers have a core or a GPU each; where there is none they must be given. On two
cores no larger topology has a core for each worker: the model then says that the cores are the bound, and what is
tested is that nothing is lost on top (switching processes, spinning threads), not that a queue is deep enough.
Results kind `scaling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from benchmarks.scaling_model import Prediction, Stages, predict, splits
from benchmarks.scaling_runs import (
    AGREE_S,
    GPU_BUS_BYTES_PER_S,
    GPU_COPY_BYTES_PER_S,
    LINK_BYTES_PER_S,
    MeasuredRun,
    read_run,
    run_command,
    run_name,
    shape_of,
    start,
    with_anchors,
    work_of,
)
from benchmarks.scaling_shapes import DENSE_27B, QWEN3_8B, ModelShape, Work, carried, drafter_weights
from pipeline.presets import Preset, find_preset
from pipeline.topology import parse_topology

CPU_TOPOLOGIES = "1+1,2+1,1+2,2+2,3+2,5+3"
ALONE = "1+1"
CPU_TOGGLES = "all,-compile,-compile-target,-compile-drafter,-warmup"
"""Eight processes that compile at once on two cores do nothing else for minutes."""
NUM_DEVICES = 8
WITHIN = 0.10
QWEN3_PRESET = "qwen3-8b-random"
GIVEN = ("target_tok_per_s", "drafter_tok_per_s", "target_cv", "drafter_cv")

Command = Callable[..., Any]


def stage_options(command: Command) -> Command:
    """What the stages do alone, where it was measured elsewhere."""
    for name, text in reversed(
        (
            ("target", "One target alone, tok/s: benchmarks.target_forward."),
            ("drafter", "One drafter alone, tok/s: benchmarks.drafter_step."),
        )
    ):
        command = click.option(f"--{name}-cv", type=click.FloatRange(min=0), help="Of a batch's time.")(command)
        command = click.option(f"--{name}-tok-per-s", type=click.FloatRange(min=1), help=text)(command)
    return command


@click.group()
def main() -> None:
    """Measure topologies, and foretell them."""


@main.command()
@click.option("--preset", default="tiny", show_default=True)
@click.option("--topologies", default=CPU_TOPOLOGIES, show_default=True, help="Of a GPU: shared; of two: 1+1.")
@click.option("--toggles", default=CPU_TOGGLES, show_default=True, help="On GPUs: all.")
@click.option("--train", default="", metavar="OPTIONS", help="More options of the pipeline's train.")
@click.option("--windows", default=4, show_default=True, type=click.IntRange(min=2))
@click.option("--window-s", default=5.0, show_default=True, type=click.FloatRange(min=0.2))
@click.option("--limit-s", default=150.0, show_default=True, help="Of one topology, start-up included.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Where the run folders go.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the commands; start nothing.")
@stage_options
def measure(*, topologies: str, limit_s: float, out: Path, results: Path, dry_run: bool, **given: Any) -> None:
    """Run every topology, one after the other."""
    names = [name.strip() for name in topologies.split(",")]
    commands = {str(parse_topology(name)): run_command(name, given, out) for name in names}
    if dry_run:
        for command in commands.values():
            click.echo(" ".join(command))
        return
    failures = {}
    for name, command in commands.items():
        click.echo(f"{name} …", err=True)
        why = start(command, limit_s)
        if why:
            failures[name] = why
    folders = [out / run_name(name) for name in commands if name not in failures]
    _report(folders, find_preset(given["preset"]), given, failures, results)


@main.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--preset", default="tiny", show_default=True, help="That the runs had.")
@click.option("--measured-on", default="", help="The hardware, where the runs come from another machine.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
@stage_options
def judge(*, folders: tuple[Path, ...], preset: str, results: Path, **given: Any) -> None:
    """Compare run folders with the model."""
    _report(folders, find_preset(preset), given, {}, results)


@main.command("predict")
@click.option("--devices", default=NUM_DEVICES, show_default=True, type=click.IntRange(min=2))
@click.option("--batch-tokens", default=21_000.0, show_default=True)
@click.option("--depth", default=8, show_default=True)
@click.option("--bus-gb-per-s", default=GPU_BUS_BYTES_PER_S / 1e9, show_default=True, help="Of an all-reduce.")
@stage_options
def foretell(*, devices: int, batch_tokens: float, depth: int, bus_gb_per_s: float, **given: Any) -> None:
    """Every split of some GPUs, without running any."""
    missing = [name for name in GIVEN[:2] if given[name] is None]
    if missing:
        raise click.UsageError(f"a prediction needs --{missing[0].replace('_', '-')}")
    stages = _given_stages(given, batch_tokens, bus_gb_per_s * 1e9)
    for name, found in foretold(stages, find_preset(QWEN3_PRESET), devices, depth).items():
        click.echo(f"\n{name}, {devices} devices, queue={depth}")
        click.echo("\n".join(split_lines(found)))


def foretold(
    stages: Stages, preset: Preset, num_devices: int = NUM_DEVICES, depth: int = 8
) -> dict[str, list[Prediction]]:
    """
    Every split for both models, the fastest first.

    Args:
        stages: Of the preset's target on a device of the kind that is asked about.
        preset: That they were measured with.
        num_devices: Of one host.
        depth: Of the queue.
    """
    work = work_of(preset, stages.batch_tokens)
    shapes: tuple[ModelShape, ...] = (QWEN3_8B, DENSE_27B)
    before = shape_of(preset.target)
    return {shape.name: splits(carried(stages, before, shape, work), num_devices, depth=depth) for shape in shapes}


def read_runs(folders: Sequence[Path], preset: Preset) -> tuple[list[MeasuredRun], dict[str, str]]:
    """
    Runs of one cell in several topologies; and folders that are left out, with the reason.

    Capacities are a cell's: what a drafter does with other toggles foretells nothing.
    """
    runs: list[MeasuredRun] = []
    left_out = {}
    for folder in folders:
        try:
            run = read_run(folder, preset)
        except (OSError, ValueError, KeyError) as error:
            left_out[folder.name] = f"cannot be read: {error}"
            continue
        if runs and run.toggles != runs[0].toggles:
            left_out[folder.name] = f"has other toggles than {runs[0].toggles}: {run.toggles}"
        elif run.topology in (other.topology for other in runs):
            left_out[folder.name] = f"is a second run of {run.topology}"
        else:
            runs.append(run)
    return runs, left_out


def compared(runs: Sequence[MeasuredRun], stages: Stages) -> list[tuple[MeasuredRun, Prediction]]:
    """Each run beside what the model says."""
    pairs = []
    for run in runs:
        topology = parse_topology(run.topology)
        prediction = predict(
            stages,
            num_targets=topology.num_targets,
            num_drafters=topology.num_drafters,
            depth=run.depth,
            num_devices=run.num_devices,
        )
        pairs.append((run, prediction))
    return pairs


def to_measures(pairs: Sequence[tuple[MeasuredRun, Prediction]]) -> list[Measure]:
    """One a topology: how far the prediction is off."""
    return [
        Measure(
            name=f"scaling_{run.topology}_prediction",
            value=prediction.tok_per_s / run.tok_per_s - 1,
            unit="relative",
            goal=Goal(low=-WITHIN, high=WITHIN),
            note=f"measured {run.tok_per_s:,.0f} (95 %: {run.low:,.0f} to {run.high:,.0f}) tok/s, predicted "
            f"{prediction.tok_per_s:,.0f}; {prediction.limit} limit",
        )
        for run, prediction in pairs
    ]


def split_measures(found: Mapping[str, Sequence[Prediction]]) -> list[Measure]:
    """What `5+3` gives, and which split is best; foretold, not measured."""
    measures = []
    for name, predictions in found.items():
        slug = name.lower().replace(" ", "_")
        usual = next(one for one in predictions if one.topology == "5+3")
        best = predictions[0]
        measures += [
            Measure(name=f"scaling_{slug}_5+3", value=usual.tok_per_s, unit="tok/s", note=f"{usual.limit} limit"),
            Measure(name=f"scaling_{slug}_best", value=best.tok_per_s, unit="tok/s", note=f"{best.topology}, foretold"),
        ]
    return measures


def split_lines(predictions: Sequence[Prediction]) -> list[str]:
    """A table of splits."""
    return [
        f"  {one.topology:6}{one.tok_per_s:12,.0f} tok/s   {one.limit} limit"
        f" (targets {one.bounds['targets']:,.0f}, drafters {one.bounds['drafters']:,.0f})"
        for one in predictions
    ]


def _report(
    folders: Sequence[Path], preset: Preset, given: Mapping[str, Any], failures: Mapping[str, str], results: Path
) -> None:
    runs, unread = read_runs(folders, preset)
    unread |= failures
    for name, why in unread.items():
        click.echo(f"{name}: {why}", err=True)
    if not runs:
        raise click.ClickException("no topology was measured")
    stages = _stages(runs, given)
    pairs = compared(runs, stages)
    measures = to_measures(pairs)
    data: dict[str, Any] = {
        "preset": preset.name,
        "stages": _finite(asdict(stages)),
        "runs": [_finite({**asdict(run), "stages": _finite(asdict(run.stages))}) for run in runs],
        "predictions": [_finite({**asdict(one), "bounds": _finite(one.bounds)}) for _, one in pairs],
        "failures": unread,
    }
    if preset.name == QWEN3_PRESET:
        found = foretold(stages, with_anchors(preset, runs[0].num_anchors))
        measures += split_measures(found)
        data["splits_of_8"] = {
            name: [_finite({**asdict(one), "bounds": _finite(one.bounds)}) for one in predictions]
            for name, predictions in found.items()
        }
    for measured in measures:
        click.echo(f"{measured}   {measured.note}")
    path = write_results("scaling", measures, data, folder=results, measured_on=given.get("measured_on", ""))
    click.echo(f"written to {path}")


def _stages(runs: Sequence[MeasuredRun], given: Mapping[str, Any]) -> Stages:
    """Those of `1+1`, with what was measured alone in their place."""
    alone = next((run for run in runs if run.topology == ALONE), runs[0])
    known = {name: given[name] for name in GIVEN if given[name] is not None}
    if alone.topology != ALONE and not {"target_tok_per_s", "drafter_tok_per_s"} <= known.keys():
        raise click.UsageError(
            f"no run of {ALONE}: give --target-tok-per-s and --drafter-tok-per-s, measured alone; "
            f"in {alone.topology} each slows the other"
        )
    return replace(alone.stages, **known)


def _given_stages(given: Mapping[str, Any], batch_tokens: float, bus_bytes_per_s: float) -> Stages:
    preset = find_preset(QWEN3_PRESET)
    work: Work = work_of(preset, batch_tokens)
    gradient_bytes = 4.0 * drafter_weights(QWEN3_8B, work)
    return Stages(
        target_tok_per_s=given["target_tok_per_s"],
        drafter_tok_per_s=given["drafter_tok_per_s"],
        target_cv=given["target_cv"] or 0.0,
        drafter_cv=given["drafter_cv"] or 0.0,
        batch_tokens=batch_tokens,
        link_tok_per_s=LINK_BYTES_PER_S / (2 * work.num_taps * QWEN3_8B.hidden_size),
        gradient_bytes=gradient_bytes,
        bus_bytes_per_s=bus_bytes_per_s,
        step_overhead_s=AGREE_S + 4 * gradient_bytes / GPU_COPY_BYTES_PER_S,
    )


def _finite(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: a stage without a bound is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in numbers.items()
    }


if __name__ == "__main__":
    main()
