"""What launches show of a gate's metrics: memory, and what was not recorded; how a pair tells another metric."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from block_examples import some_blocks

from flashprof.app.gate_metrics import (
    GIB,
    GateJudge,
    LaunchFigures,
    log_of_less,
    peak_memory_bytes,
    read_figures,
    refuse_unrecorded,
    worst_reason,
)
from flashprof.contracts.comparison import DecisionRule, Verdict
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.events import EventLog, Gauge, Header
from flashprof.contracts.gate import MEMORY, START_UP, TOK_PER_S, Threshold
from flashprof.stats.margin import MarginRule

MASK = "phase:drafter mask"


def a_log(role: str, **gauges: list[float]) -> EventLog:
    header = Header(role=role, rank=0, host="h", pid=1, trains=role == "drafter", wall_ns=0, monotonic_ns=0)
    told = [Gauge(name, step, step, value) for name, values in gauges.items() for step, value in enumerate(values)]
    return EventLog(header=header, gauges=told)


def test_memory_is_the_sum_of_the_peaks() -> None:
    logs = [a_log("target", memory_allocated_gib=[1.0, 3.0, 2.0]), a_log("drafter", memory_allocated_gib=[0.5, 0.25])]

    assert 3.5 * GIB == peak_memory_bytes(logs)


def test_what_is_allocated_comes_before_what_is_reserved() -> None:
    log = a_log("drafter", memory_reserved_gib=[9.0], memory_allocated_gib=[2.0])

    assert 2 * GIB == peak_memory_bytes([log])
    assert 9 * GIB == peak_memory_bytes([a_log("drafter", memory_reserved_gib=[9.0])])
    assert math.isnan(peak_memory_bytes([a_log("drafter", loss=[1.0])]))


def test_a_phase_that_did_not_run_costs_next_to_nothing() -> None:
    figures = LaunchFigures(phases={"drafter mask": 250.0})

    assert 250.0 == figures.value(MASK)
    assert 1.0 == figures.value("phase:drafter other")
    assert math.isnan(LaunchFigures().value(MASK))


def test_what_is_not_there_is_not_a_number(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"startup_s": null}')

    assert math.isnan(read_figures(tmp_path, [START_UP]).startup_s)
    assert math.isnan(read_figures(tmp_path / "gone", [START_UP]).startup_s)
    assert math.isnan(log_of_less(0.0))
    assert math.isnan(log_of_less(math.nan))


@pytest.mark.parametrize(
    ("metric", "needs"), [(MEMORY, "memory_allocated_gib"), (START_UP, "flashprof.emit"), (MASK, "spans")]
)
def test_a_metric_that_nobody_records_says_what_would(metric: str, needs: str) -> None:
    with pytest.raises(UsageError) as error:
        refuse_unrecorded(metric, [LaunchFigures(), LaunchFigures()])

    assert needs in (error.value.allowed or "")


def test_one_launch_that_records_it_is_enough() -> None:
    refuse_unrecorded(MEMORY, [LaunchFigures(), LaunchFigures(memory_bytes=1.0)])
    refuse_unrecorded(MASK, [LaunchFigures(), LaunchFigures(phases={"drafter mask": 1.0})])
    with pytest.raises(UnknownNameError) as error:
        refuse_unrecorded(MASK, [LaunchFigures(phases={"drafter loss": 1.0})])

    assert ("drafter loss",) == error.value.known


def test_a_judge_of_studies_is_clear_once_the_gate_is(tmp_path: Path) -> None:
    thresholds = [Threshold(metric=TOK_PER_S, max_regression=0.03)]
    judge = GateJudge(tmp_path, thresholds, MarginRule(alpha=0.01, budget_s=1.0))
    slow, open_ = some_blocks([-0.1, -0.101, -0.1, -0.101]), some_blocks([-0.1])

    assert Verdict.REGRESSION is judge(slow, DecisionRule(), 1.0).verdict
    assert Verdict.INCONCLUSIVE is judge(open_, DecisionRule(), 1.0).verdict
    assert (Verdict.INCONCLUSIVE, "nothing was measured") == worst_reason(())
