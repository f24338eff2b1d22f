"""What `benchmarks.drafter_step` measures of a drafter step, part by part."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.drafter_phases import PhaseClock
from benchmarks.drafter_variants import FAST, Variant, kernel_options, phase_tflop
from benchmarks.peers.clock import Clock, num_graphs
from benchmarks.peers.ours import make_preset, packed_row
from benchmarks.peers.weights import EMBEDDING, HEAD, draw, fill
from benchmarks.peers.work import Batch, Work, drafter_shape, fixed_batch, hidden_states, varying_batches
from flashprof.contracts.toggles import ToggleValues, parse_toggles
from pipeline.config import HostPlace
from pipeline.model.drafter import Drafter, attend
from pipeline.model.fused_loss import fused_dflash_loss
from pipeline.model.loss import Targets
from pipeline.model.mask_rule import MaskRequest
from pipeline.model.masks import MaskFactory
from pipeline.model.scoring import Score
from pipeline.model.tables import FrozenTables
from pipeline.toggles import REGISTRY, honoured, not_applied
from pipeline.train.optimizer import make_optimizer
from pipeline.train.peers import Peers
from pipeline.train.rows import RowLayout
from pipeline.train.step import DrafterStep, Learner, StepInput
from pipeline.transport.messages import HiddenStates, Order


@dataclass(frozen=True)
class Trainer:
    """One variant, ready to train."""

    step: DrafterStep
    phases: PhaseClock
    toggles: ToggleValues

    def run(self, item: HiddenStates, number: int) -> Mapping[str, Tensor]:
        """One optimizer step; its anchors depend on *number* alone."""
        given = StepInput(
            step=number,
            generator=torch.Generator().manual_seed(number),
            toggles=self.toggles,
            order=Order(),
        )
        return self.step.run([item], given).scalars


class Bench:
    """A drafter on a device, and everything that is measured of it."""

    def __init__(self, work: Work, device: torch.device) -> None:
        self.work, self.device, self.clock = work, device, Clock(device)
        self.on_cuda = device.type == "cuda"
        with device:
            self.drafter = Drafter(drafter_shape(work))
        sizes = (work.vocab_size, work.hidden_size)
        # Values that bfloat16 holds, as a target's are.
        self.tables = [draw(name, sizes, device).bfloat16() for name in (EMBEDDING, HEAD)]

    def prepare(self, batch: Batch, seed: int) -> HiddenStates:
        """A packed row, as a target sends it."""
        return packed_row(batch, hidden_states(self.work, batch, self.device, seed))

    def trainer(self, variant: Variant) -> Trainer:
        """From the same weights every time."""
        torch.compiler.reset()
        fill(self.drafter)
        self.drafter.zero_grad(set_to_none=True)
        preset = make_preset(self.work)
        embedding_VD, head_VD = (
            table if variant.half_tables and self.on_cuda else table.float() for table in self.tables
        )
        phases = PhaseClock(self.device)
        peers = Peers(rank=0, num_drafters=1, rendezvous=Path("unused"), host=HostPlace(), device=self.device)
        step = DrafterStep(
            Learner(
                drafter=self.drafter,
                optimizer=make_optimizer(self.drafter, preset.recipe),
                preset=preset,
                num_steps=0,
            ),
            FrozenTables(embedding_VD, head_VD, self.work.mask_token_id),
            peers,
            phases,
            compiled=variant.make_parts(),
        )
        return Trainer(step, phases, honoured_toggles(variant.toggles, self.device))

    def repeat_ms(self, call: Callable[[], object], num_calls: int = 10) -> float:
        """A call, median of three windows, after three calls to warm up."""
        for _ in range(3):
            call()
        return statistics.median(
            self.clock.elapsed_ms(lambda: [call() for _ in range(num_calls)]) / num_calls for _ in range(3)
        )


def honoured_toggles(expression: str, device: torch.device) -> ToggleValues:
    """The toggles of *expression* that this machine honours."""
    values = parse_toggles(expression, REGISTRY)
    return honoured(values, not_applied(values, has_cuda=device.type == "cuda"))


def measure_ceilings(bench: Bench) -> dict[str, Any]:
    """TFLOP/s of the step's products in bfloat16, GB/s of a copy."""
    work, dtype = bench.work, torch.bfloat16 if bench.on_cuda else torch.float32
    num_slots, width, joined = work.num_anchors * work.block_size, work.hidden_size, work.num_heads * work.head_dim
    joined += 2 * work.num_kv_heads * work.head_dim
    shapes = {
        "gate": (num_slots, width, work.intermediate_size),
        "query": (num_slots, width, width),
        "joined": (num_slots, width, joined),
        "down": (num_slots, work.intermediate_size, width),
        "gate weight": (work.intermediate_size, num_slots, width),
        "head": (2048, width, work.vocab_size),
        "head back": (2048, work.vocab_size, width),
    }
    found: dict[str, Any] = {}
    for name, (m, k, n) in shapes.items():
        left, right = (torch.randn(size, device=bench.device, dtype=dtype) for size in ((m, k), (n, k)))
        product_ms = bench.repeat_ms(partial(torch.nn.functional.linear, left, right))
        found[f"{name} {m}x{k}x{n} TFLOP/s"] = round(2 * m * k * n / product_ms / 1e9, 3)
    source = torch.randn(num_slots * work.intermediate_size, device=bench.device)
    sink = torch.empty_like(source)
    found["copy GB/s"] = round(2 * source.nbytes / bench.repeat_ms(lambda: sink.copy_(source)) / 1e6, 1)
    return found


