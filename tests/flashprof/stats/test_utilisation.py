"""Model FLOP utilisation: operations of the steps in the windows, at the lane's pace, over the device's peak."""

from __future__ import annotations

import pytest

from flashprof.contracts.events import MODEL_TFLOP, EventLog, Gauge, Header, Mark, Span, SpanKind, Step
from flashprof.contracts.results import RankUse, Window, WindowKind
from flashprof.stats.utilisation import rank_uses
from flashprof.windows.phases import lane_rows

STEP_NS = 100_000_000
NUM_STEPS = 20
NUM_TOKENS = 50
TFLOP = 40.0


def make_log(role: str, *, device_name: str = "NVIDIA H200", tflop: float | None = TFLOP) -> EventLog:
    """Steps of 0.1 s, half of them waiting; a step of another size stands outside of the windows."""
    log = EventLog(
        header=Header(role=role, rank=0, host="h", pid=1, trains=role == "drafter", wall_ns=0, monotonic_ns=0)
    )
    for step in range(NUM_STEPS):
        start_ns, end_ns = step * STEP_NS, (step + 1) * STEP_NS
        log.spans.append(Span("wait", SpanKind.WAIT, "main", start_ns, start_ns + STEP_NS // 2, 0, True))
        log.spans.append(Span("work", SpanKind.WORK, "main", start_ns + STEP_NS // 2, end_ns, 0, True))
        log.steps.append(Step(step, end_ns, NUM_TOKENS, NUM_TOKENS, 0))
        if tflop is not None:
            log.gauges.append(Gauge(MODEL_TFLOP, step, end_ns - 1000, tflop if step > 2 else 1e6))
    if device_name:
        log.marks.append(Mark("ready", 0, {"device": "cuda:0", "device_name": device_name}))
    return log


def measured(*logs: EventLog) -> tuple[RankUse, ...]:
    window = Window(
        label="m",
        kind=WindowKind.MEASURE,
        start_ns=5 * STEP_NS,
        end_ns=15 * STEP_NS,
        num_steps=10,
        num_tokens=500,
        num_supervised_tokens=500,
        num_padding_tokens=0,
    )
    return rank_uses(logs, [window], lane_rows(logs, [window]))


def test_waiting_is_part_of_the_time() -> None:
    (use,) = measured(make_log("drafter"))

    assert pytest.approx(TFLOP / 0.1) == use.tflop_per_s
    assert use.mfu == pytest.approx(TFLOP / 0.1 / 989.5)


def test_each_process_has_its_own_and_one_without_the_gauge_has_none() -> None:
    uses = measured(make_log("drafter"), make_log("target", tflop=10.0), make_log("dispatcher", tflop=None))

    assert [("target", pytest.approx(100.0)), ("drafter", pytest.approx(400.0))] == [
        (use.role, use.tflop_per_s) for use in uses
    ]


def test_a_device_that_is_not_known_has_no_share() -> None:
    (unnamed,) = measured(make_log("drafter", device_name=""))
    (unknown,) = measured(make_log("drafter", device_name="Made-up 7"))

    assert ("", None) == (unnamed.device_name, unnamed.mfu)
    assert ("Made-up 7", None) == (unknown.device_name, unknown.mfu)
