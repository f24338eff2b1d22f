"""One system, measured in a process of its own: `python -m benchmarks.peers.worker SYSTEM --to FILE …`."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import torch
from torch import Tensor

from benchmarks.peers.clock import Clock, num_graphs
from benchmarks.peers.qwen import random_target
from benchmarks.peers.record import Record
from benchmarks.peers.system import DrafterSystem
from benchmarks.peers.target import PLAIN_WAYS, OurTarget, PlainTarget, TargetSystem
from benchmarks.peers.work import (
    FULL,
    TINY,
    Batch,
    Work,
    check_batch,
    filled_batches,
    fixed_batch,
    hidden_states,
    varying_batches,
)
from pipeline.data.buckets import BatchShape

DRAFTERS = MappingProxyType(
    {
        "flashprof": ("benchmarks.peers.ours", "OurDrafter"),
        "speculators": ("benchmarks.peers.speculators_peer", "SpeculatorsDrafter"),
        "specforge": ("benchmarks.peers.specforge_peer", "SpecForgeDrafter"),
    }
)
"""Where each is; imported only by its own process, since only there its packages must be."""
TARGETS = "transformers"
"""The system without a drafter: a plain target."""
NUM_INPUTS = 3
"""Batches in turn, so that no run finds its input in the cache: 250 MB of hidden states each."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every part needs."""

    work: Work
    device: torch.device
    clock: Clock
    record: Record


@click.command()
@click.argument("system", type=click.Choice([*DRAFTERS, TARGETS]))
@click.option("--to", "path", required=True, type=click.Path(path_type=Path))
@click.option("--device", default="cuda", type=click.Choice(["cuda", "cpu"]))
@click.option("--tiny", is_flag=True)
def main(*, system: str, path: Path, device: str, tiny: bool) -> None:
    """Measure SYSTEM and write its parts to FILE as they come."""
    place = torch.device(device, 0) if device == "cuda" else torch.device(device)
    bench = Bench(work=TINY if tiny else FULL, device=place, clock=Clock(place), record=Record(path))
    if device == "cpu":
        torch.set_num_threads(1)
    # The peers draw their anchors from the global generator.
    torch.manual_seed(0)
    if system == TARGETS:
        measure_targets(bench)
    else:
        measure_drafter(bench, system)


def measure_drafter(bench: Bench, name: str) -> None:
    """The step alone, at fixed and at varying lengths, and together with a target on the same card."""
    made: dict[str, DrafterSystem] = {}

    def setup() -> Mapping[str, Any]:
        module, attribute = DRAFTERS[name]
        system: DrafterSystem = getattr(importlib.import_module(module), attribute)(bench.work, bench.device)
        made[name] = system
        return {"num_trained": system.num_trained, "differences": list(system.differences)}

    if not bench.record.part("setup", setup):
        return
    system = made[name]
    measure = bench.record.part
    if not measure("warmup", partial(_warm_up, bench, system)):
        return
    measure("fixed", partial(_fixed, bench, system))
    for extra, work in system.extra().items():
        measure(extra, partial(_extra, bench, work))
    measure("varying", partial(_varying, bench, system))
    _free(bench)
    is_ours = name == "flashprof"
    # Made by the first part that needs it, so that running out of memory is that part's result.
    make_target = cache(partial(_make_target, bench, is_ours=is_ours))
    if is_ours:
        measure("target", lambda: _target(bench, make_target(), varies=True))
    measure("both", lambda: _both(bench, system, make_target()))


def measure_targets(bench: Bench) -> None:
    """A plain target, in each way."""
    model = random_target(bench.work, bench.device)
    for way in PLAIN_WAYS:
        target = PlainTarget(bench.work, model, bench.device, way)
        bench.record.part(f"target_{way}", partial(_target, bench, target, varies=way == "logits"))


def _warm_up(bench: Bench, system: DrafterSystem) -> Mapping[str, Any]:
    """From cold compiler caches: the system's own warm-up, the loss at the common weights, then some steps more."""
    work = bench.work
    (check,) = _prepared(bench, system, [check_batch(work, seed=1)])
    steps = _prepared(bench, system, [fixed_batch(work, seed=2)])
    losses: list[float] = []

    def others() -> None:
        for _ in range(work.num_warmup):
            system.step(steps[0])

    rehearse_s = bench.clock.wall_s(system.rehearse)
    first_s = bench.clock.wall_s(lambda: losses.append(float(system.step(check))))
    others_s = bench.clock.wall_s(others)
    return {
        "loss": losses[0] * system.loss_scale,
        "rehearse_s": rehearse_s,
        "first_step_s": first_s,
        "other_steps_s": others_s,
        "warmup_s": rehearse_s + first_s + others_s,
        "num_compiled": num_graphs(),
    }