def measure_step(bench: Bench, variant: Variant) -> dict[str, Any]:
    """Whole steps at the fixed shape."""
    work = bench.work
    items = [bench.prepare(fixed_batch(work, seed), seed) for seed in range(3)]
    trainer = bench.trainer(variant)
    first: list[Mapping[str, Tensor]] = []
    first_s = bench.clock.wall_s(lambda: first.append(trainer.run(items[0], 0)))
    for number in range(1, work.num_warmup):
        trainer.run(items[number % len(items)], number)
    compile_s, graphs = trainer.phases.compile_s, trainer.phases.compiled
    trainer.phases.take_ms()
    timing = bench.clock.windows(
        lambda number: trainer.run(items[number % len(items)], number),
        [work.token_budget] * work.steps_a_window,
        num_windows=work.num_windows,
    )
    phase_ms = trainer.phases.take_ms()
    tflop = phase_tflop(work, work.length * 5 / 8 + work.block_size, fused_loss=bool(trainer.toggles["fused-loss"]))
    return timing.as_json() | {
        "predicted_ms": variant.predicted_ms,
        "why": variant.why,
        "first_step_s": first_s,
        "compile_s": compile_s,
        "graphs": graphs,
        "first_loss": float(first[0]["loss"]),
        "first_grad_norm": float(first[0]["grad_norm"]),
        "phase_ms": phase_ms,
        "phase_tflop_per_s": {
            phase: num / phase_ms[phase] * 1e3 for phase, num in tflop.items() if phase_ms.get(phase)
        },
    }


def measure_varying(bench: Bench, variant: Variant) -> dict[str, Any]:
    """Six length buckets from a cold cache: warm-up, recompilations behind it, and each bucket's step."""
    work = bench.work
    batches = _by_bucket(work, varying_batches(work, 150, seed=1))
    items = {bucket: [bench.prepare(batch, 7) for batch in some[:2]] for bucket, some in sorted(batches.items())}
    mixed = [item for some in items.values() for item in some]
    random.Random(0).shuffle(mixed)
    trainer = bench.trainer(variant)
    # Each batch once: whatever is compiled behind this was not bounded.
    warmup_s = bench.clock.wall_s(lambda: [trainer.run(item, 0) for item in mixed])
    compile_s, graphs = trainer.phases.compile_s, trainer.phases.compiled
    trainer.phases.take_ms()
    tokens = [sum(item.lengths) for item in mixed]
    timing = bench.clock.windows(lambda number: trainer.run(mixed[number], number), tokens, num_windows=3)
    before = num_graphs()
    buckets = {}
    for bucket, some in items.items():
        step_ms = [bench.repeat_ms(partial(trainer.run, item, 1), 3) for item in some]
        num_tokens = [sum(item.lengths) for item in some]
        buckets[bucket] = {"step_ms": step_ms, "tokens": num_tokens}
    return timing.as_json() | {
        "warmup_s": warmup_s,
        "compile_s": compile_s,
        "graphs": graphs,
        "recompiled": num_graphs() - before + timing.num_compiled,
        "phase_ms": trainer.phases.take_ms(),
        "buckets": buckets,
    }


