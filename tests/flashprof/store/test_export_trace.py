"""A Chrome trace holds every span, step and gauge of a run once, on rows that nest."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import export_runs
import jsonschema
import launch_files
import pytest
from export_runs import MS, span
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.events import Record, Span, SpanKind, Step
from flashprof.contracts.machine import GpuReading
from flashprof.store.export_events import find_event_files
from flashprof.store.export_trace import RunFacts, TraceStats, write_trace

TRAIN = "drafter-0.jsonl"
STAMPED = {"type": "object", "required": ["ts", "pid"], "properties": {"ts": {"type": "number"}}}
PLACED = {"required": ["name", "tid"], "properties": {"name": {"type": "string"}, "tid": {"type": "integer"}}}
KINDS: dict[str, dict[str, Any]] = {
    "X": {"allOf": [STAMPED, PLACED], "required": ["dur", "cat"], "properties": {"dur": {"minimum": 0}}},
    "C": {"allOf": [STAMPED], "properties": {"args": {"additionalProperties": {"type": "number"}, "minProperties": 1}}},
    "i": {"allOf": [STAMPED, PLACED], "required": ["s"], "properties": {"s": {"enum": ["g", "p", "t"]}}},
    "s": {"allOf": [STAMPED, PLACED], "required": ["id", "cat"]},
    "f": {"allOf": [STAMPED, PLACED], "required": ["id", "cat", "bp"]},
    "M": {"required": ["name", "args"]},
}
SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ph", "pid"],
                "properties": {"ph": {"enum": list(KINDS)}, "pid": {"type": "integer"}, "args": {"type": "object"}},
                "allOf": [
                    {"if": {"properties": {"ph": {"const": kind}}}, "then": rule} for kind, rule in KINDS.items()
                ],
            },
        },
    },
}
"""What Chrome's trace event format asks of the kinds of events that are written."""


def trace(folder: Path, facts: RunFacts | None = None) -> tuple[dict[str, Any], TraceStats]:
    pieces: list[str] = []
    stats = write_trace(pieces.append, find_event_files(folder / "events"), facts or RunFacts(run_id="run"))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads("".join(pieces), parse_constant=refuse), stats


def of_kind(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == kind]


def stretch(event: dict[str, Any]) -> tuple[int, int]:
    start_ns = round(event["ts"] * 1000)
    return start_ns, start_ns + round(event["dur"] * 1000)


def slices(document: dict[str, Any], *, category: Sequence[str] = ("work", "wait")) -> list[dict[str, Any]]:
    return [event for event in of_kind(document, "X") if event["cat"] in category]


def check_nesting(document: dict[str, Any]) -> None:
    """In the order in which an importer takes them: by start, and as they stand where two start at once."""
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in of_kind(document, "X"):
        rows[event["tid"]].append(stretch(event))
    for row in rows.values():
        is_open: list[int] = []
        for start, end in sorted(row, key=lambda pair: pair[0]):
            while is_open and is_open[-1] <= start:
                is_open.pop()
            assert not is_open or end <= is_open[-1]
            is_open.append(end)


def test_a_small_run_as_a_whole(tmp_path: Path) -> None:
    export_runs.write_run(tmp_path / "run")
    document, stats = trace(tmp_path / "run", RunFacts(run_id="run", facts={"outcome": "completed"}))
    lines = [json.dumps(event, ensure_ascii=False) for event in document["traceEvents"]]

    assert {"run_id": "run", "outcome": "completed", "notes": []} == document["otherData"]
    assert (24, 3, 0, []) == (stats.num_spans, stats.num_flows, stats.num_left_out, stats.notes)
    # The drafter's first step.
    wanted = [event for event in document["traceEvents"] if event["pid"] == 3 and event.get("ts", 0) < 100_000]
    assert [
        ("M", "process_name", {"name": "drafter 0"}),
        ("M", "process_sort_index", {"sort_index": 3}),
        ("M", "process_labels", {"labels": "pid 7 on here"}),
        ("M", "thread_name", {"name": "steps"}),
        ("M", "thread_sort_index", {"sort_index": 3001}),
        ("X", "step 0", {"tokens": 100, "supervised_tokens": 70, "padding_tokens": 3}),
        ("i", "recompile mask", {"what": "recompile mask", "seconds": 0.5}),
        ("M", "thread_name", {"name": "main"}),
        ("M", "thread_sort_index", {"sort_index": 3002}),
        ("f", "hidden states", None),
        ("M", "thread_name", {"name": "main:cuda0"}),
        ("M", "thread_sort_index", {"sort_index": 3003}),
        ("C", "queue", {"value": 1.5}),
        ("X", "wait_hidden", None),
        ("X", "unpack", None),
        ("X", "forward", None),
        ("X", "mask", None),
        ("X", "unpack", None),
        ("X", "forward", None),
    ] == [(event["ph"], event["name"], event.get("args")) for event in wanted]
    assert '{"ph": "X", "name": "mask", "cat": "work", "pid": 3, "tid": 3002, "ts": 65000.0, "dur": 10000.0}' in lines


