"""
The span emitter: what a measured process imports. Standard library only, at most 1 µs a span (ADR 1).

    from flashprof import emit
    fp = emit.connect("trainer", trains=True)        # does nothing when FlashProf did not start the process
    with fp.span("forward"): ...
    fp.end_step(step, num_tokens=tokens)

Spans are buffered and written when a step ends. CUDA spans take events from a pool and are resolved at later steps
with `query()`: only `close()`, when training is over, waits for the device. A forked child records nothing until it
connects by itself.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any

from flashprof.contracts.control import Command, CommandReader
from flashprof.contracts.events import Ack, Gauge, Header, Mark, SpanKind, Step, encode, encode_header, span_prefix

if TYPE_CHECKING:
    from flashprof.emit_cuda import CudaTimer

RUN_DIR_VARIABLE = "FLASHPROF_RUN_DIR"
"""Set by the launcher: the run folder, with `events/` and `control/` in it."""

CLOSE_TIMEOUT_S = 10.0
"""How long `close()` waits for the device: longer than any queue of steps, shorter than the launcher's grace of 20 s."""

WORK = SpanKind.WORK
WAIT = SpanKind.WAIT

_SPAN_LINE = "%s%d,%d,%d,%d]\n"
_NVTX_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""One of them is set where Nsight Systems, or another NVTX tool, started the process."""

_Tracer = Callable[[str], Callable[[], object]]
"""Opens a range of that name in a tracer, and returns what closes it."""


def connect(
    role: str, rank: int = 0, *, trains: bool = False, run_dir: str | os.PathLike[str] | None = None
) -> Emitter:
    """
    Open this process's events file, or return an emitter that does nothing.

    Args:
        role: `dispatcher`, `target`, `drafter`, or a foreign trainer's own word.
        rank: Rank within the role.
        trains: Whether this role's steps are the training steps, whose tokens make tok/s.
        run_dir: The run folder; None takes it from the environment variable `FLASHPROF_RUN_DIR`.
    """
    folder = run_dir if run_dir is not None else os.environ.get(RUN_DIR_VARIABLE)
    if not folder:
        return Emitter(None, None)
    header = Header(
        role=role,
        rank=rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        trains=trains,
        wall_ns=time.time_ns(),
        monotonic_ns=monotonic_ns(),
    )
    return Emitter(_open_events(Path(folder, "events"), header), Path(folder, "control"))


class Emitter:
    """One process's end of the events file and of the control channel."""

    def __init__(
        self,
        file: FileIO | None,
        control: Path | None,
        *,
        find_torch: Callable[[], Any] = partial(sys.modules.get, "torch"),
    ) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._commands = CommandReader(control)
        self._lanes: list[Lane] = []
        self.find_torch = find_torch
        self.main = self.lane("main")
        self._main_span = self.main.span
        if file is not None:
            os.register_at_fork(after_in_child=self._forget)

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
        return self._main_span(phase, kind, device=device)

    def end_step(
        self, step: int, *, num_tokens: int = 0, num_supervised_tokens: int = 0, num_padding_tokens: int = 0
    ) -> None:
        """End a step of the main lane and write what was buffered in all lanes."""
        self.main.end_step(step, num_tokens, num_supervised_tokens, num_padding_tokens)

    def gauge(self, name: str, step: int, value: float) -> None:
        """Record a value at this moment; written when the step ends."""
        if self.enabled:
            self.main.add(encode(Gauge(name, step, monotonic_ns(), value)))

    def mark(self, name: str, **detail: Any) -> None:
        """Record that something happened; written at once."""
        if self.enabled:
            self._write(lambda: encode(Mark(name, monotonic_ns(), detail)) + "\n")

    def poll_commands(self) -> list[Command]:
        """The control commands that came since the last call. Call it on the coordinator, at a step boundary."""
        return self._commands.poll()

    def acknowledge(self, command: Command, step: int) -> None:
        """Record that *command* is in force from *step* on; written at once."""
        if self.enabled:
            ack = Ack(command.command_id, str(command.name), step, monotonic_ns(), command.detail)
            self._write(lambda: encode(ack) + "\n")

    def write_step(self) -> None:
        """Write what is buffered in all lanes; spans that begin from now on are shown to a tracer that is attached."""
        self._write(self._take)
        tracer = _find_tracer(self.find_torch())
        for lane in self._lanes:
            lane.show_to(tracer)

    def close(self) -> None:
        """
        Write what is left, and end the recording; safe to call twice.

        Training is over, so it waits for the device, at most `CLOSE_TIMEOUT_S`, and no finished step is lost.
        """
        deadline_ns = monotonic_ns() + round(CLOSE_TIMEOUT_S * 1e9)
        self._write(self._take)
        while any(lane.num_deferred for lane in self._lanes) and self.enabled:
            if monotonic_ns() > deadline_ns:
                _warn(f"the device did not finish within {CLOSE_TIMEOUT_S:g} s: its last steps do not count")
                break
            time.sleep(0.001)
            self._write(self._take)
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
            self._forget()

    def _take(self) -> str:
        return "".join([lane.take() for lane in self._lanes])

    def _write(self, text: Callable[[], str]) -> None:
        """Append lines, made under the lock; a full disk ends the recording, never the training."""
        with self._lock:
            if self._file is None:
                return
            rest = memoryview(text().encode())
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                _warn(f"events are no longer recorded: {error}")
                self._forget()

    def _forget(self) -> None:
        self._file = None
        for lane in self._lanes:
            lane.forget()


