"""
What measuring costs the whole pipeline: `python -m benchmarks.overhead`, about ten minutes on two quiet cores.

*A span*: see `benchmarks.emitter`.
*Emitter*: real drafter steps of the tiny preset in this process, blocks with and without it in random order within
each pair; and, since the answer is far below the noise of that, the emitter's own calls in one step timed alone.
*Samplers*: a real `flashprof run` with many short measure and profile windows in turn.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
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
from flashprof.contracts.toggles import ToggleValues, parse_toggles
from flashprof.emit import Emitter, connect
from pipeline.model.drafter import Drafter
from pipeline.model.target import drafter_shape, load_target
from pipeline.presets import TINY
from pipeline.roles.drafter import synthetic_row
from pipeline.roles.worker import Rehearsal
from pipeline.toggles import REGISTRY
from pipeline.train.peers import Peers
from pipeline.train.step import DrafterStep, FrozenTables, make_optimizer

CPU = torch.device("cpu")
EMITTER_ROUNDS = 51
BLOCK_STEPS = 3
ROW = Rehearsal(num_samples=2, padded_length=1024)
EMITTER_GOAL_PCT = 0.1
SAMPLING_GOAL_PCT = 3.0


@dataclass(frozen=True)
class Interleaved:
    """Cost of one arm over the other, in percent of the time of a step, with its 95 % interval."""

    cost_pct: float
    low_pct: float
    high_pct: float
    num_pairs: int


@click.command()
@click.option("--pairs", default=150, show_default=True, type=click.IntRange(min=2), help="Pairs of emitter blocks.")
@click.option("--windows", default=20, show_default=True, type=click.IntRange(min=2), help="Windows of each kind.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def main(*, pairs: int, windows: int, results: Path) -> None:
    """Measure, print, and write the results file."""
    torch.set_num_threads(1)
    load = os.getloadavg()
    rounds = time_rounds(EMITTER_ROUNDS, seed=0)
    with TemporaryDirectory() as folder:
        wall, cpu, step_ms = interleave_emitter(Path(folder), pairs)
        per_step_us = time_calls_of_a_step(Path(folder, "alone"))
        summary = profile_windows(Path(folder, "reports"), windows)
    measures = [
        *to_measures(rounds),
        _accounted(per_step_us, step_ms),
        _interleaved_measure(wall, cpu),
        _sampling(summary["sampling_cost"], windows),
    ]
    for measure in measures:
        click.echo(f"{measure}   {measure.note}")
    rates = [(w["kind"], round(w["tok_per_s"], 1)) for w in summary["windows"] if w["kind"] in ("measure", "profile")]
    data = {"load_average_before": load, "ns_per_span_by_round": rounds, "windows_tok_per_s": rates}
    click.echo(write_results("overhead", measures, data, folder=results))


def _accounted(per_step_us: float, step_ms: float) -> Measure:
    return Measure(
        name="emitter_accounted",
        value=per_step_us / (step_ms * 1e3) * 100,
        unit="% tok/s",
        goal=Goal(high=EMITTER_GOAL_PCT),
        note=f"{per_step_us:.1f} µs of emitter calls a step, timed alone, over a step of {step_ms:.0f} ms",
    )


def _interleaved_measure(wall: Interleaved, cpu: Interleaved) -> Measure:
    note = f"{_interval_note(cpu)} of CPU time; {wall.cost_pct:.2f} % of wall time, {_interval_note(wall)}"
    return Measure(
        name="emitter_interleaved", value=cpu.cost_pct, unit="% CPU", goal=Goal(high=EMITTER_GOAL_PCT), note=note
    )


def _sampling(cost: dict[str, float], num_windows: int) -> Measure:
    return Measure(
        name="sampling",
        value=100 * cost["estimate"],
        unit="% tok/s",
        goal=Goal(high=SAMPLING_GOAL_PCT),
        note=f"95 %: {100 * cost['low']:.1f} to {100 * cost['high']:.1f}; {num_windows} windows of each kind",
    )


def interleave_emitter(folder: Path, num_pairs: int) -> tuple[Interleaved, Interleaved, float]:
    """Wall and CPU cost of the emitter on real drafter steps, and the step's length in ms."""
    recording = connect("drafter", trains=True, run_dir=folder)
    arms = _two_arms(recording, Emitter(None, None))
    toggles = parse_toggles("swa", REGISTRY)
    rng = random.Random(0)
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    steps_ms: list[float] = []
    _run_block(arms, "off", toggles)
    for _ in range(num_pairs):
        order = rng.sample(["on", "off"], 2)
        taken = {arm: _run_block(arms, arm, toggles) for arm in order}
        for index, clock in enumerate(("wall", "cpu")):
            ratios[clock].append(float(np.log(taken["on"][index] / taken["off"][index])))
        steps_ms.append(taken["off"][0] / BLOCK_STEPS * 1e3)
    recording.close()
    return _interleaved(ratios["wall"]), _interleaved(ratios["cpu"]), median(steps_ms)