def _fixed(bench: Bench, system: DrafterSystem) -> Mapping[str, Any]:
    work = bench.work
    batches = [fixed_batch(work, seed=10 + number) for number in range(NUM_INPUTS)]
    prepared = _prepared(bench, system, batches)
    return bench.clock.windows(
        lambda number: system.step(prepared[number % NUM_INPUTS]),
        [work.token_budget] * work.steps_a_window,
        num_windows=work.num_windows,
    ).as_json()


def _extra(bench: Bench, work: Callable[[], object]) -> Mapping[str, Any]:
    work()
    return bench.clock.windows(
        lambda _: work(), [bench.work.token_budget] * bench.work.steps_a_window, num_windows=bench.work.num_windows
    ).as_json()


def _varying(bench: Bench, system: DrafterSystem) -> Mapping[str, Any]:
    """A first pass over lengths never seen before, and a second over other ones, in which nothing may compile."""
    passes = []
    for seed in (20, 21):
        make = filled_batches if system.takes_packed_rows else varying_batches
        batches = make(bench.work, bench.work.num_varying, seed)
        prepared = _prepared(bench, system, batches)
        timing = bench.clock.windows(
            lambda number, ready=prepared: system.step(ready[number]),
            [batch.num_tokens for batch in batches],
            num_windows=1,
        )
        num_positions = sum(batch.input_ids_BS.numel() for batch in batches)
        padding_pct = 100 * (1 - sum(batch.num_tokens for batch in batches) / num_positions)
        passes.append(timing.as_json() | {"padding_pct": padding_pct})
    return passes[1] | {"first_pass": passes[0]}


def _make_target(bench: Bench, *, is_ours: bool) -> TargetSystem:
    """Our own; a peer gets the plain target with logits, as TorchSpec runs it."""
    model = random_target(bench.work, bench.device)
    if is_ours:
        return OurTarget(bench.work, model, bench.device)
    return PlainTarget(bench.work, model, bench.device, "logits")


def _both(bench: Bench, system: DrafterSystem, target: TargetSystem) -> Mapping[str, Any]:
    """Target and drafter in turn, on one stream."""
    work = bench.work
    batches = [fixed_batch(work, seed=30 + number) for number in range(NUM_INPUTS)]

    def step(number: int) -> None:
        batch = batches[number % NUM_INPUTS]
        system.step(system.prepare(batch, target.forward(batch)))

    for number in range(NUM_INPUTS):
        step(number)
    return bench.clock.windows(step, [work.token_budget] * work.steps_a_window, num_windows=work.num_windows).as_json()


def _target(bench: Bench, target: TargetSystem, *, varies: bool) -> Mapping[str, Any]:
    """At fixed lengths and, with *varies*, at varying ones, once each shape has been met (toggle `warmup`)."""
    work = bench.work
    batches = [fixed_batch(work, seed=40 + number) for number in range(NUM_INPUTS)]
    met = [*(_whole(work, shape) for shape in work.shapes if varies), *batches]
    found = {"warmup_s": bench.clock.wall_s(lambda: [target.rehearse(), *(target.forward(batch) for batch in met)])}
    found |= bench.clock.windows(
        lambda number: target.forward(batches[number % NUM_INPUTS]),
        [work.token_budget] * work.steps_a_window,
        num_windows=work.num_windows,
    ).as_json()
    if varies:
        varying = (filled_batches if target.takes_packed_rows else varying_batches)(work, work.num_varying, seed=50)
        found["varying"] = bench.clock.windows(
            lambda number: target.forward(varying[number]), [batch.num_tokens for batch in varying], num_windows=1
        ).as_json()
    return found


def _whole(work: Work, shape: BatchShape) -> Batch:
    rows = (shape.num_rows, shape.padded_length)
    return Batch(
        input_ids_BS=torch.randint(0, work.mask_token_id, rows, generator=torch.Generator().manual_seed(0)),
        loss_mask_BS=torch.ones(rows, dtype=torch.bool),
        lengths=(shape.padded_length,) * shape.num_rows,
    )


def _prepared(bench: Bench, system: DrafterSystem, batches: Sequence[Batch]) -> list[Any]:
    """Each batch with hidden states of its own, laid out as the system wants it."""

    def states(batch: Batch, number: int) -> Tensor:
        return hidden_states(bench.work, batch, bench.device, seed=number)

    return [system.prepare(batch, states(batch, number)) for number, batch in enumerate(batches)]


def _free(bench: Bench) -> None:
    """Give back what earlier parts have held, before the target's 16 GB come."""
    gc.collect()
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
