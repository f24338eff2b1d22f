"""Runs of topologies: started by `flashprof run`, and read as what the scaling model needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from benchmarks.scaling_model import Stages
from benchmarks.scaling_shapes import ModelShape, Work, drafter_weights
from flashprof.contracts.events import EventLog, Span, SpanKind
from flashprof.store.tail import read_event_logs
from flashprof.windows.costs import is_followed
from flashprof.windows.lanes import MAIN_THREAD
from pipeline.presets import Preset, TargetPlan

CPU_BUS_BYTES_PER_S = 1e9
GPU_BUS_BYTES_PER_S = 3.2e11
"""Two H200s: 1 GB in 3.1 ms."""
GPU_COPY_BYTES_PER_S = 4.2e12
LINK_BYTES_PER_S = 3.5e11
"""NCCL between two H200s of one host; a copy within a process has 393 GB/s."""
AGREE_S = 1e-3
"""Counts over gloo, guessed."""
HOST_LEADS = 1.05
"""A host that works so much longer than its device holds it up; one that blocks on it works as long."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """What one topology did."""

    topology: str
    toggles: str
    tok_per_s: float
    low: float
    high: float
    num_devices: int
    """GPUs that the workers lie on, or processor cores."""
    depth: int
    """Of the queue."""
    num_anchors: int
    """Blocks a batch."""
    stages: Stages
    """Capacities of its lanes: of each worker alone only where every worker has a device of its own."""
    measured_with: str = ""
    """Commit and torch of the run, which the results file of a later judgement does not know."""


def run_command(topology: str, given: Mapping[str, Any], reports: Path) -> list[str]:
    """The command line that measures one topology."""
    settings = {
        "num_measure": given["windows"],
        "measure_s": given["window_s"],
        "num_profile": 0,
        "steady_timeout_s": 20.0,
    }
    return [
        *(sys.executable, "-m", "flashprof.cli", "run", "--json", "--subject", "pipeline"),
        *("--preset", given["preset"], "--topology", topology, "--toggles", given["toggles"]),
        *("--train", given["train"], "--reports", str(reports), "--run-id", run_name(topology)),
        *(word for name, value in settings.items() for word in ("--set", f"windows.{name}={value}")),
    ]


def run_name(topology: str) -> str:
    """Its run folder's."""
    return f"scaling-{topology}"


def start(command: Sequence[str], limit_s: float) -> str:
    """Run a command and return why it failed, or nothing; whatever happens, the next topology has its turn."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"took longer than {limit_s:.0f} s"
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else f"status {done.returncode}: {lines[-1] if lines else 'no message'}"


def read_run(folder: Path, preset: Preset) -> MeasuredRun:
    """
    A run folder that `flashprof run` has left.

    Raises:
        ValueError: It measured nothing.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    facts = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["cell_facts"]
    num_anchors = int(facts["workload.drafter.num_anchors"])
    preset = with_anchors(preset, num_anchors)
    rate = summary["tok_per_s"]
    if rate is None:
        raise ValueError(f"{folder.name} measured nothing: {summary['outcome']} {summary['reason']}")
    return MeasuredRun(
        topology=summary["cell"]["topology"],
        toggles=summary["cell"]["toggles"],
        tok_per_s=rate["estimate"],
        low=rate["low"],
        high=rate["high"],
        num_devices=num_devices(facts),
        depth=int(facts["toggles.queue"]),
        num_anchors=num_anchors,
        measured_with=f"commit {facts.get('source.commit', '?')}, torch {facts.get('versions.torch', '?')}",
        stages=read_stages(summary, read_event_logs(folder / "events"), preset),
    )


def with_anchors(preset: Preset, num_anchors: int) -> Preset:
    """The preset with as many blocks a batch as the runs had."""
    return replace(preset, drafter=replace(preset.drafter, num_anchors=num_anchors))


def num_devices(facts: Mapping[str, str]) -> int:
    """GPUs of the workers, by the cell's facts, or this machine's cores."""
    gpus = set(re.findall(r"cuda:\d+", facts["workload.device"]))
    return len(gpus) or int(facts["machine.num_cores"])


def read_stages(summary: Mapping[str, Any], logs: Sequence[EventLog], preset: Preset) -> Stages:
    """What the workers of one run could do if they never waited, and how much their batches vary."""
    capacity = _capacities(summary["lanes"])
    windows = [(w["start_ns"], w["end_ns"]) for w in summary["windows"] if w["kind"] == "measure"]
    work_s: dict[str, list[float]] = defaultdict(list)
    tokens: list[int] = []
    for log in logs:
        work_s[log.header.role] += step_work_s(log, windows)
        if log.header.trains:
            tokens += [step.num_tokens for step in log.steps if _is_in(step.end_ns, windows)]
    is_cuda = summary["cell"]["device"] != "cpu"
    shape = shape_of(preset.target)
    num_taps = len(preset.drafter.layer_types)
    gradient_bytes = 4.0 * drafter_weights(shape, work_of(preset, fmean(tokens)))
    return Stages(
        target_tok_per_s=capacity["target"],
        drafter_tok_per_s=capacity["drafter"],
        dispatcher_tok_per_s=capacity["dispatcher"],
        batch_tokens=fmean(tokens),
        target_cv=variation(work_s["target"]),
        drafter_cv=variation(work_s["drafter"]),
        gradient_bytes=gradient_bytes,
        bus_bytes_per_s=GPU_BUS_BYTES_PER_S if is_cuda else CPU_BUS_BYTES_PER_S,
        # Gathered in one row and scattered again: each byte is read and written twice.
        step_overhead_s=AGREE_S + (4 * gradient_bytes / GPU_COPY_BYTES_PER_S if is_cuda else 0.0),
        **({"link_tok_per_s": LINK_BYTES_PER_S / (2 * num_taps * shape.hidden_size)} if is_cuda else {}),
    )