def time_calls_of_a_step(folder: Path, num_steps: int = 2_000) -> float:
    """Microseconds that all emitter calls of one drafter step take, flush included."""
    emitter = connect("drafter", trains=True, run_dir=folder)
    phases = (
        "wait_hidden",
        "receive",
        "control",
        "anchors",
        "mask",
        "forward",
        "loss",
        "backward",
        "clip",
        "optimizer",
    )
    times_us = []
    for step in range(num_steps):
        start_s = time.perf_counter()
        for phase in (*phases, "metrics", "log"):
            with emitter.span(phase):
                pass
        for name in ("queue", "loss", "acc", "grad_norm"):
            emitter.gauge(name, step, 1.5)
        emitter.end_step(step, num_tokens=2048, num_supervised_tokens=1500, num_padding_tokens=100)
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


def _two_arms(recording: Emitter, silent: Emitter) -> dict[str, tuple[DrafterStep, Emitter]]:
    """The same model and optimizer twice, with and without an emitter that records."""
    target: Any = load_target(TINY, Path())
    shape = drafter_shape(target.config, num_layers=len(TINY.drafter.layer_types))
    drafter = Drafter(shape)
    frozen = FrozenTables(
        embedding_VD=target.get_input_embeddings().weight.detach(),
        head_VD=target.get_output_embeddings().weight.detach(),
        mask_token_id=2,
    )
    optimizer = make_optimizer(drafter, TINY, 1_000)
    peers = Peers(rank=0, num_drafters=1, rendezvous=Path(), device=CPU)

    def arm(emitter: Emitter) -> tuple[DrafterStep, Emitter]:
        step = DrafterStep(
            drafter=drafter, frozen=frozen, preset=TINY, peers=peers, emitter=emitter, optimizer=optimizer
        )
        return step, emitter

    return {"on": arm(recording), "off": arm(silent)}


def _run_block(arms: dict[str, tuple[DrafterStep, Emitter]], arm: str, toggles: ToggleValues) -> tuple[float, float]:
    """Wall and CPU seconds of one block of steps."""
    trainer, emitter = arms[arm]
    item = synthetic_row(ROW, len(TINY.drafter.layer_types) * TINY.target.hidden_size, CPU)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for step in range(BLOCK_STEPS):
        trainer.run(item, toggles, torch.Generator().manual_seed(step))
        for name in ("queue", "loss", "acc", "grad_norm"):
            emitter.gauge(name, step, 1.5)
        emitter.end_step(step, num_tokens=2048, num_supervised_tokens=1500, num_padding_tokens=100)
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


def _interleaved(log_ratios: list[float]) -> Interleaved:
    mean = float(np.mean(log_ratios))
    half = float(stats.t.ppf(0.975, len(log_ratios) - 1) * stats.sem(log_ratios))
    cost, low, high = (100 * float(np.expm1(value)) for value in (mean, mean - half, mean + half))
    return Interleaved(cost_pct=cost, low_pct=low, high_pct=high, num_pairs=len(log_ratios))


def _interval_note(result: Interleaved) -> str:
    return f"95 %: {result.low_pct:.2f} to {result.high_pct:.2f} over {result.num_pairs} pairs"


if __name__ == "__main__":
    main()
