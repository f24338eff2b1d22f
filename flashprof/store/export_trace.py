"""
A run as a Chrome trace, for Perfetto: lanes with nested spans, steps, gauges, marks, windows, the machine, and arrows
from a target's `send` to the step of a drafter that it fed. Written as it is read: memory does not grow with the spans.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from flashprof.contracts.events import EventLog, Gauge, Mark, Span, decode_record
from flashprof.contracts.machine import GpuReading, MachineReading
from flashprof.contracts.results import Window
from flashprof.store.export_events import EventFiles, is_sound, moment, name_of
from flashprof.store.export_flows import Flows, pair_flows
from flashprof.store.export_output import Write
from flashprof.store.export_tracks import Process, a_slice, counter, flow_ends, instant, text
from flashprof.store.json_numbers import finite

CHUNK = 20_000
"""Spans that are put in order before they are written: an outer one is closed last, and must come first."""
SENDS, TAKES = "send", "unpack"
MAIN_THREAD = "main"
OWN_PID = 1
"""Of windows and machine; processes of the run follow."""
STEPS, WINDOWS = "steps", "windows"


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a trace says of its run beside the events."""

    run_id: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Cell, outcome, versions: anything that JSON holds."""
    windows: Sequence[Window] = ()
    disturbances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of a window → why it is left out."""
    readings: Sequence[MachineReading] = ()


@dataclass(kw_only=True)
class TraceStats:
    """What was written."""

    num_spans: int = 0
    num_flows: int = 0
    num_left_out: int = 0
    """Lines that are no record, and values that are no numbers."""
    notes: list[str] = field(default_factory=list)


