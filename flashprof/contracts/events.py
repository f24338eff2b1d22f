"""
The events file: what a measured process says about itself.

One file a process, `events/<role>-<rank>.jsonl`: a header object, then one JSON array a line, first the
record's word, then its fields in the order of the dataclass. Lines are appended at step boundaries; a process
that is killed can leave one torn last line, which a reader drops.

Clock: `monotonic_ns`, shared by all processes of one host; the header's (wall, monotonic) pair joins hosts.

Format history
    1  2026-11  first version: span, step, gauge, ack, mark
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from json.encoder import encode_basestring_ascii
from typing import Any

from flashprof.contracts.errors import FormatError

FORMAT = "flashprof-events"
VERSION = 1


class SpanKind(StrEnum):
    """Whether a phase does something or stands still for somebody else."""

    WORK = "work"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of an events file."""

    role: str
    """`dispatcher`, `target`, `drafter`, or what a foreign trainer calls itself."""
    rank: int
    """Rank within the role, from 0."""
    host: str
    pid: int
    trains: bool
    """Whether this role's finished steps are the training steps: only their tokens make tok/s."""
    wall_ns: int
    """`time.time_ns` at the same moment as `monotonic_ns`."""
    monotonic_ns: int
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Span:
    """A named stretch of work or waiting in one lane."""

    phase: str
    kind: SpanKind
    thread: str
    """Thread or device stream; (host, role, rank, thread) is the lane."""
    start_ns: int
    end_ns: int
    depth: int
    """0 for an outermost span; a span's own time is its length less its children's."""
    ok: bool
    """False where an exception left the span."""


@dataclass(frozen=True, slots=True)
class Step:
    """One finished cycle of a lane's main loop. On a device: finished there, not merely queued."""

    step: int
    end_ns: int
    num_tokens: int
    """Input tokens, padding excluded."""
    num_supervised_tokens: int
    num_padding_tokens: int


MODEL_TFLOP = "model_tflop"
"""Gauge of what a step needs: 10^12 operations, forward and backward, nothing computed again."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A value at a moment: queue depth, loss, allocated memory."""

    name: str
    step: int
    at_ns: int
    value: float


@dataclass(frozen=True, slots=True)
class Ack:
    """The subject applied a control command, at a step boundary."""

    command_id: int
    name: str
    step: int
    at_ns: int
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """
    Something that happened once: `lane`, `ready`, `toggles`, `path`, `skipped`, `end`, and what warms up.

    Those are `compile` (`what`, which begins with "recompile " where it was compiled before, `seconds`, `reason`),
    `autotune` (`what`, `seconds`) and `allocator` (`gib` more than before, `retries` since then).
    """

    name: str
    at_ns: int
    detail: dict[str, Any]


Record = Span | Step | Gauge | Ack | Mark


@dataclass(kw_only=True)
class EventLog:
    """One process's events, by kind, each list in file order."""

    header: Header
    spans: list[Span] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    gauges: list[Gauge] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    num_torn_lines: int = 0
    """Lines that could not be read: 1 where the process was killed while writing."""

    def add(self, record: Record) -> None:
        """Append *record* to the list of its kind."""
        match record:
            case Span():
                self.spans.append(record)
            case Step():
                self.steps.append(record)
            case Gauge():
                self.gauges.append(record)
            case Ack():
                self.acks.append(record)
            case Mark():
                self.marks.append(record)


def encode_header(header: Header) -> str:
    """One line, without the line break."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": header.version,
            "role": header.role,
            "rank": header.rank,
            "host": header.host,
            "pid": header.pid,
            "trains": header.trains,
            "wall_ns": header.wall_ns,
            "monotonic_ns": header.monotonic_ns,
        }
    )


def encode(record: Record) -> str:
    """One line, without the line break."""
    match record:
        case Span(phase, kind, thread, start_ns, end_ns, depth, ok):
            return f"{span_prefix(phase, kind, thread)}{start_ns},{end_ns},{depth},{int(ok)}]"
        case Step(step, end_ns, num_tokens, num_supervised_tokens, num_padding_tokens):
            return encode_step(step, end_ns, num_tokens, num_supervised_tokens, num_padding_tokens)
        case Gauge(name, step, at_ns, value):
            return encode_gauge(name, step, at_ns, value)
        case Ack(command_id, name, step, at_ns, detail):
            return json.dumps(["ack", command_id, name, step, at_ns, detail])
        case Mark(name, at_ns, detail):
            return json.dumps(["mark", name, at_ns, detail])


def encode_step(step: int, end_ns: int, num_tokens: int, num_supervised_tokens: int, num_padding_tokens: int) -> str:
    """A step's line from its fields: every step pays for it, and making a `Step` to encode costs 1.1 µs more."""
    return f'["step",{step},{end_ns},{num_tokens},{num_supervised_tokens},{num_padding_tokens}]'


def encode_gauge(name: str, step: int, at_ns: int, value: float) -> str:
    """A gauge's line; four a step, and `json.dumps` of a list costs 16 µs when its code has left the caches."""
    number = repr(float(value)) if math.isfinite(value) else json.dumps(value)
    return f'["gauge",{encode_basestring_ascii(name)},{step},{at_ns},{number}]'


def span_prefix(phase: str, kind: SpanKind, thread: str) -> str:
    """The constant part of a span's line, made once a phase so that writing one costs 0.35 µs instead of 1 µs."""
    return f'["span",{json.dumps(phase)},{json.dumps(str(kind))},{json.dumps(thread)},'


def decode(lines: Iterable[str], *, where: str) -> EventLog:
    """
    Read an events file.

    Args:
        lines: The file's lines, header first.
        where: The file's name, for the error.

    Raises:
        FormatError: The header is missing, or is of another format or version.
    """
    iterator = iter(lines)
    log = EventLog(header=_decode_header(next(iterator, ""), where=where))
    for line in iterator:
        record = decode_record(line)
        if record is None:
            log.num_torn_lines += 1
        else:
            log.add(record)
    return log


def _decode_header(line: str, *, where: str) -> Header:
    try:
        raw = json.loads(line)
        known = {"role", "rank", "host", "pid", "trains", "wall_ns", "monotonic_ns", "version"}
        if raw["format"] != FORMAT or raw["version"] != VERSION:
            raise FormatError(
                f"events format {raw['format']} version {raw['version']} is not known",
                where=where,
                allowed=f"{FORMAT} version {VERSION}",
                next_command="read it with the FlashProf that wrote it, or measure again",
            )
        return Header(**{key: raw[key] for key in known})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(
            "not a FlashProf events file: its first line is no header",
            where=where,
            allowed=f"{FORMAT} version {VERSION}",
        ) from error


def decode_record(line: str) -> Record | None:
    """The record in *line*; None where it is torn or of a kind that this version does not know."""
    try:
        word, *fields = json.loads(line)
        match word:
            case "span":
                phase, kind, thread, start_ns, end_ns, depth, ok = fields
                return Span(phase, SpanKind(kind), thread, start_ns, end_ns, depth, bool(ok))
            case "step":
                return Step(*fields)
            case "gauge":
                return Gauge(*fields)
            case "ack":
                return Ack(*fields)
            case "mark":
                return Mark(*fields)
    except (ValueError, TypeError, RecursionError):
        return None
    return None
