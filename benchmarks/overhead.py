"""
What measuring costs the whole pipeline: `python -m benchmarks.overhead`, about ten minutes on two quiet cores.

*A span*: see `benchmarks.emitter`.
*Emitter*: real drafter steps in this process, with and without it in random order within each pair. Steps of one size
differ by 5 % here, so 0.1 % of a step of 145 ms would take 10,000 pairs of them: short steps are compared instead, the
difference is an absolute time, and that time is set against the real step. Beside it, the emitter's calls timed alone.
*Samplers*: a real `flashprof run` with many short measure and profile windows in turn.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import torch
from scipy import stats

from benchmarks.emitter import time_rounds, to_measures
from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from flashprof.contracts.toggles import ToggleValues
from flashprof.emit import Emitter, connect
from pipeline.config import HostPlace
from pipeline.model.drafter import Drafter
from pipeline.model.tables import FrozenTables
from pipeline.model.target import drafter_shape, load_tables, target_layer_ids
from pipeline.presets import TINY, Preset
from pipeline.roles.drafter import synthetic_row
from pipeline.roles.worker import Rehearsal
from pipeline.toggles import REGISTRY
from pipeline.train.optimizer import make_optimizer
from pipeline.train.peers import Peers
from pipeline.train.step import DrafterStep, Learner, StepInput
from pipeline.transport.messages import Order
from pipeline.ways import Ways

CPU = torch.device("cpu")
EMITTER_ROUNDS = 51
REAL_ROW = Rehearsal(num_samples=2, padded_length=1024)
SHORT_ROW = Rehearsal(num_samples=1, padded_length=128)
SHORT = replace(TINY, drafter=replace(TINY.drafter, num_anchors=8))
REAL_STEPS = 40
TOGGLES: ToggleValues = {toggle.name: toggle.default for toggle in REGISTRY}
OWN_PHASES = ("anchors", "mask", "forward", "loss", "backward", "clip", "optimizer", "metrics")
"""What `DrafterStep` records of a step."""
LOOP_PHASES = ("wait_hidden", "receive", "make_room", "unpack", "control", "metrics", "receive", "log")
"""What the drafter's loop records around it."""
GAUGES = ("queue", "loss", "acc", "grad_norm", "hidden_mismatch", "metrics_stamp", "lr", "padding_share")
NUM_WAYS = 6
"""Phases whose way each step says."""
EMITTER_GOAL_PCT = 0.1
SAMPLING_GOAL_PCT = 3.0


@dataclass(frozen=True)
class Interleaved:
    """Time that the emitter adds to a step, with its 95 % interval."""

    cost_us: float
    low_us: float
    high_us: float
    num_pairs: int


