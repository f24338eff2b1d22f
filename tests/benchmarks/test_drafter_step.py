"""The measuring script of the drafter step: its arithmetic, its choice of options, and a part that runs here."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from benchmarks.drafter_measures import Bench, measure_attention, measure_loss, measure_step
from benchmarks.drafter_step import best_options, plan, table
from benchmarks.drafter_variants import ATTENTION, CHUNK_SLOTS, Variant, phase_tflop, variants
from benchmarks.peers.work import FULL, TINY, drafter_tflop
from pipeline.model.drafter import KERNEL_OPTIONS
from pipeline.model.scoring import score_at_once


@pytest.mark.parametrize("fused_loss", [False, True])
def test_phases_add_up_to_the_step(fused_loss: bool) -> None:
    of_phase = phase_tflop(FULL, FULL.length * 5 / 8 + FULL.block_size, fused_loss=fused_loss)

    assert math.isclose(drafter_tflop(FULL), sum(of_phase.values()), rel_tol=1e-9)


def test_the_fastest_options_of_each_direction_are_joined() -> None:
    parts = {
        "attention default": {"step_ms": 7.0, "forward_ms": 1.7, "backward_ms": 5.3},
        "attention fwd tma": {"step_ms": 6.7, "forward_ms": 1.4, "backward_ms": 5.3},
        "attention bwd 64/128 s2 w8": {"step_ms": 6.2, "forward_ms": 1.7, "backward_ms": 4.5},
        "attention bwd 64/64 s3 w4": {"error": "out of shared memory"},
        "attention flash 4": {"step_ms": 4.0, "forward_ms": 1.0, "backward_ms": 3.0},
    }

    assert {**KERNEL_OPTIONS, "fwd_USE_TMA": True, "bwd_num_stages": 2} == best_options(parts)
    assert dict(KERNEL_OPTIONS) == best_options({})


# Compilers import deprecated parts of torch when they are reset.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_step_is_timed_phase_by_phase_and_the_fused_loss_by_itself() -> None:
    bench = Bench(TINY, torch.device("cpu"))
    plain = Variant(name="plain", predicted_ms=1.0, why="nothing is compiled", toggles="none")

    found = measure_step(bench, plain)
    loss = measure_loss(bench, 64, score_at_once)
    lines = table({"step plain": found, "loss 64": loss, "attention default": {"error": "RuntimeError: on a CPU"}})

    assert TINY.num_windows == len(found["window_ms"])
    assert {"mask", "forward", "loss", "backward", "clip", "optimizer"} <= found["phase_ms"].keys()
    assert found["first_loss"] == pytest.approx(math.log(TINY.vocab_size), rel=0.2)
    assert loss["step_ms"] > 0
    assert ["step plain", "loss 64", "attention default"] == [line[:28].strip() for line in lines[1:]]


def test_attention_by_itself_needs_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="CPU"):
        measure_attention(Bench(TINY, torch.device("cpu")), {})


def test_every_variant_is_measured_once(tmp_path: Path) -> None:
    names = [part.name for part in plan(Bench(TINY, torch.device("cpu")), tmp_path / "parts")]

    assert len(names) == len(set(names))
    assert {f"step {variant.name}" for variant in variants()} == {name for name in names if name.startswith("step")}
    assert 3 + len(variants()) + len(ATTENTION) + len(CHUNK_SLOTS) == len(names)
