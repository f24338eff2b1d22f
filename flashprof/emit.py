"""
The span emitter: what a measured process imports. Standard library only, at most 1 µs a span (ADR 1).

    from flashprof import emit
    fp = emit.connect("trainer", trains=True)        # does nothing when FlashProf did not start the process
    with fp.span("forward"): ...
    fp.end_step(step, num_tokens=tokens)

Spans are buffered and written when a step ends, four times a second at most. CUDA spans take events from a pool and
are resolved at later steps with `query()`: only `close()`, when training is over, waits for the device. A forked child
records nothing until it connects by itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from io import FileIO
from itertools import count
from pathlib import Path
from time import monotonic_ns
from types import TracebackType
from typing import Any

from flashprof.contracts.control import Command, CommandReader
from flashprof.contracts.events import (
    Ack,
    Header,
    Mark,
    SpanKind,
    Step,
    encode,
    encode_gauge,
    encode_header,
    encode_step,
    span_prefix,
)
from flashprof.emit_torch import CudaTimer, ShownSpan, Tracer, find_tracer, open_timer

RUN_DIR_VARIABLE = "FLASHPROF_RUN_DIR"
"""Set by the launcher: the run folder, with `events/` and `control/` in it."""
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")

WRITE_EVERY_S = 0.25
"""
Between two training steps the emitter's code has left the caches: formatting and writing take 84 µs, not 5 µs. So short
steps are written together; a process that is killed loses what a quarter of a second held.
"""

CLOSE_TIMEOUT_S = 10.0
"""How long `close()` waits for the device: the launcher's grace before it kills is 20 s."""

WORK = SpanKind.WORK
WAIT = SpanKind.WAIT

_SPAN_FIELDS = 5
_SPAN_LINE = b"%b%d,%d,%d%b"
_ENDED_WELL = b",1]\n"
_FAILED = b",0]\n"


def connect(
    role: str,
    rank: int | None = None,
    *,
    trains: bool = False,
    run_dir: str | os.PathLike[str] | None = None,
    write_every_s: float = WRITE_EVERY_S,
) -> Emitter:
    """
    Open this process's events file, or return an emitter that does nothing.

    Args:
        role: `dispatcher`, `target`, `drafter`, or a foreign trainer's own word.
        rank: Rank within the role; None takes what torchrun, Slurm or Open MPI say, else 0.
        trains: Whether this role's steps are the training steps, whose tokens make tok/s.
        run_dir: The run folder; None takes it from the environment variable `FLASHPROF_RUN_DIR`.
        write_every_s: Steps that end sooner after the last write are written with a later one; 0 writes each.
    """
    folder = run_dir if run_dir is not None else os.environ.get(RUN_DIR_VARIABLE)
    if not folder:
        return Emitter(None, None)
    header = Header(
        role=role,
        rank=_launched_rank() if rank is None else rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        trains=trains,
        wall_ns=time.time_ns(),
        monotonic_ns=monotonic_ns(),
    )
    file = _open_events(Path(folder, "events"), header)
    return Emitter(file, Path(folder, "control"), write_every_s=write_every_s)


def _launched_rank() -> int:
    told = (os.environ.get(name, "") for name in RANK_VARIABLES)
    return next((int(text) for text in told if text.isdecimal()), 0)


