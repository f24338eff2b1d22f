"""
The target forward with taps, way beside way: `python -m benchmarks.target_forward`, five minutes on one H200.

For each way: ms at the fixed shape (median of three windows, CUDA events around whole windows, nothing waited for
within), the story's length buckets with their shares, what was compiled after the warm-up, and how far its taps are
from transformers'. Predictions, and the arithmetic behind them, stand in `benchmarks.target_variants`. Goals (issue 8):
161 ms, which is 1.3 times faster than `logits`; varying lengths within 5 % of the fixed one's tok/s; nothing compiled
after the warm-up, which is at most 60 s.

Last it runs matrix products on a second stream beside the fastest way. Kernels that fill the card do not overlap: what
both need together is the sum, and two processes without MPS only add changes of context. So `shared` runs its roles as
processes, and its floor is the sum: 145 + 230 ms a 6,144 tokens, 16.4K tok/s. A gain of 1.05 would argue for threads.

`--device cpu --tiny` runs the same code here.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

import click
import torch

from benchmarks.peers.clock import Clock, Timing, num_graphs
from benchmarks.peers.qwen import random_target
from benchmarks.peers.work import FULL, STORY_SHARES_PCT, TINY, Batch, Work, fixed_batch, varying_batches
from benchmarks.results_file import hardware, versions
from benchmarks.target_variants import Bench, Forward, Variant, variants
from pipeline.model.taps import TappedTarget

BATCHES_A_BUCKET = 4
MAX_DRAWN = 400
"""Batches that are looked at for four of each bucket: the rarest has 3.8 % of them."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way's numbers."""

    name: str
    predicted_ms: float
    why: str
    fixed: Timing | None = None
    buckets: dict[int, Timing] | None = None
    warmup_s: float = 0.0
    """All shapes once. Ways share compiled code: the first compiled one pays for the others."""
    num_compiled_late: int = 0
    """Graphs that were compiled behind the warm-up."""
    error: float = 0.0
    """Of the last tap: ‖way − hooks‖ / ‖hooks‖; 2e-2 is what bfloat16 makes of 34 layers."""
    failure: str = ""

    @property
    def fixed_ms(self) -> float:
        """Median of the windows."""
        return statistics.median(self.fixed.window_ms) if self.fixed else float("nan")

    @property
    def fixed_tok_per_s(self) -> float:
        """Real tokens."""
        return self.fixed.num_tokens / self.fixed_ms * 1e3 if self.fixed else float("nan")

    @property
    def varying_tok_per_s(self) -> float:
        """Real tokens over the story's mix of buckets."""
        if not self.buckets:
            return float("nan")
        shares = {bucket: STORY_SHARES_PCT[bucket] for bucket in self.buckets}
        num_tokens = sum(shares[bucket] * timing.num_tokens for bucket, timing in self.buckets.items())
        total_ms = sum(shares[bucket] * statistics.median(t.window_ms) for bucket, t in self.buckets.items())
        return num_tokens / total_ms * 1e3


def target_tflop(work: Work, lengths: Sequence[int]) -> float:
    """Floating-point operations that the taps need: layers up to the last one, causal attention within samples."""
    heads, kv_heads = work.num_heads * work.head_dim, work.num_kv_heads * work.head_dim
    weights = work.hidden_size * (2 * heads + 2 * kv_heads + 3 * work.intermediate_size)
    layer = 2 * weights * sum(lengths) + sum(2 * length**2 * heads for length in lengths)
    return (work.layer_ids[-1] + 1) * layer / 1e12


def batches_by_bucket(work: Work, seed: int) -> dict[int, list[Batch]]:
    """Four batches of each of the story's buckets, of random lengths; of fewer buckets where the work has fewer."""
    found: dict[int, list[Batch]] = {}
    bucket_of = {shape.padded_length: shape.bucket for shape in work.shapes}
    for batch in varying_batches(work, MAX_DRAWN, seed):
        batches = found.setdefault(bucket_of[batch.input_ids_BS.shape[1]], [])
        if len(batches) < BATCHES_A_BUCKET:
            batches.append(batch)
    return dict(sorted(found.items()))


