"""Device time: read late, never waited for, in host time, in order, and lost without harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.events import (
    EventLog,
    Header,
    Span,
    SpanKind,
    Step,
    decode,
    decode_record,
    encode_header,
    span_prefix,
)
from flashprof.emit import Emitter
from flashprof.emit_torch import CudaTimer

MS_NS = 1_000_000
LANE = "main:cuda0"
PREFIX = span_prefix("forward", SpanKind.WORK, LANE)
HEADER = Header(role="drafter", rank=0, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)


class FakeDevice:
    """One in-order stream and the host's clock beside it. Whoever synchronises fails."""

    def __init__(self, stalls_ms: Sequence[float] = ()) -> None:
        self.stalls_ms = list(stalls_ms)
        self.host_ns = 1_000 * MS_NS
        self.drift = 1.0
        self.num_events = 0
        self.error: str | None = None
        self.ms_per_look = 0.0
        self._end_ns = self.host_ns
        self.torch = SimpleNamespace(
            cuda=SimpleNamespace(
                Event=self._make_event, current_device=lambda: 0, is_initialized=lambda: True, is_available=lambda: True
            )
        )

    def work(self, milliseconds: float) -> None:
        """Queue a kernel."""
        self._end_ns = max(self._end_ns, self.host_ns) + round(milliseconds * MS_NS)

    def pass_time(self, milliseconds: float) -> None:
        """Let the host's clock, and with it the device, go on."""
        self.host_ns += round(milliseconds * MS_NS)

    def finish(self) -> None:
        """Let time pass until the stream is empty."""
        self.host_ns = max(self.host_ns, self._end_ns)

    def record(self) -> int:
        """Queue an event; returns the host time at which the device passes it."""
        self.check()
        return max(self._end_ns, self.host_ns)

    def check(self) -> None:
        """Let time pass, and fail as torch does once the device has failed."""
        self.pass_time(self.stalls_ms.pop(0) if self.stalls_ms else self.ms_per_look)
        if self.error is not None:
            raise RuntimeError(self.error)

    def _make_event(self, *, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        self.num_events += 1
        return FakeEvent(self)


class FakeEvent:
    """Has what the emitter may use of `torch.cuda.Event`, and no `synchronize`."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._at_ns = 0

    def record(self) -> None:
        self._at_ns = self._device.record()

    def query(self) -> bool:
        self._device.check()
        return self._device.host_ns >= self._at_ns

    def elapsed_time(self, other: FakeEvent) -> float:
        assert self.query(), "a reference that the device has not passed"
        assert other.query(), "read before the device passed it"
        return self._device.drift * (other._at_ns - self._at_ns) / MS_NS


class Rig:
    """A timer on a fake device, with what it said."""

    def __init__(self, stalls_ms: Sequence[float] = ()) -> None:
        """Others take the core for so long at the first looks at events."""
        self.device = FakeDevice(stalls_ms)
        self.warnings: list[str] = []
        self.timer = CudaTimer(self.device.torch, "main", warn=self.warnings.append, clock=lambda: self.device.host_ns)

    def span(self, milliseconds: float, prefix: str = PREFIX) -> None:
        start = self.timer.record()
        self.device.work(milliseconds)
        self.timer.defer_span(prefix, start, depth=0, ok=True)

    def end_step(self, step: int) -> None:
        self.timer.defer_step(Step(step, self.device.host_ns, 10, 5, 1))

    def resolve(self) -> list[Any]:
        return [decode_record(line) for line in self.timer.resolve()]


def test_a_span_and_its_step_are_in_host_time_once_the_device_finished() -> None:
    rig = Rig()
    begin_ns = rig.device.host_ns
    rig.span(30)
    rig.end_step(4)
    rig.device.pass_time(29)
    early = rig.resolve()
    rig.device.pass_time(2)
    late = rig.resolve()

    assert early == []
    assert [
        Span("forward", SpanKind.WORK, LANE, begin_ns, begin_ns + 30 * MS_NS, 0, True),
        Step(4, begin_ns + 30 * MS_NS, 10, 5, 1),
    ] == late


def test_the_clocks_are_tied_anew_where_the_host_stood_still_in_between() -> None:
    rig = Rig(stalls_ms=[0.0, 40.0, 0.0, 40.0])
    begin_ns = rig.device.host_ns
    rig.span(30)
    rig.device.finish()

    assert [begin_ns] == [span.start_ns for span in rig.resolve()]


@given(
    spans_ms=st.lists(st.floats(0, 50), min_size=1, max_size=30),
    pauses_ms=st.lists(st.floats(0, 80), min_size=30, max_size=30),
)
def test_records_come_in_order_once_each_and_never_early(spans_ms: list[float], pauses_ms: list[float]) -> None:
    rig = Rig()
    seen: list[Any] = []
    for number, (length_ms, pause_ms) in enumerate(zip(spans_ms, pauses_ms, strict=False)):
        rig.span(length_ms, span_prefix(str(number), SpanKind.WORK, LANE))
        rig.end_step(number)
        rig.device.pass_time(pause_ms)
        now = rig.resolve()
        assert all(record.end_ns <= rig.device.host_ns + 2 for record in now)
        seen += now
    rig.device.finish()
    seen += rig.resolve()
    spans, steps = seen[::2], seen[1::2]

    assert [str(number) for number in range(len(spans_ms))] == [span.phase for span in spans]
    assert list(range(len(spans_ms))) == [step.step for step in steps]
    assert [pytest.approx(length_ms * MS_NS, abs=2) for length_ms in spans_ms] == [
        span.end_ns - span.start_ns for span in spans
    ]
    assert all(span.end_ns <= step.end_ns + 2 for span, step in zip(spans, steps, strict=True))
    assert rig.timer.num_deferred == 0


def test_events_are_used_again() -> None:
    rig = Rig()
    for step in range(100):
        rig.span(5)
        rig.end_step(step)
        rig.device.finish()
        rig.resolve()

    # Two of a span, one of a step, one as the reference.
    assert rig.device.num_events == 4


def test_a_span_across_a_step_boundary_keeps_its_start() -> None:
    rig = Rig()
    begin_ns = rig.device.host_ns
    outer = rig.timer.record()
    rig.device.work(10)
    rig.end_step(0)
    rig.device.finish()
    rig.resolve()
    rig.device.work(10)
    rig.timer.defer_span(PREFIX, outer, depth=0, ok=False)
    rig.device.finish()

    assert [Span("forward", SpanKind.WORK, LANE, begin_ns, begin_ns + 20 * MS_NS, 0, False)] == rig.resolve()


@pytest.mark.parametrize("drift", [0.99, 1.01])
def test_a_device_clock_that_drifts_stays_with_the_hosts(drift: float) -> None:
    rig = Rig()
    rig.device.drift = drift
    for step in range(1_000):
        rig.span(10)
        rig.end_step(step)
        rig.device.finish()
        (_, last) = rig.resolve()

    # Unbounded, 1 % of these 10 s would be 100 ms; a step is queued 10 ms before the device has finished it.
    assert last.end_ns == pytest.approx(rig.device.host_ns, abs=10.2 * MS_NS)


def test_a_cuda_error_ends_the_timing_and_keeps_the_steps() -> None:
    rig = Rig()
    rig.span(10)
    rig.end_step(0)
    rig.device.error = "CUDA error: device-side assert triggered"
    rig.span(10)
    rig.end_step(1)
    kept = rig.resolve()
    rig.end_step(2)
    kept += rig.resolve()

    assert [0, 1, 2] == [step.step for step in kept]
    assert rig.warnings == ["device time is no longer recorded: CUDA error: device-side assert triggered"]


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def read(tmp_path: Path) -> Callable[[], EventLog]:
    def read_events() -> EventLog:
        lines = (tmp_path / "events.jsonl").read_text().splitlines()
        return decode([encode_header(HEADER), *lines], where="events")

    return read_events


@pytest.fixture
def make_emitter(tmp_path: Path, device: FakeDevice) -> Callable[..., Emitter]:
    def make(**options: Any) -> Emitter:
        file = FileIO(tmp_path / "events.jsonl", "x")
        return Emitter(file, None, find_torch=lambda: device.torch, write_every_s=0, **options)

    return make


Make = Callable[..., Emitter]
Read = Callable[[], EventLog]


def test_a_step_counts_when_the_device_finished_it(make_emitter: Make, read: Read, device: FakeDevice) -> None:
    emitter = make_emitter()
    with emitter.span("load"), emitter.span("forward", device=True):
        device.work(30)
    emitter.end_step(0, num_tokens=10)
    queued = read()
    device.finish()
    emitter.end_step(1, num_tokens=10)
    finished = read()
    emitter.close()

    assert [("forward", "main", 1), ("load", "main", 0)] == [(s.phase, s.thread, s.depth) for s in queued.spans]
    assert queued.steps == []
    assert ("forward", LANE, 1) in [(s.phase, s.thread, s.depth) for s in finished.spans]
    assert [0, 1] == [step.step for step in finished.steps]


def test_waiting_on_the_device_is_waiting_in_its_lane_too(make_emitter: Make, read: Read, device: FakeDevice) -> None:
    emitter = make_emitter()
    with emitter.span("grad_sync", SpanKind.WAIT, device=True):
        device.work(30)
    emitter.end_step(0)
    device.finish()
    emitter.close()

    assert {("main", SpanKind.WAIT), (LANE, SpanKind.WAIT)} == {(span.thread, span.kind) for span in read().spans}


def test_close_waits_for_the_steps_that_the_device_still_has(
    make_emitter: Make, read: Read, device: FakeDevice
) -> None:
    emitter = make_emitter()
    with emitter.span("forward", device=True):
        device.work(30)
    emitter.end_step(0, num_tokens=10)
    emitter.mark("end", num_tokens=10, num_steps=1)
    device.ms_per_look = 1
    emitter.close()
    log = read()

    assert [10] == [step.num_tokens for step in log.steps]
    assert [10] == [mark.detail["num_tokens"] for mark in log.marks if mark.name == "end"]


def test_close_gives_up_on_a_device_that_hangs(
    make_emitter: Make, read: Read, device: FakeDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    emitter = make_emitter(close_timeout_s=0.02)
    with emitter.span("forward", device=True):
        device.work(1e9)
    emitter.end_step(0, num_tokens=10)
    emitter.close()

    assert read().steps == []
    assert "the device did not finish within 0.02 s" in capsys.readouterr().err


def test_a_cuda_error_in_a_span_is_the_trainers_and_its_span_is_closed(
    make_emitter: Make, read: Read, device: FakeDevice
) -> None:
    emitter = make_emitter()

    def train() -> None:
        with emitter.span("forward", device=True):
            device.error = "device-side assert"
            raise RuntimeError("the trainer's own")

    with pytest.raises(RuntimeError, match="the trainer's own"):
        train()
    emitter.end_step(0)
    emitter.close()
    log = read()

    assert [("forward", "main", 0, False)] == [(s.phase, s.thread, s.depth, s.ok) for s in log.spans]
    assert [0] == [step.step for step in log.steps]


def test_a_process_without_cuda_has_host_spans_only(make_emitter: Make, read: Read, device: FakeDevice) -> None:
    device.torch.cuda.is_initialized = lambda: False
    emitter = make_emitter()
    with emitter.span("forward", device=True):
        pass
    emitter.end_step(0)
    emitter.close()

    assert ["main"] == [span.thread for span in read().spans]
    assert device.num_events == 0
    assert len(read().steps) == 1


def test_cuda_that_is_used_only_later_is_timed_from_then_on(make_emitter: Make, read: Read, device: FakeDevice) -> None:
    device.torch.cuda.is_initialized = lambda: False
    emitter = make_emitter()
    emitter.end_step(0)
    device.torch.cuda.is_initialized = lambda: True
    with emitter.span("forward", device=True):
        device.work(1)
    device.finish()
    emitter.end_step(1)
    emitter.close()

    assert ["main", LANE] == [span.thread for span in read().spans]
    assert [0, 1] == [step.step for step in read().steps]


class FakeNvtx:
    """Counts what is open, as Nsight would draw it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def range_push(self, name: str) -> None:
        self.calls.append(f"+{name}")

    def range_pop(self) -> None:
        self.calls.append("-")


def test_nvtx_ranges_are_balanced_even_around_a_step(
    make_emitter: Make, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvtx = FakeNvtx()
    device.torch.cuda.nvtx = nvtx
    device.torch.autograd = SimpleNamespace(_profiler_enabled=lambda: False)
    emitter = make_emitter()
    emitter.end_step(0)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/opt/nsys")
    emitter.end_step(1)
    with emitter.span("outer"):
        with emitter.span("inner"):
            pass
        monkeypatch.delenv("NVTX_INJECTION64_PATH")
        emitter.end_step(2)
        with emitter.span("unseen"):
            pass
    emitter.close()

    assert ["+outer", "+inner", "-", "-"] == nvtx.calls
