"""The sentences: who limits, who waits, what sampling cost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from run_summaries import crashed, foreign, healthy, interval, lane, lane_row, phase, use

from flashprof.contracts.outcome import Outcome
from flashprof.report import figures, sentences


def test_the_limiting_lane_is_named_with_its_biggest_work_and_who_waits() -> None:
    said = sentences.limiting(healthy())

    assert said == "drafter 0 limits: 41 % of its time is `mask`; it never waits, target 0 waits 65 %"


def test_a_waiting_phase_is_never_the_biggest_work() -> None:
    assert "`forward`; it waits 31 %" in sentences.limiting(crashed())


def test_of_several_partners_the_idlest_is_named() -> None:
    idle = replace(lane_row(lane("target", 1), 0.1, 0.89), num_tokens=5)

    said = sentences.limiting(replace(healthy(), lanes=(*healthy().lanes, idle)))

    assert said.endswith("target 1 waits 89 %")


def test_without_capacity_nothing_is_said_to_limit() -> None:
    assert sentences.limiting(foreign()) == ""


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.01, 0.03, "within noise"), (0.01, 0.03, "more than noise"), (-0.03, -0.01, "more than noise")],
)
def test_sampling_cost_is_noise_where_its_interval_holds_zero(low: float, high: float, verdict: str) -> None:
    summary = replace(healthy(), sampling_cost=interval((low + high) / 2, low, high))

    assert sentences.sampling_cost(summary).endswith(verdict)


def test_contention_and_uncovered_time_are_warned_about() -> None:
    assert sentences.warnings(healthy()) == ("contention: target 0 (15 %) waited for a core 10 % of the time or more",)
    assert sentences.warnings(crashed()) == ("phases account for only 81 % of drafter 0's time",)


def test_a_failed_run_says_what_was_kept() -> None:
    failed = replace(crashed(), windows=(), outcome=Outcome.HUNG, reason="")

    assert sentences.outcome(failed) == ("hung", "kept: no window; not to be compared with other runs")
    assert sentences.outcome(healthy()) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (figures.rate(4_121.3), "4,121"),
        (figures.rate(3.27), "3.3"),
        (figures.rate(float("inf")), "–"),
        (figures.percent(0.412), "41 %"),
        (figures.percent(0.0123), "1.2 %"),
        (figures.percent(-0.0123), "−1.2 %"),
        (figures.percent(-0.0001), "0.0 %"),
        (figures.milliseconds(412e6), "412"),
        (figures.milliseconds(41.2e6), "41.2"),
        (figures.milliseconds(0.412e6), "0.41"),
        (figures.seconds(1_234.56), "1,234.6 s"),
        (figures.loss(float("nan")), "–"),
    ],
)
def test_figures_are_written_with_about_three_digits(text: str, expected: str) -> None:
    assert expected == text


def test_a_nearly_balanced_pipeline_is_not_called_limited_without_a_but() -> None:
    lanes = (
        lane_row(lane("target"), work=0.99, wait=0.01, capacity=4_300.0),
        lane_row(lane("drafter"), work=1.0, wait=0.0, capacity=4_140.0, limiting=True),
    )

    said = sentences.limiting(replace(healthy(), lanes=lanes))

    assert "drafter 0 limits, but only just (target could do 4,300 tok/s, it 4,140): " in said
    assert "only just" not in sentences.limiting(healthy())


def test_a_sampling_cost_between_anything_and_anything_is_called_unknown() -> None:
    summary = replace(healthy(), sampling_cost=interval(-0.07, -0.98, 0.42))

    assert sentences.sampling_cost(summary).endswith("not known, the windows differ too much")


def test_a_phase_without_steps_has_dashes_but_its_share() -> None:
    phase = healthy().phases[0]
    cells = sentences.phase_cells(phase)

    assert figures.DASH not in cells
    assert (figures.DASH, figures.DASH, figures.DASH, cells[3]) == sentences.phase_cells(replace(phase, num_steps=0))


def test_the_shares_of_a_lane_are_of_its_time_and_no_rest_is_negative() -> None:
    row = lane_row(lane("target"), 0.25, 0.5)

    assert sentences.lane_shares(row) == pytest.approx((0.25, 0.5, 0.25))
    assert sentences.lane_shares(replace(row, wait_ns=row.wall_ns))[2] == 0.0
    assert all(map(math.isnan, sentences.lane_shares(replace(row, wall_ns=0))))


def test_a_lane_without_tokens_has_no_rates() -> None:
    row = replace(lane_row(lane("target"), 0.1, 0.8), num_tokens=5)

    assert (figures.rate(row.tok_per_s), figures.rate(row.capacity_tok_per_s)) == sentences.lane_rates(row)
    assert [(figures.DASH, figures.DASH)] * 2 == [sentences.lane_rates(of) for of in (replace(row, num_tokens=0), None)]


def test_what_a_device_is_used_for_is_a_share_of_its_peak() -> None:
    said = sentences.utilisation(healthy())

    assert said == "MFU target 0 41 %, drafter 0 32 % of 989.5 TFLOP/s, NVIDIA H200 (dense bfloat16; PaLM, appendix B)"


def test_without_a_known_peak_there_is_no_share_and_without_a_device_nothing() -> None:
    unknown = use("drafter", 0.318, device="Made-up 7", peak=None)
    on_cores = use("drafter", 0.02, device="", peak=None)

    said = sentences.utilisation(replace(healthy(), uses=(unknown,)))

    assert said == "model TFLOP/s drafter 0 0.32; no MFU: the peak of Made-up 7 is not known"
    assert sentences.utilisation(replace(healthy(), uses=(on_cores,))) == ""
    assert sentences.utilisation(replace(healthy(), uses=())) == ""


@pytest.mark.parametrize(
    ("busy", "said"),
    [
        (0.98, ": its GPU is busy 98 % of the time, 52 % with `backward`; "),
        (0.6, ": 41 % of its time is `mask`; "),
    ],
)
def test_of_a_busy_gpu_the_hosts_phases_are_not_blamed(busy: float, said: str) -> None:
    stream, other = lane("drafter", thread="main:cuda0"), lane("target", thread="main:cuda1")
    summary = replace(
        healthy(),
        lanes=(*healthy().lanes, lane_row(stream, busy, 0.0, num_tokens=0), lane_row(other, 0.99, 0.0, num_tokens=0)),
        phases=(*healthy().phases, phase(stream, "backward", 0.52), phase(stream, "forward", 0.2)),
    )

    assert said in sentences.limiting(summary)


@pytest.mark.parametrize(("busy", "said"), [(0.95, "waits 23 % (its GPU is busy 95 %)"), (0.6, "waits 23 %")])
def test_a_host_that_waits_while_its_gpu_works_is_not_called_idle(busy: float, said: str) -> None:
    partner = next(row for row in healthy().lanes if row.lane.role == "target" and row.lane.thread == "main")
    stream = lane_row(lane("target", thread="main:cuda1"), busy, 0.0, num_tokens=0)
    rows = [
        replace(row, work_ns=77 * row.wall_ns // 100, wait_ns=23 * row.wall_ns // 100) if row == partner else row
        for row in healthy().lanes
    ]

    told = sentences.limiting(replace(healthy(), lanes=(*rows, stream)))

    assert told.endswith(said) or f"{said}, " in told
