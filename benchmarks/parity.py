"""
Do toggles change what is learnt? `python -m benchmarks.parity`, about ten minutes on two cores, four on an H200.

Every toggle is flipped in the cell `none` and in the cell of everything that does not change the model: the same seed,
the same data, 50 steps of a real run, and the largest relative difference of a step's loss between the neighbours. The
goal of each toggle is the tolerance that it declares; `swa` declares that it trains another model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import platformdirs

from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from flashprof.contracts.events import decode
from flashprof.contracts.toggles import Toggle, ToggleValues, format_toggles, parse_toggles
from flashprof.emit import RUN_DIR_VARIABLE
from flashprof.stats.sanity import check_numbers
from pipeline.config import TrainConfig
from pipeline.forkserver import fork_server
from pipeline.presets import find_preset
from pipeline.signals import StopSignals
from pipeline.supervise import train
from pipeline.toggles import REGISTRY, honoured, not_applied
from pipeline.topology import parse_topology

NUM_STEPS = 50
BASES = ("none", "all,-swa")


@dataclass(frozen=True)
class Pair:
    """Two cells that differ in one toggle."""

    toggle: Toggle
    base: str
    max_difference: float
    """Relative, of a step's loss."""
    first_step: int | None
    """The first step whose losses differ; None: equal bit for bit."""
    mean_loss: float


@click.command()
@click.option("--preset", default="tiny", show_default=True)
@click.option("--topology", default="1+1", show_default=True)
@click.option("--steps", default=NUM_STEPS, show_default=True, type=click.IntRange(min=2))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--cache", type=click.Path(path_type=Path), help="Where the preset's data are kept.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, preset: str, topology: str, steps: int, device: str, cache: Path | None, results: Path) -> None:
    """Measure, print, and write the results file."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    template = TrainConfig(
        preset=find_preset(preset),
        topology=parse_topology(topology),
        toggles={},
        refused={},
        num_steps=steps,
        seed=0,
        device=device,
        num_threads=1,
        cache=cache or Path(platformdirs.user_cache_dir("flashprof")),
        log_every=steps,
    )
    pairs, skipped = measure_pairs(template)
    for pair in pairs:
        click.echo(line(pair))
    for name, reason in skipped.items():
        click.echo(f"{name}: not applied here: {reason}")
    data = {
        "preset": preset,
        "topology": topology,
        "num_steps": steps,
        "skipped": skipped,
        "pairs": [vars(pair) | {"toggle": pair.toggle.name} for pair in pairs],
    }
    path = write_results("parity", [to_measure(pair) for pair in pairs], data, folder=results)
    click.echo(f"written to {path}")


def measure_pairs(template: TrainConfig) -> tuple[list[Pair], dict[str, str]]:
    """Run every cell once, and compare neighbours; also the toggles that this machine cannot honour."""
    everything = parse_toggles("all", REGISTRY)
    refused = not_applied(everything, has_cuda=template.device == "cuda")
    toggles = [toggle for toggle in REGISTRY if toggle.name not in refused]
    pairs = []
    with TemporaryDirectory() as folder, cells(template, Path(folder)) as losses_of:
        for base in BASES:
            values = honoured(parse_toggles(base, REGISTRY), refused)
            expected = losses_of(values)
            for toggle in toggles:
                pairs.append(compare(toggle, values, expected, losses_of(flip(values, toggle))))
    return pairs, refused


@contextmanager
def cells(template: TrainConfig, folder: Path) -> Iterator[Callable[[ToggleValues], dict[int, float]]]:
    """Gives a function that trains one cell and returns its losses, step by step; workers come from one fork server."""
    current = folder / "current"
    os.environ[RUN_DIR_VARIABLE] = str(current)
    with fork_server() as context:

        def losses_of(values: ToggleValues) -> dict[int, float]:
            (current / "control").mkdir(parents=True)
            train(replace(template, toggles=values), context, StopSignals())
            losses = read_losses(current)
            current.rename(folder / f"done-{sum(1 for _ in folder.iterdir())}")
            return losses

        yield losses_of


def read_losses(run_folder: Path) -> dict[int, float]:
    """
    Step to loss of drafter 0.

    Raises:
        click.ClickException: The sanity guard fails the cell.
    """
    logs = {
        path.stem: decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))
        for path in sorted(run_folder.glob("events/*.jsonl"))
    }
    wrong = check_numbers(list(logs.values()))
    if wrong:
        raise click.ClickException(wrong)
    return {gauge.step: gauge.value for gauge in logs["drafter-0"].gauges if gauge.name == "loss"}


def flip(values: ToggleValues, toggle: Toggle) -> ToggleValues:
    """The neighbour in *toggle*: on where it is off, and the other way round."""
    other = toggle.on if values[toggle.name] == toggle.default else toggle.default
    return values | {toggle.name: other}


def compare(toggle: Toggle, values: ToggleValues, expected: dict[int, float], losses: dict[int, float]) -> Pair:
    """The largest difference over the steps that both have, which must be all."""
    assert expected.keys() == losses.keys(), "neighbours train the same steps"
    differences = {step: abs(losses[step] - loss) / abs(loss) for step, loss in expected.items()}
    return Pair(
        toggle=toggle,
        base=format_toggles(values, REGISTRY),
        max_difference=max(differences.values()),
        first_step=next((step for step, difference in sorted(differences.items()) if difference), None),
        mean_loss=sum(expected.values()) / len(expected),
    )


def to_measure(pair: Pair) -> Measure:
    """With the declared tolerance as its goal; a toggle that trains another model must not give the same losses."""
    toggle = pair.toggle
    goal = Goal(low=1e-6) if toggle.changes_numbers else Goal(high=toggle.loss_tolerance)
    cell = "none" if pair.base == "none" else "all"
    first = "equal bit for bit" if pair.first_step is None else f"first differs in step {pair.first_step}"
    return Measure(name=f"{toggle.name}_in_{cell}", value=pair.max_difference, unit="relative", goal=goal, note=first)


def line(pair: Pair) -> str:
    """For the terminal."""
    return f"{to_measure(pair)}  {json.dumps(to_measure(pair).note)}"


if __name__ == "__main__":
    main()
