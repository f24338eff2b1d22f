"""
Do toggles change what is learnt? `python -m benchmarks.parity`, about ten minutes on two cores; on an H200 with
`--device cuda --lanes 5` three.

Every toggle is flipped in the cell `none` and in the cell of everything that does not change the model: the same seed,
the same data, 50 steps of a real run, and the largest relative difference of a step's loss between the neighbours. The
goal of each toggle is the tolerance that it declares; `swa` declares that it trains another model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import platformdirs

from benchmarks.parity_lanes import run_lanes, share
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


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a study saw."""

    pairs: list[Pair]
    skipped: dict[str, str]
    """Toggle → why this machine does not apply it."""
    repeated: dict[str, float]
    """Base → the largest relative difference of a loss between its first run and its second, by which others go."""


@click.command()
@click.option("--preset", default="tiny", show_default=True)
@click.option("--topology", default="1+1", show_default=True)
@click.option("--steps", default=NUM_STEPS, show_default=True, type=click.IntRange(min=2))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--only", default="", metavar="TOGGLES", help="These, comma-separated; default: all.")
@click.option("--lanes", default=1, show_default=True, type=click.IntRange(min=1), help="Processes at once.")
@click.option("--cache", type=click.Path(path_type=Path), help="Where the preset's data are kept.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, only: str, lanes: int, results: Path, **given: Any) -> None:
    """Measure, print, and write the results file."""
    names = [toggle.name for toggle in REGISTRY]
    asked = [name.strip() for name in only.split(",")] if only else names
    if unknown := sorted(set(asked) - set(names)):
        raise click.UsageError(f"no such toggle: {unknown[0]}; toggles are {', '.join(names)}")
    found = measure_here(asked, given) if lanes == 1 else measure_in_lanes(asked, lanes, given)
    for pair in found.pairs:
        click.echo(line(pair))
    for name, reason in found.skipped.items():
        click.echo(f"{name}: not applied here: {reason}")
    for base, difference in found.repeated.items():
        click.echo(f"{base} a second time: {difference:.1e}")
    data = {
        "preset": given["preset"],
        "topology": given["topology"],
        "num_steps": given["steps"],
        "skipped": found.skipped,
        "repeated": found.repeated,
        "pairs": [vars(pair) | {"toggle": pair.toggle.name} for pair in found.pairs],
    }
    path = write_results("parity", [to_measure(pair) for pair in found.pairs], data, folder=results)
    click.echo(f"written to {path}")


def measure_in_lanes(names: Sequence[str], num_lanes: int, given: Mapping[str, Any]) -> Found:
    """As `measure_here`, in processes of their own; each runs the cells that all compare with once more."""
    options = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    with TemporaryDirectory() as folder:
        studies = [study["data"] for study in run_lanes(options, share(names, num_lanes), Path(folder))]
    toggles = {toggle.name: toggle for toggle in REGISTRY}
    pairs = [Pair(**one | {"toggle": toggles[one["toggle"]]}) for study in studies for one in study["pairs"]]
    skipped = {name: reason for study in studies for name, reason in study["skipped"].items()}
    repeated = {base: max(study["repeated"].get(base, 0.0) for study in studies) for base in studies[0]["repeated"]}
    return Found(pairs=pairs, skipped=skipped, repeated=repeated)


def measure_here(names: Collection[str], given: Mapping[str, Any]) -> Found:
    """Run every cell once, and compare neighbours in *names*; also the toggles that this machine cannot honour."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    template = TrainConfig(
        preset=find_preset(given["preset"]),
        topology=parse_topology(given["topology"]),
        toggles={},
        refused={},
        num_steps=given["steps"],
        seed=0,
        device=given["device"],
        num_threads=1,
        cache=given["cache"] or Path(platformdirs.user_cache_dir("flashprof")),
        log_every=given["steps"],
    )
    return measure_pairs(template, names)


def measure_pairs(template: TrainConfig, names: Collection[str]) -> Found:
    """As `measure_here`, from a configuration."""
    everything = parse_toggles("all", REGISTRY)
    refused = not_applied(everything, has_cuda=template.device == "cuda")
    toggles = [toggle for toggle in REGISTRY if toggle.name in names and toggle.name not in refused]
    pairs, repeated = [], {}
    with TemporaryDirectory() as folder, cells(template, Path(folder)) as losses_of:
        for base in BASES:
            values = honoured(parse_toggles(base, REGISTRY), refused)
            first = losses_of(values)
            # What is compiled first differs at times in its last bits from what later runs find in the cache: of 13
            # lanes on an H200 four began with such a run, and by it alone toggles that change nothing seemed to.
            expected = losses_of(values)
            repeated[base] = max(differences(first, expected).values())
            for toggle in toggles:
                pairs.append(compare(toggle, values, expected, losses_of(flip(values, toggle))))
    return Found(pairs=pairs, skipped=refused, repeated=repeated)


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
    relative = differences(expected, losses)
    return Pair(
        toggle=toggle,
        base=format_toggles(values, REGISTRY),
        max_difference=max(relative.values()),
        first_step=next((step for step, difference in sorted(relative.items()) if difference), None),
        mean_loss=sum(expected.values()) / len(expected),
    )


def differences(expected: dict[int, float], losses: dict[int, float]) -> dict[int, float]:
    """Step to the relative difference of its losses."""
    assert expected.keys() == losses.keys(), "neighbours train the same steps"
    return {step: abs(losses[step] - loss) / abs(loss) for step, loss in expected.items()}


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