class Lane:
    """The spans of one thread and of the device stream that it feeds."""

    def __init__(self, emitter: Emitter, thread: str) -> None:
        self._emitter = emitter
        self._thread = thread
        # Flat, five fields a span: one `%` over all takes 0.24 µs a span, one a span 0.31 µs, an f-string 0.42 µs.
        self._buffer: list[str | int] = []
        self._lines: list[str] = []
        self._starts: list[int] = []
        self._spans: dict[str, contextlib.AbstractContextManager[None]] = {}
        self._device: CudaTimer | None = None
        self._ranges = _Ranges()
        self._shown: list[_Ranges] = []

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
        span = self._spans.get(phase)
        if span is None:
            span = self._spans[phase] = self._make_span(phase, kind, device=device)
        return span

    def end_step(self, step: int, num_tokens: int, num_supervised_tokens: int, num_padding_tokens: int) -> None:
        """End a cycle of this lane's loop: on a device the step counts when the device has finished it."""
        if not self._emitter.enabled:
            return
        record = Step(step, monotonic_ns(), num_tokens, num_supervised_tokens, num_padding_tokens)
        if self._device is None:
            self._lines.append(encode(record))
        else:
            self._device.defer_step(record)
        self._emitter.write_step()

    def add(self, line: str) -> None:
        """Buffer one encoded record."""
        self._lines.append(line)

    def take(self) -> str:
        """Remove what is buffered, and return it as lines. Another thread may go on recording meanwhile."""
        fields = self._buffer[:]
        del self._buffer[: len(fields)]
        lines = self._lines[:]
        del self._lines[: len(lines)]
        if self._device is not None:
            lines += self._device.resolve()
        return (_SPAN_LINE * (len(fields) // 5)) % tuple(fields) + "".join([f"{line}\n" for line in lines])

    @property
    def num_deferred(self) -> int:
        """Records that wait for the device."""
        return 0 if self._device is None else self._device.num_deferred

    def show_to(self, tracer: _Tracer | None) -> None:
        """Open a range in *tracer* for each span from now on. Ranges that are open are closed where they were opened."""
        self._ranges.tracer = tracer
        self._shown[:] = [self._ranges] if tracer is not None or self._ranges.is_open else []

    def forget(self) -> None:
        """Record nothing from now on."""
        self._spans.clear()
        self._buffer.clear()
        self._lines.clear()

    def _make_span(self, phase: str, kind: SpanKind, *, device: bool) -> contextlib.AbstractContextManager[None]:
        if not self._emitter.enabled:
            return contextlib.nullcontext()
        if device and self._device is None:
            self._device = _open_device(self._emitter.find_torch(), self._thread)
        if device and self._device is not None:
            return _DeviceSpan(self, phase, kind, self._device)
        return _Span(self, phase, kind)


class _Span:
    """
    A reusable, nestable context manager: made once a phase and lane, because making one a call costs 0.15 µs.

    It reaches into its lane: the two are one mechanism, split only so that `with` costs two method calls.
    """

    __slots__ = ("_add", "_phase", "_pop", "_prefix", "_push", "_shown", "_starts")

    def __init__(self, lane: Lane, phase: str, kind: SpanKind) -> None:
        self._shown = lane._shown  # noqa: SLF001
        self._phase = phase
        self._prefix = span_prefix(phase, kind, lane._thread)  # noqa: SLF001
        self._starts = lane._starts  # noqa: SLF001
        self._push = lane._starts.append  # noqa: SLF001
        self._pop = lane._starts.pop  # noqa: SLF001
        self._add = lane._buffer.extend  # noqa: SLF001

    def __enter__(self) -> None:
        if self._shown:
            self._shown[0].push(self._phase, len(self._starts))
        self._push(monotonic_ns())

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_ns = monotonic_ns()
        start_ns = self._pop()
        self._add((self._prefix, start_ns, end_ns, len(self._starts), error_type is None))
        if self._shown:
            self._shown[0].pop(len(self._starts))


class _DeviceSpan(_Span):
    """A span that is timed on the device as well."""

    __slots__ = ("_device", "_device_prefix", "_open")

    def __init__(self, lane: Lane, phase: str, kind: SpanKind, device: CudaTimer) -> None:
        super().__init__(lane, phase, kind)
        self._device = device
        self._device_prefix = span_prefix(phase, WORK, device.thread)
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


class _Ranges:
    """One lane's spans shown to a tracer that is attached: NVTX for Nsight, `record_function` for torch.profiler."""

    def __init__(self) -> None:
        self.tracer: _Tracer | None = None
        self._open: list[tuple[int, Callable[[], object]]] = []

    @property
    def is_open(self) -> bool:
        """Whether a range waits for its end."""
        return bool(self._open)

    def push(self, phase: str, depth: int) -> None:
        """Open a range for the span at *depth*."""
        if self.tracer is not None:
            self._open.append((depth, self.tracer(phase)))

    def pop(self, depth: int) -> None:
        """Close the range of the span at *depth*: a tracer that came or went inside it has none, or its end only."""
        if self._open and self._open[-1][0] == depth:
            self._open.pop()[1]()


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
                file.write(f"{encode_header(header)}\n".encode())
                return file
    except OSError as error:
        _warn(f"events are not recorded: {error}")
    return None


def _open_device(torch: Any, thread: str) -> CudaTimer | None:
    if not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    from flashprof.emit_cuda import CudaTimer

    try:
        return CudaTimer(torch, thread, warn=_warn)
    except RuntimeError as error:
        _warn(f"device time is not recorded: {error}")
        return None


def _find_tracer(torch: Any) -> _Tracer | None:
    if not hasattr(torch, "autograd"):
        return None
    if torch.autograd._profiler_enabled():  # noqa: SLF001
        return partial(_open_record_function, torch)
    if torch.cuda.is_initialized() and any(name in os.environ for name in _NVTX_VARIABLES):
        return partial(_open_nvtx_range, torch)
    return None


def _open_record_function(torch: Any, phase: str) -> Callable[[], object]:
    handle = torch.profiler.record_function(phase)
    handle.__enter__()
    return partial(handle.__exit__, None, None, None)


def _open_nvtx_range(torch: Any, phase: str) -> Callable[[], object]:
    torch.cuda.nvtx.range_push(phase)
    pop: Callable[[], object] = torch.cuda.nvtx.range_pop
    return pop


def _warn(text: str) -> None:
    sys.stderr.write(f"flashprof: {text}\n")
