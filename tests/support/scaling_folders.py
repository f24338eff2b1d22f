"""Run folders with what the scaling study reads of them."""

from __future__ import annotations

import json
from pathlib import Path

from flashprof.contracts.events import Header, Span, SpanKind, Step, encode, encode_header

MS = 1_000_000


def header(role: str) -> Header:
    return Header(role=role, rank=0, host="here", pid=1, trains=role == "drafter", wall_ns=0, monotonic_ns=0)


def step(number: int, end_ms: int) -> Step:
    return Step(number, end_ms * MS, 1000, 700, 50)


def wait(start_ms: int, end_ms: int, thread: str = "main") -> Span:
    return Span("wait_room", SpanKind.WAIT, thread, start_ms * MS, end_ms * MS, 0, ok=True)


def work(start_ms: int, end_ms: int, thread: str = "main", depth: int = 0) -> Span:
    return Span("forward", SpanKind.WORK, thread, start_ms * MS, end_ms * MS, depth, ok=True)


def write_run(folder: Path, *, device: str = "cpu", outcome: str = "completed", toggles: str = "all") -> Path:
    """A run of `1+1`: a target at 20 tokens/ms, a drafter at 10, three steps of unlike length."""
    (folder / "events").mkdir(parents=True)
    lanes = [
        {"lane": {"role": role, "rank": rank, "thread": thread}, "capacity_tok_per_s": capacity}
        for role, rank, thread, capacity in (
            ("dispatcher", 0, "main", 900_000.0),
            ("target", 0, "main", 40_000.0),
            ("target", 0, "cuda", 20_000.0),
            ("drafter", 0, "main", 10_000.0),
            ("drafter", 0, "idle", 0.0),
        )
    ]
    rate = {"estimate": 9_900.0, "low": 9_500.0, "high": 10_300.0}
    summary = {
        "cell": {"topology": "1+1", "toggles": toggles, "device": "cpu" if device == "cpu" else "cuda"},
        "tok_per_s": rate if outcome == "completed" else None,
        "outcome": outcome,
        "reason": "",
        "lanes": lanes,
        "windows": [{"kind": "measure", "start_ns": 0, "end_ns": 10**12}],
    }
    facts = {"workload.device": device, "machine.num_cores": "2", "toggles.queue": "8"}
    facts["workload.drafter.num_anchors"] = "64"
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "manifest.json").write_text(json.dumps({"cell_facts": facts}))
    records = {
        "drafter": [step(0, 100), step(1, 200), step(2, 290), step(3, 400)],
        "target": [step(0, 50), wait(60, 110), step(1, 150), step(2, 200)],
    }
    for role, role_records in records.items():
        lines = [encode_header(header(role)), *map(encode, role_records)]
        (folder / "events" / f"{role}-0.jsonl").write_text("\n".join(lines) + "\n")
    return folder