class Study:
    """Measures one way after the other on one model."""

    def __init__(self, work: Work, device: torch.device) -> None:
        model: Any = random_target(work, device)
        self._work, self._clock = work, Clock(device)
        self._bench = Bench(work, model, TappedTarget(model, work.layer_ids), device)
        self._fixed = [fixed_batch(work, seed) for seed in range(work.steps_a_window)]
        self._buckets = batches_by_bucket(work, seed=1)
        self._reference = self._real_taps(
            lambda batch: self._bench.target.forward(self._on_device(batch), early_exit=True)
        )

    def measure(self, variant: Variant) -> Row:
        """A row whatever happens: one way that fails leaves the others their numbers."""
        row = Row(name=variant.name, predicted_ms=variant.predicted_ms, why=variant.why)
        if variant.needs_cuda and self._bench.device.type != "cuda":
            return _replaced(row, failure="needs a CUDA device")
        try:
            return self._measure(variant, row)
        except Exception as error:  # noqa: BLE001, whatever a compiler or a kernel raises
            return _replaced(row, failure=_in_one_line(error))
        finally:
            gc.collect()
            if self._bench.device.type == "cuda":
                torch.cuda.empty_cache()

    def beside(self, forward: Forward) -> dict[str, float]:
        """How long the forward takes, products that need as long, and both on two streams; gain: sum over both."""
        device = self._bench.device
        main, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        left, right = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
        out = torch.empty_like(left)

        def run(*works: Callable[[], object]) -> Callable[[], None]:
            def work() -> None:
                side.wait_stream(main)
                for start in works:
                    start()
                main.wait_stream(side)

            return work

        def products() -> None:
            with torch.cuda.stream(side):
                # 1.1 TFLOP each, 1.45 ms.
                for _ in range(100):
                    torch.mm(left, right, out=out)

        def target() -> None:
            forward(self._fixed[0])

        alone_ms, products_ms, together_ms = (
            statistics.median(self._clock.elapsed_ms(work) for _ in range(5))
            for work in (run(target), run(products), run(products, target))
        )
        return {
            "alone_ms": alone_ms,
            "products_ms": products_ms,
            "together_ms": together_ms,
            "gain": (alone_ms + products_ms) / together_ms,
        }

    def forward_of(self, variant: Variant) -> Forward:
        """The way as a function."""
        return variant.make(self._bench)

    def _measure(self, variant: Variant, row: Row) -> Row:
        forward = self.forward_of(variant)
        everything = [self._fixed[0], *(batch for batches in self._buckets.values() for batch in batches[:1])]
        warmup_s = self._clock.wall_s(lambda: [forward(batch) for batch in everything])
        for _ in range(self._work.num_warmup):
            forward(self._fixed[0])
        num_compiled = num_graphs()
        fixed = self._time(forward, self._fixed)
        buckets = {bucket: self._time(forward, batches) for bucket, batches in self._buckets.items()}
        return _replaced(
            row,
            fixed=fixed,
            buckets=buckets,
            warmup_s=warmup_s,
            num_compiled_late=num_graphs() - num_compiled,
            error=0.0 if variant.name == "logits" else self._error(forward),
        )

    def _time(self, forward: Forward, batches: Sequence[Batch]) -> Timing:
        return self._clock.windows(
            lambda number: forward(batches[number]),
            [batch.num_tokens for batch in batches],
            num_windows=self._work.num_windows,
        )

    def _error(self, forward: Forward) -> float:
        actual_TD = self._real_taps(forward)
        return float((actual_TD - self._reference).norm() / self._reference.norm())

    def _real_taps(self, forward: Forward) -> torch.Tensor:
        """The last tap of the real tokens of a batch of varying lengths, float32."""
        batch = self._buckets[max(self._buckets) - 1][0]
        state = forward(batch)[-1]
        is_padded = state.shape[:2] == batch.input_ids_BS.shape
        real = state[batch.is_token_BS.to(state.device)] if is_padded else state[0, : batch.num_tokens]
        return real.float()

    def _on_device(self, batch: Batch) -> torch.Tensor:
        return batch.input_ids_BS.to(self._bench.device)


