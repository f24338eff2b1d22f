"""
What a drafter step costs, way by way: `python -m benchmarks.drafter_step`, nine minutes on one H200.

Parts, each guarded and written as soon as it is known; what failed says why in its row: rates of the products and of a
copy; varying lengths from a cold compiler cache; attention under several kernel options; the loss in chunks of several
sizes; whole steps by variant (benchmarks/drafter_variants.py, with predictions), phase by phase. Windows of steps are
timed by device events after warm-up, nothing is waited for within; host work of a step is part of the time.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click
import torch

from benchmarks.drafter_measures import (
    Bench,
    measure_attention,
    measure_ceilings,
    measure_loss,
    measure_step,
    measure_varying,
)
from benchmarks.drafter_variants import ATTENTION, CHUNK_SLOTS, variants
from benchmarks.peers.record import Record, read_parts
from benchmarks.peers.work import FULL, TINY
from pipeline.model.drafter import KERNEL_OPTIONS
from pipeline.model.scoring import CompiledScore, score_stepwise

Found = Mapping[str, Any]

FIRST = ("compile-drafter", "fused-loss", "plain")
"""Variants that are measured before anything is tuned: a short budget leaves out what tells least."""
RATES = ("forward_ms", "backward_ms", "tflop_per_s")


@dataclass(frozen=True)
class Part:
    """One row of the table."""

    name: str
    measure: Callable[[], Found]
    reserve_s: float = 45.0
    """Is not begun with less left: compilation cannot be interrupted."""


def plan(bench: Bench, path: Path) -> list[Part]:
    """
    All parts, the most telling first.

    Args:
        bench: Measures.
        path: What was found so far; the tuned variant takes the fastest options from it.
    """
    by_name = {variant.name: variant for variant in variants()}
    parts = [
        Part("ceilings", partial(measure_ceilings, bench)),
        Part("varying", partial(measure_varying, bench, by_name["compile-drafter"]), reserve_s=180),
        *(Part(f"step {name}", partial(measure_step, bench, by_name.pop(name))) for name in FIRST),
        *(Part(f"attention {name}", partial(measure_attention, bench, of)) for name, of in ATTENTION.items()),
        Part("step tuned attention", partial(_measure_tuned, bench, path)),
    ]
    del by_name["tuned attention"]
    parts += [Part(f"loss {slots}", partial(measure_loss, bench, slots, CompiledScore())) for slots in CHUNK_SLOTS]
    parts.append(Part("loss 2048 stepwise", partial(measure_loss, bench, 2048, score_stepwise)))
    parts += [
        Part(f"step {name}", partial(measure_step, bench, variant), reserve_s=180 if variant.costly else 45)
        for name, variant in by_name.items()
    ]
    return parts


def _measure_tuned(bench: Bench, path: Path) -> Found:
    options = best_options(read_parts(path))
    (variant,) = (one for one in variants(options) if one.name == "tuned attention")
    return measure_step(bench, variant) | {"options": options}


def best_options(parts: Mapping[str, Found]) -> dict[str, Any]:
    """The fastest forward and the fastest backward options of Triton's attention together, on `KERNEL_OPTIONS`."""
    triton = [name for name, options in ATTENTION.items() if "BACKEND" not in options]
    known = {name: parts[f"attention {name}"] for name in triton if "step_ms" in parts.get(f"attention {name}", {})}
    merged = dict(KERNEL_OPTIONS)
    for direction, other in (("forward_ms", "bwd_"), ("backward_ms", "fwd_")):
        if known:
            ordered = sorted((found[direction], name) for name, found in known.items())
            fastest = ATTENTION[ordered[0][1]]
            merged |= {key: value for key, value in fastest.items() if not key.startswith(other)}
    return merged


def table(parts: Mapping[str, Found]) -> list[str]:
    """One line a part, one more a bucket."""
    columns = f"{'part':28} {'ms':>8} {'predicted':>9} {'tok/s':>7} {'GiB':>5} {'recomp':>6} {'first s':>7}"
    lines = [f"{columns}  phases in ms (TFLOP/s)"]
    for name, found in parts.items():
        lines.append(f"{name:28} {_row(found) if 'step_ms' in found else _words(found)}")
        for bucket, of in found.get("buckets", {}).items():
            step_ms, tokens = (statistics.mean(of[key]) for key in ("step_ms", "tokens"))
            lines.append(f"  bucket {bucket}: {step_ms:.1f} ms, {tokens:.0f} tokens")
    return lines


def _row(found: Found) -> str:
    first_s = found.get("warmup_s", found.get("first_step_s", found.get("compile_s", 0.0)))
    rates = found.get("phase_tflop_per_s", {})
    phases = [
        f"{phase} {ms:.1f}" + (f" ({rates[phase]:.0f})" if phase in rates else "")
        for phase, ms in found.get("phase_ms", {}).items()
    ]
    phases += [f"{key} {found[key]:.2f}" for key in RATES if key in found]
    return (
        f"{found['step_ms']:8.2f} {found.get('predicted_ms', 0):9.0f} {found.get('tok_per_s', 0):7.0f}"
        f" {found.get('peak_gib', 0):5.1f} {found.get('recompiled', found.get('num_compiled', 0)):6}"
        f" {first_s:7.1f}  {', '.join(phases)}"
    )


def _words(found: Found) -> str:
    return str(found.get("error") or ", ".join(f"{key} {value}" for key, value in found.items() if key != "at_s"))


@click.command()
@click.option("--device", default="cuda", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--tiny", is_flag=True, help="Toy shapes: the same code in a minute.")
@click.option("--out", type=click.Path(path_type=Path), help="A line of JSON a part; default: $OUT/drafter_step.jsonl.")
@click.option("--budget", "budget_s", default=540.0, show_default=True, help="Seconds that all parts share.")
@click.option("--only", default="", help="Parts whose names begin with one of these: a,b.")
def main(*, device: str, tiny: bool, out: Path | None, budget_s: float, only: str) -> None:
    """Measure part by part, print the table."""
    start_s = time.monotonic()
    # Cold, whatever ran before: warm-up is one of the numbers.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = mkdtemp(prefix="drafter_step_")
    path = out or Path(os.environ.get("OUT", ".")) / "drafter_step.jsonl"
    path.unlink(missing_ok=True)
    bench, record = Bench(TINY if tiny else FULL, torch.device(device)), Record(path)
    for part in plan(bench, path):
        left_s = budget_s - (time.monotonic() - start_s)
        if not part.name.startswith(tuple(only.split(","))):
            continue
        record.part(part.name, part.measure if left_s >= part.reserve_s else _left_out)
        # Models and graphs hold each other in cycles.
        gc.collect()
        if bench.on_cuda:
            torch.cuda.empty_cache()
        click.echo(f"{time.monotonic() - start_s:6.1f} s {part.name}", err=True)
    for line in table(read_parts(path)):
        click.echo(line)


def _left_out() -> Found:
    return {"error": "left out: no time"}


if __name__ == "__main__":
    main()
