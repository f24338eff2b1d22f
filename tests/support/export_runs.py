"""A run folder of a target and a drafter that trained three steps: small enough to be written out in a test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import launch_files

from flashprof.contracts.events import (
    Ack,
    Gauge,
    Header,
    Mark,
    Record,
    Span,
    SpanKind,
    Step,
    encode,
    encode_header,
)
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Lane, LaneRow, PhaseRow, RunSummary, Window, WindowKind
from flashprof.sample.threads import ThreadUse, write_threads
from flashprof.store import run_folder
from flashprof.store.counters_file import FILE_NAME, CountersWriter
from flashprof.store.summary_file import summary_to_json
from flashprof.store.tables import write_lanes, write_phases, write_windows

MS = 1_000_000
STEP_MS = 100
TOKENS = ((100, 70, 3), (110, 80, 5), (120, 90, 0))
"""Tokens, supervised, padding of each step."""
STACKS = (
    "thread (1): MainThread;train (pipeline/train.py:10);step (pipeline/train.py:20);mask (pipeline/mask.py:30) 8",
    "thread (1): MainThread;train (pipeline/train.py:10);step (pipeline/train.py:21) 2",
)
GIL_STACKS = ("thread (1): MainThread;train (pipeline/train.py:10) 3",)
PHASE_LINES = {"pipeline/train.py": [[19, 20, "mask"]]}


def header(role: str, rank: int = 0, *, host: str = "here", monotonic_ns: int = 0, wall_ns: int = 0) -> Header:
    """Of an events file."""
    return Header(
        role=role, rank=rank, host=host, pid=7, trains=role == "drafter", wall_ns=wall_ns, monotonic_ns=monotonic_ns
    )


def span(phase: str, start_ms: float, end_ms: float, *, thread: str = "main", depth: int = 0) -> Span:
    """A stretch of work, or of waiting where it is called so."""
    kind = SpanKind.WAIT if phase.startswith("wait") else SpanKind.WORK
    return Span(phase, kind, thread, round(start_ms * MS), round(end_ms * MS), depth, True)


def target_records() -> list[Record]:
    """Each step is sent 40 ms after its start."""
    records: list[Record] = []
    for step, counts in enumerate(TOKENS):
        at_ms = step * STEP_MS
        records += [span("forward", at_ms, at_ms + 30), span("send", at_ms + 40, at_ms + 45)]
        records.append(Step(step, (at_ms + 50) * MS, *counts))
    return records


def drafter_records() -> list[Record]:
    """Each step is unpacked 60 ms after its start; a mask is built within the forward pass."""
    records: list[Record] = [Mark("compile", MS, {"what": "recompile mask", "seconds": 0.5})]
    for step, counts in enumerate(TOKENS):
        at_ms = step * STEP_MS
        records += [
            span("wait_hidden", at_ms + 5, at_ms + 45),
            span("unpack", at_ms + 60, at_ms + 65),
            span("mask", at_ms + 65, at_ms + 75, depth=1),
            span("forward", at_ms + 65, at_ms + 95),
            span("unpack", at_ms + 66, at_ms + 70, thread="main:cuda0"),
            span("forward", at_ms + 70, at_ms + 98, thread="main:cuda0"),
            Gauge("queue", step, (at_ms + 99) * MS, 1.5 + step),
            Step(step, (at_ms + 100) * MS, *counts),
        ]
    records.append(Ack(1, "window_start", 1, 100 * MS, {"label": "measure-1", "kind": "measure"}))
    return records


def write_events(folder: Path, name: str, head: Header, records: Sequence[Record]) -> Path:
    """One events file below a run folder."""
    path = folder / "events" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in (encode_header(head), *map(encode, records))), encoding="utf-8")
    return path


def window(label: str, kind: WindowKind, start_ms: int, end_ms: int, num_tokens: int) -> Window:
    """Of one step."""
    return Window(
        label=label,
        kind=kind,
        start_ns=start_ms * MS,
        end_ns=end_ms * MS,
        num_steps=1,
        num_tokens=num_tokens,
        num_supervised_tokens=num_tokens - 30,
        num_padding_tokens=0,
    )


WINDOWS = (
    window("warmup", WindowKind.WARMUP, 0, 100, 100),
    window("measure-1", WindowKind.MEASURE, 100, 200, 110),
    window("profile-1", WindowKind.PROFILE, 200, 300, 120),
)


def write_run(path: Path) -> Path:
    """The whole folder."""
    write_events(path, "target-0.jsonl", header("target"), target_records())
    write_events(path, "drafter-0.jsonl", header("drafter"), drafter_records())
    manifest = {
        "format": run_folder.FORMAT,
        "version": run_folder.VERSION,
        "run_id": path.name,
        "cell": {"toggles": "swa"},
        "outcome": "completed",
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    summary = RunSummary(run_id=path.name, cell={"toggles": "swa"}, outcome=Outcome.COMPLETED, windows=WINDOWS)
    (path / "summary.json").write_text(summary_to_json(summary))
    _write_tables(path)
    _write_counters(path / FILE_NAME)
    _write_samples(path / "samples")
    return path


def _write_tables(path: Path) -> None:
    lane = Lane(host="here", role="drafter", rank=0, thread="main")
    phase = PhaseRow(
        lane=lane,
        phase="mask",
        kind=SpanKind.WORK,
        num_calls=1,
        num_steps=1,
        self_ns=10 * MS,
        step_p50_ns=1e7,
        step_p95_ns=1e7,
        share=0.1,
    )
    row = LaneRow(
        lane=lane,
        wall_ns=100 * MS,
        work_ns=35 * MS,
        wait_ns=40 * MS,
        num_steps=1,
        num_tokens=110,
        tok_per_s=1100.0,
        capacity_tok_per_s=2000.0,
        is_limiting=True,
    )
    write_windows(path / "windows.parquet", WINDOWS)
    write_phases(path / "phases.parquet", [("measure-1", phase)])
    write_lanes(path / "lanes.parquet", [("measure-1", row)])


def _write_counters(path: Path) -> None:
    writer = CountersWriter(path)
    for now_s in (0.0, 0.25, 0.5):
        writer.write(launch_files.reading(now_s, busy_cpu_s=2 * now_s))
    writer.close()


def _write_samples(samples: Path) -> None:
    window_folder = samples / "profile-1"
    window_folder.mkdir(parents=True)
    (window_folder / "drafter-0.folded").write_text("".join(f"{line}\n" for line in STACKS))
    (window_folder / "drafter-0.gil.folded").write_text("".join(f"{line}\n" for line in GIL_STACKS))
    (window_folder / "gil.json").write_text(json.dumps({"format": "flashprof-gil", "version": 1, "num_looks": 10}))
    phase_lines = {"format": "flashprof-phase-lines", "version": 1, "files": PHASE_LINES}
    (samples / "phase_lines.json").write_text(json.dumps(phase_lines))
    use = ThreadUse(
        role="drafter",
        rank=0,
        pid=7,
        tid=7,
        thread="drafter-0",
        usr_pct=90.0,
        system_pct=2.0,
        wait_pct=1.5,
        voluntary_switches_per_s=4.0,
        involuntary_switches_per_s=2.0,
        seconds=0.1,
    )
    write_threads(window_folder, [use])