def table(rows: Sequence[Row], tflop: float) -> str:
    """For a person: as wide as a terminal."""
    head = f"{'way':28}{'ms':>8}{'pred.':>7}{'TFLOP/s':>9}{'tok/s':>9}{'varying':>9}{'ratio':>7}"
    head += f"{'late':>5}{'warm s':>8}{'GiB':>6}{'error':>9}"
    lines = [head]
    for row in rows:
        if row.failure or row.fixed is None:
            lines.append(f"{row.name:28} {row.failure[:110]}")
            continue
        lines.append(
            f"{row.name:28}{row.fixed_ms:8.1f}{row.predicted_ms:7.0f}{tflop / row.fixed_ms * 1e3:9.1f}"
            f"{row.fixed_tok_per_s:9.0f}{row.varying_tok_per_s:9.0f}{row.varying_tok_per_s / row.fixed_tok_per_s:7.2f}"
            f"{row.num_compiled_late:5d}{row.warmup_s:8.1f}{row.fixed.peak_gib:6.1f}{row.error:9.1e}"
        )
    return "\n".join(lines)


@click.command()
@click.option("--device", default="cuda", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--tiny", is_flag=True, help="Small shapes, to try the script.")
@click.option("--only", multiple=True, help="Names of ways; all where none is given.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the numbers go; by default $OUT, or here.")
def main(*, device: str, tiny: bool, only: Sequence[str], out: Path | None) -> None:
    """Measure, write the numbers, and print a table last."""
    out = out or Path(os.environ.get("OUT", ".")) / "target_forward.json"
    work = TINY if tiny else FULL
    # The warm-up is measured with a cold cache.
    with TemporaryDirectory() as caches:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches
        study = Study(work, torch.device(device))
        rows: list[Row] = []
        for variant in variants():
            if not only or variant.name in only:
                rows.append(study.measure(variant))
                click.echo(f"{variant.name}: {rows[-1].failure or f'{rows[-1].fixed_ms:.1f} ms'}")
                _write(out, work, rows, {})
        beside = _beside(study, rows, device)
    _write(out, work, rows, beside)
    click.echo(table(rows, target_tflop(work, (work.length,) * work.num_samples)))
    click.echo(f"products on a second stream: {beside}")


def _beside(study: Study, rows: Sequence[Row], device: str) -> dict[str, Any]:
    measured = {row.name: row.fixed_ms for row in rows if row.fixed}
    if device == "cpu" or not measured:
        return {}
    fastest = min(measured, key=measured.__getitem__)
    (variant,) = (variant for variant in variants() if variant.name == fastest)
    try:
        return {"way": fastest, **study.beside(study.forward_of(variant))}
    except Exception as error:  # noqa: BLE001, as in `Study.measure`
        return {"failure": _in_one_line(error)}


def _write(out: Path, work: Work, rows: Sequence[Row], beside: dict[str, Any]) -> None:
    document = {
        "hardware": hardware(),
        "versions": versions(),
        "work": asdict(work),
        "tflop": target_tflop(work, (work.length,) * work.num_samples),
        "rows": [
            asdict(row) | {"fixed_tok_per_s": row.fixed_tok_per_s, "varying_tok_per_s": row.varying_tok_per_s}
            for row in rows
        ],
        "beside": beside,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _in_one_line(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}", 300, placeholder=" …")


def _replaced(row: Row, **changes: Any) -> Row:
    return Row(**{**vars(row), **changes})


if __name__ == "__main__":
    main()