def test_flows_lead_from_the_send_to_the_step_that_it_fed(tmp_path: Path) -> None:
    export_runs.write_run(tmp_path / "run")
    document, _ = trace(tmp_path / "run")
    starts = {event["id"]: event["ts"] for event in of_kind(document, "s")}

    assert [(starts[event["id"]], event["ts"]) for event in of_kind(document, "f")] == [
        (40_000.0 + at, 60_000.0 + at) for at in (0, 100_000, 200_000)
    ]


def test_a_step_of_several_batches_has_an_arrow_from_each(tmp_path: Path) -> None:
    sent: list[Record] = []
    for number in range(4):
        sent += [span("send", 10 * number, 10 * number + 5), Step(number, (10 * number + 6) * MS, number, 1, 0)]
    taken: list[Record] = [span("unpack", 50, 51), Step(0, 60 * MS, 0 + 1, 2, 0)]
    taken += [span("unpack", 70, 71), Step(1, 80 * MS, 2 + 3, 2, 0)]
    export_runs.write_events(tmp_path, "target-0.jsonl", export_runs.header("target"), sent)
    export_runs.write_events(tmp_path, TRAIN, export_runs.header("drafter"), taken)
    document, _ = trace(tmp_path)
    ends = {event["id"]: event["ts"] for event in of_kind(document, "f")}

    assert [(0.0, 50_000.0), (10_000.0, 50_000.0), (20_000.0, 70_000.0), (30_000.0, 70_000.0)] == [
        (event["ts"], ends[event["id"]]) for event in of_kind(document, "s")
    ]


def test_windows_and_disturbed_ones_and_the_machine(tmp_path: Path) -> None:
    export_runs.write_run(tmp_path / "run")
    facts = RunFacts(
        run_id="run",
        windows=export_runs.WINDOWS,
        disturbances={"measure-1": ("another program",)},
        readings=[launch_files.reading(now_s, busy_cpu_s=3 * now_s) for now_s in (0.0, 0.5, 1.0)],
    )
    document, _ = trace(tmp_path / "run", facts)
    own = [event for event in document["traceEvents"] if event["pid"] == 1]
    windows = {event["name"]: event for event in own if event["ph"] == "X"}

    assert ["warmup", "measure-1 (disturbed)", "profile-1"] == list(windows)
    assert "another program" == windows["measure-1 (disturbed)"]["args"]["disturbed"]
    assert (100 * MS, 200 * MS) == stretch(windows["measure-1 (disturbed)"])
    busy = [(event["ts"], event["args"]["value"]) for event in own if event["name"] == "cores: host busy"]
    assert [(0.0, 3.0), (500_000.0, 3.0)] == busy


def test_gpus_stand_where_they_were_read(tmp_path: Path) -> None:
    export_runs.write_run(tmp_path / "run")
    gpu = GpuReading(
        index=2,
        sm_clock_mhz=1980,
        throttle_reasons=(),
        temperature_c=60,
        power_w=float("nan"),
        utilization_pct=95,
        num_foreign_processes=0,
    )
    readings = [replace(launch_files.reading(now_s, busy_cpu_s=0.0), gpus=(gpu,)) for now_s in (0.0, 0.5)]
    document, _ = trace(tmp_path / "run", RunFacts(run_id="run", readings=readings))
    told = [(e["name"], e["ts"], e["args"]["value"]) for e in of_kind(document, "C") if e["name"].startswith("GPU")]

    assert [
        ("GPU 2: SM clock, MHz", 500_000.0, 1980.0),
        ("GPU 2: temperature, °C", 500_000.0, 60.0),
        ("GPU 2: busy, %", 500_000.0, 95.0),
    ] == told


def test_it_is_a_chrome_trace(tmp_path: Path) -> None:
    export_runs.write_run(tmp_path / "run")
    document, _ = trace(tmp_path / "run", RunFacts(run_id="run", windows=export_runs.WINDOWS))

    jsonschema.validate(document, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 0}]}, SCHEMA)