def measure_attention(bench: Bench, options: Mapping[str, Any]) -> dict[str, Any]:
    """A layer's attention forward and backward, with a step's own mask."""
    if not bench.on_cuda:
        raise RuntimeError("flex_attention cannot train on a CPU")
    torch.compiler.reset()
    work, preset = bench.work, make_preset(bench.work)
    layout = RowLayout(preset.drafter, work.mask_token_id, bench.device)
    toggles = honoured_toggles(FAST, bench.device)
    row = layout.make(bench.prepare(fixed_batch(work, 0), 0), toggles, torch.Generator().manual_seed(0))
    request = MaskRequest(
        anchor_A=row.anchor_A,
        document_T=row.document_T,
        position_T=row.position_K[: row.document_T.numel()],
        block_size=work.block_size,
        window=None,
    )
    mask = MaskFactory(is_cuda=True).build(request, compiled=False, analytic=True)
    heads = (work.num_heads, work.num_kv_heads, work.num_kv_heads)
    lengths = (row.block_ids_Q.numel(), row.position_K.numel(), row.position_K.numel())
    operands = [
        torch.randn(length, num, work.head_dim, device=bench.device, dtype=torch.bfloat16).requires_grad_()
        for length, num in zip(lengths, heads, strict=True)
    ]
    query_QHE, key_KGE, value_KGE = operands
    upstream = torch.randn_like(query_QHE)
    merged = kernel_options(options)

    def forward() -> Tensor:
        return attend(query_QHE, key_KGE, value_KGE, mask, merged)

    def both() -> None:
        torch.autograd.grad(forward(), operands, upstream)

    first_s = bench.clock.wall_s(both)
    forward_ms, both_ms = bench.repeat_ms(forward), bench.repeat_ms(both)
    return {"step_ms": both_ms, "forward_ms": forward_ms, "backward_ms": both_ms - forward_ms, "compile_s": first_s}


def measure_loss(bench: Bench, num_slots: int, score: Score) -> dict[str, Any]:
    """The fused loss by itself, with its gradient, in chunks of *num_slots*."""
    torch.compiler.reset()
    work, device = bench.work, bench.device
    num_drafted = work.num_anchors * (work.block_size - 1)
    targets = Targets(
        torch.randint(0, work.vocab_size, (num_drafted,), device=device), torch.ones(num_drafted, device=device)
    )
    final_QD = torch.randn(work.num_anchors * work.block_size, work.hidden_size, device=device).requires_grad_()
    head_VD = bench.tables[1] if bench.on_cuda else bench.tables[1].float()

    def call() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=bench.on_cuda):
            fused_dflash_loss(
                final_QD,
                head_VD,
                targets,
                block_size=work.block_size,
                total_weight=targets.weight,
                chunk_bytes=4 * work.vocab_size * num_slots,
                score=score,
            )

    first_s = bench.clock.wall_s(call)
    taken_ms = bench.repeat_ms(call, 3)
    tflop = phase_tflop(work, 0, fused_loss=True)["loss"]
    return {"step_ms": taken_ms, "tflop_per_s": tflop / taken_ms * 1e3, "compile_s": first_s}


def _by_bucket(work: Work, batches: Sequence[Batch]) -> dict[int, list[Batch]]:
    found: dict[int, list[Batch]] = defaultdict(list)
    for batch in batches:
        longest = batch.input_ids_BS.shape[1]
        found[next(at for at, bound in enumerate(work.bucket_bounds) if longest <= bound)].append(batch)
    return found