@click.command()
@click.option("--pairs", default=6_000, show_default=True, type=click.IntRange(min=2), help="Pairs of short steps.")
@click.option("--windows", default=40, show_default=True, type=click.IntRange(min=2), help="Windows of each kind.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, pairs: int, windows: int, results: Path) -> None:
    """Measure, print, and write the results file."""
    torch.set_num_threads(1)
    load = os.getloadavg()
    rounds = time_rounds(EMITTER_ROUNDS, seed=0)
    with TemporaryDirectory() as folder:
        emitter = interleave_emitter(Path(folder), pairs)
        alone_us = time_calls_of_a_step(Path(folder, "alone"))
        step_us = time_real_step()
        summary = profile_windows(Path(folder, "reports"), windows)
    measures = [
        *to_measures(rounds),
        _share("emitter_accounted", alone_us, step_us, f"{alone_us:.1f} µs of emitter calls a step, timed alone"),
        _share(
            "emitter_interleaved",
            emitter.cost_us,
            step_us,
            f"{emitter.cost_us:.0f} µs a step (95 %: {emitter.low_us:.0f} to {emitter.high_us:.0f}) "
            f"over {emitter.num_pairs} pairs of short steps",
        ),
        _sampling(summary["sampling_cost"], windows),
    ]
    for measure in measures:
        click.echo(f"{measure}   {measure.note}")
    rates = [(w["kind"], round(w["tok_per_s"], 1)) for w in summary["windows"] if w["kind"] in ("measure", "profile")]
    data = {"load_average_before": load, "ns_per_span_by_round": rounds, "windows_tok_per_s": rates}
    click.echo(write_results("overhead", measures, data, folder=results))


def _share(name: str, cost_us: float, step_us: float, note: str) -> Measure:
    return Measure(
        name=name,
        value=100 * cost_us / step_us,
        unit="% tok/s",
        goal=Goal(high=EMITTER_GOAL_PCT),
        note=f"{note}, in a drafter step of {step_us / 1e3:.0f} ms",
    )


def _sampling(cost: dict[str, float], num_windows: int) -> Measure:
    return Measure(
        name="sampling",
        value=100 * cost["estimate"],
        unit="% tok/s",
        goal=Goal(high=SAMPLING_GOAL_PCT),
        note=f"95 %: {100 * cost['low']:.1f} to {100 * cost['high']:.1f}; {num_windows} windows of each kind",
    )


def interleave_emitter(folder: Path, num_pairs: int) -> Interleaved:
    """What the emitter adds to a short drafter step, all that the trainer calls of it included."""
    recording = connect("drafter", trains=True, run_dir=folder)
    arms = {"on": recording, "off": Emitter(None, None)}
    trainers = make_trainers(SHORT, arms)
    rng = random.Random(0)
    extra_us = []
    for _ in range(num_pairs):
        order = rng.sample(list(arms), 2)
        taken = {arm: _run_step(trainers[arm], arms[arm], SHORT_ROW) for arm in order}
        extra_us.append((taken["on"] - taken["off"]) * 1e6)
    recording.close()
    # The first pairs fill caches; a step that was preempted says nothing about either arm.
    kept = stats.trimboth(extra_us[num_pairs // 20 :], 0.02)
    half = float(stats.t.ppf(0.975, len(kept) - 1) * stats.sem(kept))
    mean = float(np.mean(kept))
    return Interleaved(cost_us=mean, low_us=mean - half, high_us=mean + half, num_pairs=len(kept))


def time_real_step() -> float:
    """Microseconds of a full step of the tiny preset, without emitter and without a neighbour."""
    silent = Emitter(None, None)
    trainer = make_trainers(TINY, {"off": silent})["off"]
    times_s = [_run_step(trainer, silent, REAL_ROW) for _ in range(REAL_STEPS)]
    return median(times_s[REAL_STEPS // 4 :]) * 1e6


def time_calls_of_a_step(folder: Path, num_steps: int = 2_000) -> float:
    """Microseconds that all emitter calls of one drafter step take, flush included."""
    emitter = connect("drafter", trains=True, run_dir=folder)
    ways = Ways(emitter)
    times_us = []
    for step in range(num_steps):
        start_s = time.perf_counter()
        for phase in OWN_PHASES:
            with emitter.span(phase):
                pass
        for phase in OWN_PHASES[:NUM_WAYS]:
            ways.note(phase, "plain")
        _record_loop(emitter, step)
        times_us.append((time.perf_counter() - start_s) * 1e6)
    emitter.close()
    return median(times_us)


def profile_windows(reports: Path, num_windows: int) -> dict[str, Any]:
    """The summary of a real run with that many windows of each kind."""
    settings = {"num_measure": num_windows, "num_profile": num_windows, "measure_s": 3, "profile_s": 3}
    flags = [flag for name, value in settings.items() for flag in ("--set", f"windows.{name}={value}")]
    command = [sys.executable, "-m", "flashprof.cli", "run", "--toggles", "compile,swa", "--json"]
    done = subprocess.run(
        [*command, "--reports", str(reports), *flags],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def make_trainers(preset: Preset, emitters: dict[str, Emitter]) -> dict[str, DrafterStep]:
    """One model and optimizer, once for each emitter."""
    config, embedding_VD, head_VD = load_tables(preset, Path())
    num_taps = len(target_layer_ids(preset, config))
    drafter = Drafter(drafter_shape(config, num_layers=len(preset.drafter.layer_types), num_taps=num_taps))
    frozen = FrozenTables(embedding_VD=embedding_VD.detach(), head_VD=head_VD.detach(), mask_token_id=2)
    optimizer = make_optimizer(drafter, preset.recipe)
    learner = Learner(drafter=drafter, optimizer=optimizer, preset=preset, num_steps=0)
    peers = Peers(rank=0, num_drafters=1, rendezvous=Path(), host=HostPlace(), device=CPU)
    return {arm: DrafterStep(learner, frozen, peers, emitter) for arm, emitter in emitters.items()}


def _run_step(trainer: DrafterStep, emitter: Emitter, shape: Rehearsal) -> float:
    """Wall seconds of one step with everything that the trainer's loop records in it."""
    item = synthetic_row(shape, len(TINY.drafter.layer_types) * TINY.target.hidden_size, CPU)
    given = StepInput(step=0, generator=torch.Generator().manual_seed(0), toggles=TOGGLES, order=Order())
    start_s = time.perf_counter()
    trainer.run([item], given)
    _record_loop(emitter, 0)
    return time.perf_counter() - start_s


def _record_loop(emitter: Emitter, step: int) -> None:
    """What the drafter's loop records of a step besides what `DrafterStep` does."""
    for phase in LOOP_PHASES:
        with emitter.span(phase):
            pass
    for name in GAUGES:
        emitter.gauge(name, step, 1.5)
    emitter.end_step(step, num_tokens=2048, num_supervised_tokens=1500, num_padding_tokens=100)


if __name__ == "__main__":
    main()