def step_work_s(log: EventLog, windows: Sequence[tuple[int, int]]) -> list[float]:
    """
    Seconds of work of each step in the lane that holds the process up, in *windows* only.

    That is the stream of its device that works longest, or its host where this works longer still. A host that runs
    ahead waits while its device works: of a drafter's step by its host, 147 ± 46 ms of two H200s, the device took
    138 ± 4 ms.
    """
    streams = {span.thread for span in log.spans if span.thread != MAIN_THREAD and is_followed(span.thread)}
    if not streams:
        return _not_waited_s(log, windows)
    worked = {thread: _worked_s(log, thread, windows) for thread in (*sorted(streams), MAIN_THREAD)}
    host = worked.pop(MAIN_THREAD)
    stream = max(worked.values(), key=sum)
    return host if sum(host) > HOST_LEADS * sum(stream) else stream


def _not_waited_s(log: EventLog, windows: Sequence[tuple[int, int]]) -> list[float]:
    """Of the main thread: what it does between phases is work, too."""
    waits = [span for span in log.spans if span.kind is SpanKind.WAIT and span.thread == MAIN_THREAD]
    found = []
    for start_ns, end_ns, within in _by_step(log, waits, windows):
        waited_ns = sum(span.end_ns - span.start_ns for span in within if span.start_ns >= start_ns)
        found.append((end_ns - start_ns - waited_ns) / 1e9)
    return found


def _worked_s(log: EventLog, thread: str, windows: Sequence[tuple[int, int]]) -> list[float]:
    """By the phases of one lane: a step ends when the device has done it, so its length says nothing of a host."""
    outermost = [s for s in log.spans if s.thread == thread and s.kind is SpanKind.WORK and s.depth == 0]
    return [
        sum(span.end_ns - span.start_ns for span in within) / 1e9 for _, _, within in _by_step(log, outermost, windows)
    ]


def _by_step(
    log: EventLog, spans: Sequence[Span], windows: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, list[Span]]]:
    """Each step that lies within a window: its start, its end, and the spans that end in it."""
    ordered = sorted(spans, key=lambda span: span.end_ns)
    ends_ns = [span.end_ns for span in ordered]
    for before, step in zip(log.steps, log.steps[1:], strict=False):
        if _is_in(before.end_ns, windows) and _is_in(step.end_ns, windows):
            first, last = bisect_right(ends_ns, before.end_ns), bisect_right(ends_ns, step.end_ns)
            yield before.end_ns, step.end_ns, ordered[first:last]


def variation(values: Sequence[float]) -> float:
    """Standard deviation over mean; 0 where there are too few."""
    return pstdev(values) / fmean(values) if len(values) > 1 and fmean(values) > 0 else 0.0


def shape_of(plan: TargetPlan) -> ModelShape:
    """Widths of a random target, whose plan knows them."""
    names = ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "intermediate_size", "vocab_size")
    return ModelShape(name=plan.source, **{name: getattr(plan, name) for name in names})


def work_of(preset: Preset, batch_tokens: float) -> Work:
    """A step of the preset; a token's sample is taken to be three quarters of the longest."""
    drafter = preset.drafter
    return Work(
        batch_tokens=batch_tokens,
        sample_tokens=0.75 * preset.data.max_length,
        draft_tokens=drafter.num_anchors * drafter.block_size,
        num_draft_layers=len(drafter.layer_types),
        num_taps=len(drafter.tapped_layers) or len(drafter.layer_types),
    )


def _capacities(lanes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of one worker of each role: a worker's is that of its slowest lane, host thread or device stream."""
    slowest: dict[tuple[str, int], float] = {}
    for lane in lanes:
        key = (lane["lane"]["role"], lane["lane"]["rank"])
        capacity = lane["capacity_tok_per_s"]
        if capacity:
            slowest[key] = min(capacity, slowest.get(key, capacity))
    roles = {role for role, _ in slowest}
    return {role: fmean(rate for (other, _), rate in slowest.items() if other == role) for role in roles}


def _is_in(at_ns: int, windows: Sequence[tuple[int, int]]) -> bool:
    return any(start_ns <= at_ns <= end_ns for start_ns, end_ns in windows)