def write_trace(write: Write, files: EventFiles, run: RunFacts) -> TraceStats:
    """
    Write one JSON document.

    Args:
        write: Where to; called with pieces of about a megabyte.
        files: Of `find_event_files`.
        run: The rest.
    """
    stats = TraceStats(notes=list(files.refused))
    flows = pair_flows(files.logs)
    stats.notes += flows.notes
    head = {"run_id": run.run_id, **run.facts, "notes": stats.notes}
    write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(finite(head), default=str)},"traceEvents":[\n')
    zeros_ns = files.zeros_ns(run.readings)
    own = Process(pid=OWN_PID, name="FlashProf", zero_ns=files.zero_ns(run.readings), label=run.run_id)
    write(",\n".join(_own_events(own, run)))
    for index, log in enumerate(files.logs):
        writer = _LogWriter(write, log, flows=flows, index=index, zero_ns=zeros_ns[index], stats=stats)
        writer.write_whole(files.paths[index])
    write("\n]}\n")
    return stats


class _LogWriter:
    """Writes the events of one process."""

    def __init__(
        self, write: Write, log: EventLog, *, flows: Flows, index: int, zero_ns: int, stats: TraceStats
    ) -> None:
        header = log.header
        self._write, self._log, self._stats = write, log, stats
        self._process = Process(
            pid=OWN_PID + 1 + index,
            name=f"{header.role} {header.rank}",
            zero_ns=zero_ns,
            label=f"pid {header.pid} on {header.host}",
        )
        self._sent: Sequence[int] = flows.sent.get(index, ())
        self._taken: Sequence[int] = flows.taken.get(index, ())
        self._parts = flows.parts
        self._num_ends = 0
        self._json: dict[str, str] = {}
        self._lines: list[str] = []
        self._slices: list[tuple[int, int, int, str]] = []

    def write_whole(self, path: Path) -> None:
        self._lines += self._process.head()
        self._lines += _steps(self._process, self._log)
        self._lines += _instants(self._process, self._log)
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            next(file, "")
            for line in file:
                self._add(line)
        self._flush()

    def _add(self, line: str) -> None:
        try:
            match decode_record(line):
                case Span() as span:
                    self._add_span(span)
                case Gauge() as gauge:
                    self._add_gauge(gauge)
                case None:
                    self._leave_out()
        except (TypeError, ValueError, RecursionError):
            self._leave_out()
        if len(self._slices) + len(self._lines) >= CHUNK:
            self._flush()

    def _leave_out(self) -> None:
        self._stats.num_left_out += 1
        # It may have been a `send`: what is counted from here on would be another step's.
        self._sent = self._taken = ()

    def _add_span(self, span: Span) -> None:
        start_ns, end_ns = moment(span.start_ns), moment(span.end_ns)
        # A span that ends before it starts is a point.
        end_ns = max(start_ns, end_ns)
        name, kind = self._json_of(span.phase), '"work"' if span.kind == "work" else '"wait"'
        tid, introduced = self._process.row(name_of(span.thread), start_ns, end_ns)
        if introduced:
            self._lines.append(introduced)
        args = {} if span.ok else {"failed": True}
        line = a_slice(self._process, tid, name, kind, start_ns=start_ns, end_ns=end_ns, args=args)
        self._slices.append((start_ns, -end_ns, -len(self._slices), line))
        self._stats.num_spans += 1
        if span.thread == MAIN_THREAD:
            self._add_flow(span, tid, start_ns)

    def _add_flow(self, span: Span, tid: int, start_ns: int) -> None:
        sends = bool(self._sent) and span.phase == SENDS
        flows = self._sent if sends else self._taken if span.phase == TAKES else ()
        if not flows:
            return
        flow = flows[self._num_ends] if self._num_ends < len(flows) else -1
        self._num_ends += 1
        if flow >= 0:
            self._stats.num_flows += sends
            ids = (flow,) if sends else range(flow - self._parts + 1, flow + 1)
            self._lines += flow_ends(self._process, tid, start_ns, ids, is_start=sends)

    def _add_gauge(self, gauge: Gauge) -> None:
        if not math.isfinite(gauge.value):
            self._stats.num_left_out += 1
            return
        name = self._json_of(gauge.name)
        self._lines.append(counter(self._process, name, moment(gauge.at_ns), float(gauge.value)))

    def _json_of(self, name: str) -> str:
        known = self._json.get(name)
        if known is None:
            known = self._json[name] = text(name_of(name))
        return known

    def _flush(self) -> None:
        self._slices.sort()
        lines = [*self._lines, *(line for *_, line in self._slices)]
        self._write("".join(f",\n{line}" for line in lines))
        self._lines.clear()
        self._slices.clear()


def _own_events(own: Process, run: RunFacts) -> Iterator[str]:
    yield from own.head()
    for window in run.windows:
        tid, introduced = own.row(WINDOWS, window.start_ns, window.end_ns)
        if introduced:
            yield introduced
        reasons = run.disturbances.get(window.label, ())
        args = {
            "tokens": window.num_tokens,
            "supervised_tokens": window.num_supervised_tokens,
            "padding_tokens": window.num_padding_tokens,
            "steps": window.num_steps,
            "tok_per_s": round(window.tok_per_s, 3),
            **({"disturbed": "; ".join(reasons)} if reasons else {}),
        }
        name = text(f"{window.label} (disturbed)" if reasons else window.label)
        span = {"start_ns": window.start_ns, "end_ns": window.end_ns}
        yield a_slice(own, tid, name, text(window.kind), args=args, **span)
    for before, after in pairwise(run.readings):
        yield from _machine(own, before, after)


def _machine(own: Process, before: MachineReading, after: MachineReading) -> Iterator[str]:
    """A counter holds from its moment on, so what was spent until *after* stands at *before*."""
    length_s = (after.at_ns - before.at_ns) / 1e9
    if length_s <= 0:
        return
    values: dict[str, float] = {
        "cores: host busy": (after.busy_cpu_s - before.busy_cpu_s) / length_s,
        "cores: subject": (after.subject_cpu_s - before.subject_cpu_s) / length_s,
        "cores: FlashProf": (after.own_cpu_s - before.own_cpu_s) / length_s,
        "cores: stolen": (after.stolen_cpu_s - before.stolen_cpu_s) / length_s,
        "cores: subject runnable, not running": (after.subject_delay_s - before.subject_delay_s) / length_s,
        "pages swapped a second": (after.num_swapped_pages - before.num_swapped_pages) / length_s,
    }
    for name, value in values.items():
        if math.isfinite(value):
            yield counter(own, text(name), before.at_ns, round(float(value), 4))
    for gpu in after.gpus:
        yield from _gpu(own, gpu, after.at_ns)


def _gpu(own: Process, gpu: GpuReading, at_ns: int) -> Iterator[str]:
    """Each as it was at a moment."""
    values = {
        "SM clock, MHz": gpu.sm_clock_mhz,
        "power, W": gpu.power_w,
        "temperature, °C": gpu.temperature_c,
        "busy, %": gpu.utilization_pct,
    }
    for name, value in values.items():
        if math.isfinite(value):
            yield counter(own, text(f"GPU {gpu.index}: {name}"), at_ns, float(value))


def _steps(process: Process, log: EventLog) -> Iterator[str]:
    """Each from the end of the one before it, the first from when the process was ready."""
    ready_ns = [mark.at_ns for mark in log.marks if mark.name == "ready"]
    at_ns = max([log.header.monotonic_ns, *ready_ns])
    for step in sorted(filter(is_sound, log.steps), key=lambda step: step.end_ns):
        start_ns = min(at_ns, step.end_ns)
        tid, introduced = process.row(STEPS, start_ns, step.end_ns)
        if introduced:
            yield introduced
        args = {
            "tokens": step.num_tokens,
            "supervised_tokens": step.num_supervised_tokens,
            "padding_tokens": step.num_padding_tokens,
        }
        name = text(f"step {step.step}")
        yield a_slice(process, tid, name, '"step"', start_ns=start_ns, end_ns=step.end_ns, args=args)
        at_ns = step.end_ns


def _instants(process: Process, log: EventLog) -> Iterator[str]:
    for mark in log.marks:
        if isinstance(mark.detail, dict) and type(mark.at_ns) is int:
            yield instant(process, _mark_name(mark), "mark", mark.at_ns, finite(mark.detail))
    for ack in log.acks:
        if isinstance(ack.detail, dict) and type(ack.at_ns) is int:
            label = ack.detail.get("label", "")
            yield instant(process, f"{ack.name} {label}".strip(), "control", ack.at_ns, finite(ack.detail))


def _mark_name(mark: Mark) -> str:
    """`recompile interval_mask`, `compile interval_mask`, or the mark's own name."""
    what = str(mark.detail.get("what", ""))
    return what if what.startswith("recompile ") else f"{mark.name} {what}".strip()