class Emitter:
    """One process's end of the events file and of the control channel."""

    def __init__(
        self,
        file: FileIO | None,
        control: Path | None,
        *,
        find_torch: Callable[[], Any] = lambda: sys.modules.get("torch"),
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        write_every_s: float = WRITE_EVERY_S,
    ) -> None:
        self._file = file
        # Re-entrant: a signal handler may record something while its own thread is writing.
        self._lock = threading.RLock()
        self._commands = CommandReader(control)
        self._lanes: list[Lane] = []
        self._close_timeout_s = close_timeout_s
        self._write_every_ns = round(write_every_s * 1e9)
        self._written_ns = 0
        self.find_torch = find_torch
        self.tracer: Tracer | None = None
        self.main = self.lane("main")
        self._main_spans = self.main.spans
        if file is not None:
            os.register_at_fork(after_in_child=self._end)
            # A trainer that never calls `close` still leaves its last quarter of a second.
            atexit.register(self.close)

    @property
    def enabled(self) -> bool:
        """Whether anything is recorded."""
        return self._file is not None

    def lane(self, thread: str) -> Lane:
        """A lane for the calling thread, made once: a lane belongs to one thread. The main lane's steps write it."""
        lane = Lane(self, thread)
        if self.enabled:
            self._lanes.append(lane)
            self.mark("lane", thread=thread, native_id=threading.get_native_id())
        return lane

    def span(
        self, phase: str, kind: SpanKind = WORK, *, device: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """A span in the main lane; see `Lane.span`."""
        # The usual case first: it saves a call, 0.04 µs.
        try:
            return self._main_spans[phase]
        except KeyError:
            return self.main.span(phase, kind, device=device)

    def end_step(
        self, step: int, *, num_tokens: int = 0, num_supervised_tokens: int = 0, num_padding_tokens: int = 0
    ) -> None:
        """End a step of the main lane and write what was buffered in all lanes."""
        self.main.end_step(step, num_tokens, num_supervised_tokens, num_padding_tokens)

    def gauge(self, name: str, step: int, value: float) -> None:
        """Record a value at this moment; written when the step ends."""
        if self.enabled:
            self.main.add(encode_gauge(name, step, monotonic_ns(), value))

    def mark(self, name: str, **detail: Any) -> None:
        """Record that something happened; written at once."""
        if self.enabled:
            self._write(lambda: _to_bytes(encode(Mark(name, monotonic_ns(), detail))))

    def poll_commands(self) -> list[Command]:
        """The control commands that came since the last call. Call it on the coordinator, at a step boundary."""
        return self._commands.poll()

    def acknowledge(self, command: Command, step: int) -> None:
        """Record that *command* is in force from *step* on; written at once."""
        if self.enabled:
            ack = Ack(command.command_id, str(command.name), step, monotonic_ns(), command.detail)
            self._write(lambda: _to_bytes(encode(ack)))

    def write_step(self, now_ns: int) -> None:
        """When it is time, write all lanes; spans that begin from now on are shown to a tracer that is attached."""
        if now_ns - self._written_ns < self._write_every_ns:
            return
        self._written_ns = now_ns
        self._write(self._take)
        tracer = find_tracer(self.find_torch())
        if tracer is not self.tracer:
            self.tracer = tracer
            for lane in self._lanes:
                lane.spans.clear()

    def close(self) -> None:
        """
        Write what is left, and end the recording; safe to call twice.

        Training is over, so it waits for the device, at most `CLOSE_TIMEOUT_S`, and no finished step is lost.
        """
        deadline_ns = monotonic_ns() + round(self._close_timeout_s * 1e9)
        self._write(self._take)
        while any(lane.num_deferred for lane in self._lanes) and self.enabled:
            if monotonic_ns() > deadline_ns:
                _warn(f"the device did not finish within {self._close_timeout_s:g} s: its last steps do not count")
                break
            time.sleep(0.001)
            self._write(self._take)
        self._end()

    def _take(self) -> bytes:
        return b"".join([lane.take() for lane in self._lanes])

    def _write(self, make_data: Callable[[], bytes]) -> None:
        """Append lines, made under the lock; a full disk ends the recording, never the training."""
        # Asked twice: a forked child may have inherited the lock as held for ever, but has no file.
        if not self.enabled:
            return
        with self._lock:
            if self._file is None:
                return
            data = make_data()
            try:
                while data:
                    data = data[self._file.write(data) :]
            except OSError as error:
                _warn(f"events are no longer recorded: {error}")
                self._end()

    def _end(self) -> None:
        """Close the file and record nothing from now on."""
        file, self._file = self._file, None
        atexit.unregister(self.close)
        for lane in self._lanes:
            lane.forget()
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


class Lane:
    """The spans of one thread and of the device stream that it feeds."""

    def __init__(self, emitter: Emitter, thread: str) -> None:
        self._emitter = emitter
        self._thread = thread
        # Flat, so that one `%` formats all spans of a step, and bytes, so that none is encoded: 0.2 µs a span;
        # one `%` a span takes 0.31 µs, an f-string 0.42 µs.
        self._buffer: list[bytes | int] = []
        self._lines: list[str] = []
        self._starts: list[int] = []
        self.spans: dict[str, contextlib.AbstractContextManager[None]] = {}
        self._device: CudaTimer | None = None

    def span(
        self, phase: str, kind: SpanKind = WORK, *, device: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """
        Time a stretch of work or of waiting; it is recorded also when an exception leaves it.

        Args:
            phase: Its name. The kind and device of its first use hold.
            kind: `WORK`, or `WAIT` where the lane stands still for somebody else.
            device: Also time it on the current CUDA stream, as a lane of its own, once the process uses CUDA.
        """
        span = self.spans.get(phase)
        if span is None:
            span = self.spans[phase] = self._make_span(phase, kind, device=device)
        return span

    def end_step(self, step: int, num_tokens: int, num_supervised_tokens: int, num_padding_tokens: int) -> None:
        """End a cycle of this lane's loop: on a device the step counts when the device has finished it."""
        if not self._emitter.enabled:
            return
        now_ns = monotonic_ns()
        fields = (step, now_ns, num_tokens, num_supervised_tokens, num_padding_tokens)
        if self._device is None:
            self._lines.append(encode_step(*fields))
        else:
            self._device.defer_step(Step(*fields))
        self._emitter.write_step(now_ns)

    def add(self, line: str) -> None:
        """Buffer one encoded record."""
        self._lines.append(line)

    def take(self) -> bytes:
        """Remove what is buffered, and return it as lines. Another thread may go on recording meanwhile."""
        fields = tuple(self._buffer)
        del self._buffer[: len(fields)]
        lines = self._lines[:]
        del self._lines[: len(lines)]
        if self._device is not None:
            lines += self._device.resolve()
        return (_SPAN_LINE * (len(fields) // _SPAN_FIELDS)) % fields + _to_bytes(*lines)

    @property
    def num_deferred(self) -> int:
        """Records that wait for the device."""
        return 0 if self._device is None else self._device.num_deferred

    def forget(self) -> None:
        """Record nothing from now on."""
        self.spans.clear()
        self._buffer.clear()
        self._lines.clear()

    def _make_span(self, phase: str, kind: SpanKind, *, device: bool) -> contextlib.AbstractContextManager[None]:
        if not self._emitter.enabled:
            return contextlib.nullcontext()
        torch = self._emitter.find_torch()
        if device and self._device is None:
            self._device = open_timer(torch, self._thread, _warn)
        timer = self._device if device else None
        span = _Span(self, phase, kind) if timer is None else _DeviceSpan(self, phase, kind, timer)
        tracer = self._emitter.tracer
        return span if tracer is None else ShownSpan(span, partial(tracer, torch, phase))


class _Span:
    """
    A reusable, nestable context manager: made once a phase and lane, because making one a call costs 0.15 µs.

    It reaches into its lane: the two are one mechanism, split only so that `with` costs two method calls.
    """

    __slots__ = ("_add", "_pop", "_prefix", "_push", "_starts")

    def __init__(self, lane: Lane, phase: str, kind: SpanKind) -> None:
        self._prefix = span_prefix(phase, kind, lane._thread).encode()  # noqa: SLF001
        self._starts = lane._starts  # noqa: SLF001
        self._push = lane._starts.append  # noqa: SLF001
        self._pop = lane._starts.pop  # noqa: SLF001
        self._add = lane._buffer.extend  # noqa: SLF001

    def __enter__(self) -> None:
        self._push(monotonic_ns())

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tail = _ENDED_WELL if error_type is None else _FAILED
        self._add((self._prefix, self._pop(), monotonic_ns(), len(self._starts), tail))


class _DeviceSpan(_Span):
    """A span that is timed on the device as well."""

    __slots__ = ("_device", "_device_prefix", "_open")

    def __init__(self, lane: Lane, phase: str, kind: SpanKind, device: CudaTimer) -> None:
        super().__init__(lane, phase, kind)
        self._device = device
        self._device_prefix = span_prefix(phase, kind, device.thread)
        self._open: list[Any] = []

    def __enter__(self) -> None:
        super().__enter__()
        self._open.append(self._device.record())

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        depth = len(self._starts) - 1
        self._device.defer_span(self._device_prefix, self._open.pop(), depth=depth, ok=error_type is None)
        super().__exit__(error_type, error, trace)


def _open_events(folder: Path, header: Header) -> FileIO | None:
    """
    A file of this process's own; None where the disk does not allow one.

    Unbuffered: one `write` a step, and nothing in memory that a forked child could write once more.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for start in count(1):
            # A restart, or ranks that all call themselves 0, must not write into each other's lines.
            path = folder / f"{header.role}-{header.rank}{'' if start == 1 else f'.{start}'}.jsonl"
            with contextlib.suppress(FileExistsError):
                file = path.open("xb", buffering=0)
                file.write(_to_bytes(encode_header(header)))
                return file
    except OSError as error:
        _warn(f"events are not recorded: {error}")
    return None


def _to_bytes(*lines: str) -> bytes:
    return "".join([f"{line}\n" for line in lines]).encode()


def _warn(text: str) -> None:
    sys.stderr.write(f"flashprof: {text}\n")