INTERVAL = st.tuples(st.integers(0, 200), st.integers(-5, 50))
SPAN = st.builds(
    lambda phase, kind, thread, pair: Span(phase, kind, thread, pair[0], sum(pair), 0, pair[0] % 2 == 0),
    st.text(max_size=4),
    st.sampled_from(SpanKind),
    st.sampled_from(["main", "main:cuda0"]),
    INTERVAL,
)
STEPS = st.builds(Step, st.integers(0, 9), st.integers(0, 300), *[st.integers(0, 10**6)] * 3)


@settings(max_examples=60)
@given(st.lists(SPAN | STEPS, max_size=40))
def test_every_span_and_step_is_there_once(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    folder = tmp_path_factory.mktemp("run")
    export_runs.write_events(folder, TRAIN, export_runs.header("drafter"), records)
    document, stats = trace(folder)
    spans = [record for record in records if isinstance(record, Span)]
    steps = [record for record in records if isinstance(record, Step)]

    assert sorted((s.phase, str(s.kind), s.start_ns, max(s.start_ns, s.end_ns), s.ok) for s in spans) == sorted(
        (event["name"], event["cat"], *stretch(event), "args" not in event) for event in slices(document)
    )
    assert len(spans) == stats.num_spans
    told = [event["args"] for event in slices(document, category=["step"])]
    assert sum(step.num_tokens for step in steps) == sum(args["tokens"] for args in told)
    assert sum(step.num_padding_tokens for step in steps) == sum(args["padding_tokens"] for args in told)
    check_nesting(document)


def nested(rng: random.Random, start: int, end: int, depth: int) -> list[Span]:
    """Spans within each other as an emitter closes them."""
    spans: list[Span] = []
    at = start
    while depth < 4 and at < end and rng.random() < 0.7:
        inner_end = rng.randint(at, end)
        spans += nested(rng, at, inner_end, depth + 1)
        at = inner_end + rng.randint(0, 2)
    return [*spans, Span(f"p{depth}", SpanKind.WORK, "main", start, end, depth, True)]


@given(st.integers(0, 10**6))
def test_nested_spans_share_a_row(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("run")
    records = [each for at in range(0, 500, 100) for each in nested(rng, at, at + rng.randint(1, 100), 0)]
    export_runs.write_events(folder, TRAIN, export_runs.header("drafter"), records)
    document, _ = trace(folder)

    check_nesting(document)
    assert 1 == len({event["tid"] for event in slices(document)})


def test_lines_that_hold_no_sound_record_are_counted_and_end_the_flows(tmp_path: Path) -> None:
    export_runs.write_run(tmp_path / "run")
    path = tmp_path / "run" / "events" / "target-0.jsonl"
    head, *lines = path.read_text().splitlines()
    broken = [
        '["span",5,"work","main",1,2,0,1]',
        '["span","a","work",["main"],1,2,0,1]',
        '["span","a","work","main","x",2,0,1]',
        '["span","a","work","main",1,1e999,0,1]',
        f'["span","a","work","main",1,{10**30},0,1]',
        '["span","a","rest","main",1,2,0,1]',
        '["gauge",1,0,1,2.0]',
        '["gauge","a",0,1,NaN]',
        '["gauge","a",0,1,"x"]',
        '["span",' + "[" * 100_000,
    ]
    path.write_text("\n".join([head, *lines[:3], *broken, *lines[3:]]) + "\n")
    document, stats = trace(tmp_path / "run")

    assert 24 == stats.num_spans == len(slices(document))
    assert len(broken) == stats.num_left_out
    assert 1 == stats.num_flows == len(of_kind(document, "s"))


@given(st.text(), st.text())
@settings(max_examples=30)
def test_no_name_breaks_the_trace(tmp_path_factory: pytest.TempPathFactory, name: str, thread: str) -> None:
    folder = tmp_path_factory.mktemp("run")
    records = [Span(name, SpanKind.WORK, thread, 0, 1, 0, True)]
    export_runs.write_events(folder, TRAIN, export_runs.header("drafter"), records)
    document, _ = trace(folder, RunFacts(run_id=name))

    assert [name] == [event["name"] for event in slices(document)]
    assert thread in [event["args"]["name"] for event in of_kind(document, "M") if event["name"] == "thread_name"]


def test_memory_does_not_grow_with_the_spans(tmp_path: Path) -> None:
    records = [span("mask", at, at + 1) for at in range(60_000)]
    export_runs.write_events(tmp_path, TRAIN, export_runs.header("drafter"), records)
    longest = 0

    def write(piece: str) -> None:
        nonlocal longest
        longest = max(longest, len(piece))

    write_trace(write, find_event_files(tmp_path / "events"), RunFacts(run_id="run"))

    assert longest < 3 * 2**20
