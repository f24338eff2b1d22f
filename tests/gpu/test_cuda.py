"""What only a GPU can show: flex_attention, streams and CUDA events. Run on a device with `pytest -m gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from flashprof import emit
from flashprof.contracts.events import decode
from pipeline.model.anchors import document_ids, sample_anchors, valid_anchors
from pipeline.model.drafter import attend
from pipeline.model.mask_evaluated import additive_mask, block_mask
from pipeline.model.mask_rule import MaskTables, mask_tables
from pipeline.train.metrics import AsyncMetrics, SyncMetrics

# torch warns about its own deprecated parts while it compiles, and about its sync debug mode.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]

DEVICE = "cuda"


def make_tables(num_context: int, num_anchors: int, block_size: int, window: int | None) -> MaskTables:
    lengths = [num_context // 4] * 4
    document_T = document_ids(lengths, num_context)
    valid_T = valid_anchors(document_T, torch.ones(num_context, dtype=torch.bool), block_size)
    anchors = sample_anchors(valid_T, num_anchors, torch.Generator().manual_seed(num_context))
    return mask_tables(anchors.position_A.to(DEVICE), document_T.to(DEVICE), block_size=block_size, window=window)


@pytest.mark.parametrize("window", [None, 256])
def test_flex_attention_equals_float64_attention_forward_and_backward(window: int | None) -> None:
    tables = make_tables(1024, num_anchors=32, block_size=16, window=window)
    num_queries, num_keys = tables.block_Q.numel(), tables.block_K.numel()
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(num, heads, 64, device=DEVICE, requires_grad=True)
        for num, heads in ((num_queries, 8), (num_keys, 2), (num_keys, 2))
    )
    upstream = torch.randn(num_queries, 8, 64, device=DEVICE)

    attend(query, key, value, block_mask(tables)).backward(upstream)
    doubles = [x.detach().double().requires_grad_() for x in (query, key, value)]
    reference = attend(*doubles, additive_mask(tables))
    reference.backward(upstream.double())

    # float32 inputs; the kernel may use tf32 products (3e-4 a product, METHOD.md).
    for actual, expected in zip((query, key, value), doubles, strict=True):
        error = (actual.grad.double() - expected.grad).norm() / expected.grad.norm()
        assert error < 2e-3


def test_async_metrics_read_what_the_producer_stream_computed_last() -> None:
    reader, reference = AsyncMetrics(torch.device(DEVICE)), SyncMetrics()
    readings, expected = [], []
    for step in range(50):
        # A long kernel before the scalar: a copy that does not wait for it reads garbage.
        noise = torch.randn(2048, 2048, device=DEVICE)
        scalars = {"loss": (noise @ noise).abs().mean() * 0 + step, "acc": torch.tensor(step / 50, device=DEVICE)}
        readings += reader.push(step, scalars)
        expected += reference.push(step, scalars)
    readings += reader.drain()

    assert [(r.step, r.values) for r in expected] == [(r.step, r.values) for r in readings]


def test_device_spans_have_the_device_time_and_never_synchronise(tmp_path: Path) -> None:
    torch.cuda.init()
    emitter = emit.connect("drafter", trains=True, run_dir=tmp_path)
    matrix = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(20):
            with emitter.span("forward", device=True):
                for _ in range(10):
                    matrix @ matrix
            emitter.end_step(step, num_tokens=1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    end_ns = time.monotonic_ns()
    emitter.end_step(20, num_tokens=1)
    emitter.close()

    log = decode((tmp_path / "events" / "drafter-0.jsonl").read_text().splitlines(), where="events")
    on_device = [span for span in log.spans if span.thread != "main"]
    lengths_ms = sorted((span.end_ns - span.start_ns) / 1e6 for span in on_device)

    # 10 products of 1.1 TFLOP at 700 to 990 TFLOP/s: 11 to 16 ms.
    assert 8 < lengths_ms[len(lengths_ms) // 2] < 30
    # The two clocks are tied to some 10 µs.
    assert all(span.end_ns <= end_ns + 1_000_000 for span in on_device)
    assert list(range(20)) == [step.step for step in log.steps][:20]


def test_the_pipeline_trains_on_a_gpu_and_its_device_lanes_are_in_the_trace(tmp_path: Path) -> None:
    env = {**os.environ, emit.RUN_DIR_VARIABLE: str(tmp_path)}
    command = [sys.executable, "-m", "pipeline", "train", "--steps", "40", "--toggles", "swa,async-metrics,grad-norm"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    log = decode((tmp_path / "events" / "drafter-0.jsonl").read_text().splitlines(), where="events")
    losses = [gauge.value for gauge in log.gauges if gauge.name == "loss"]
    (end,) = [mark for mark in log.marks if mark.name == "end"]
    assert losses[-1] < losses[0]
    assert end.detail["num_tokens"] == sum(step.num_tokens for step in log.steps)
    assert any(span.phase == "backward" and "cuda" in span.thread for span in log.spans), json.dumps(end.detail)
