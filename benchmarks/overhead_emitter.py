"""
What the emitter costs a drafter step; `benchmarks.overhead` runs it.

Real drafter steps in this process, with and without it in random order within each pair. Steps of one size differ by
5 %, so 0.1 % of a step of 145 ms would take 10,000 pairs of them: short steps are compared instead, the difference is
an absolute time, and that time is set against the real step. Beside it, the emitter's calls timed alone.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from scipy import stats

from benchmarks.results_file import Goal, Measure
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


@dataclass(frozen=True)
class Interleaved:
    """Time that the emitter adds to a step, with its 95 % interval."""

    cost_us: float
    low_us: float
    high_us: float
    num_pairs: int


@dataclass(frozen=True)
class Bench:
    """A drafter that trains in this process."""

    trainer: DrafterStep
    emitter: Emitter
    device: torch.device

    def run_step(self, shape: Rehearsal) -> float:
        """Wall seconds of one step, the device's work and everything that the trainer's loop records included."""
        num_features = len(TINY.drafter.layer_types) * TINY.target.hidden_size
        item = synthetic_row(shape, num_features, self.device, torch.float32)
        given = StepInput(step=0, generator=torch.Generator().manual_seed(0), toggles=TOGGLES, order=Order())
        start_s = time.perf_counter()
        self.trainer.run([item], given)
        _record_loop(self.emitter, 0)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - start_s


def measure_emitter(folder: Path, num_pairs: int) -> list[Measure]:
    """
    Both ways to ask what it costs a step.

    Args:
        folder: For what it records.
        num_pairs: Of short steps.
    """
    device = first_device()
    emitter = interleave_emitter(folder, num_pairs, device)
    alone_us = time_calls_of_a_step(folder / "alone")
    step_us = time_real_step(device)
    return [
        _share("emitter_accounted", alone_us, step_us, f"{alone_us:.1f} µs of emitter calls a step, timed alone"),
        _share(
            "emitter_interleaved",
            emitter.cost_us,
            step_us,
            f"{emitter.cost_us:.0f} µs a step (95 %: {emitter.low_us:.0f} to {emitter.high_us:.0f}) "
            f"over {emitter.num_pairs} pairs of short steps",
        ),
    ]


def first_device() -> torch.device:
    """The first GPU, or the processor where there is none."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def interleave_emitter(folder: Path, num_pairs: int, device: torch.device) -> Interleaved:
    """What the emitter adds to a short drafter step, all that the trainer calls of it included."""
    recording = connect("drafter", trains=True, run_dir=folder)
    benches = make_benches(SHORT, {"on": recording, "off": Emitter(None, None)}, device)
    rng = random.Random(0)
    extra_us = []
    for _ in range(num_pairs):
        taken = {arm: benches[arm].run_step(SHORT_ROW) for arm in rng.sample(list(benches), 2)}
        extra_us.append((taken["on"] - taken["off"]) * 1e6)
    recording.close()
    # The first pairs fill caches; a step that was preempted says nothing about either arm.
    kept = stats.trimboth(extra_us[num_pairs // 20 :], 0.02)
    half = float(stats.t.ppf(0.975, len(kept) - 1) * stats.sem(kept))
    mean = float(np.mean(kept))
    return Interleaved(cost_us=mean, low_us=mean - half, high_us=mean + half, num_pairs=len(kept))


def time_real_step(device: torch.device) -> float:
    """Microseconds of a full step of the tiny preset, without emitter and without a neighbour."""
    bench = make_silent_bench(device)
    times_s = [bench.run_step(REAL_ROW) for _ in range(REAL_STEPS)]
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


def make_silent_bench(device: torch.device) -> Bench:
    """The tiny preset's drafter without an emitter."""
    return make_benches(TINY, {"off": Emitter(None, None)}, device)["off"]


def make_benches(preset: Preset, emitters: dict[str, Emitter], device: torch.device) -> dict[str, Bench]:
    """One model and optimizer, once for each emitter."""
    config, embedding_VD, head_VD = load_tables(preset, Path())
    num_taps = len(target_layer_ids(preset, config))
    shape = drafter_shape(config, num_layers=len(preset.drafter.layer_types), num_taps=num_taps)
    drafter = Drafter(shape).to(device)
    frozen = FrozenTables(
        embedding_VD=embedding_VD.detach().to(device, torch.float32),
        head_VD=head_VD.detach().to(device, torch.float32),
        mask_token_id=2,
    )
    optimizer = make_optimizer(drafter, preset.recipe)
    learner = Learner(drafter=drafter, optimizer=optimizer, preset=preset, num_steps=0)
    peers = Peers(rank=0, num_drafters=1, rendezvous=Path(), host=HostPlace(), device=device)
    return {
        arm: Bench(DrafterStep(learner, frozen, peers, emitter), emitter, device) for arm, emitter in emitters.items()
    }


def _share(name: str, cost_us: float, step_us: float, note: str) -> Measure:
    return Measure(
        name=name,
        value=100 * cost_us / step_us,
        unit="% tok/s",
        goal=Goal(high=EMITTER_GOAL_PCT),
        note=f"{note}, in a drafter step of {step_us / 1e3:.0f} ms",
    )


def _record_loop(emitter: Emitter, step: int) -> None:
    """What the drafter's loop records of a step besides what `DrafterStep` does."""
    for phase in LOOP_PHASES:
        with emitter.span(phase):
            pass
    for name in GAUGES:
        emitter.gauge(name, step, 1.5)
    emitter.end_step(step, num_tokens=2048, num_supervised_tokens=1500, num_padding_tokens=100)
