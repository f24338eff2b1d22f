"""Impossible numbers are found and named; possible ones are left alone."""

from __future__ import annotations

import math

import pytest

from flashprof.contracts.events import EventLog, Gauge, Header
from flashprof.stats.sanity import check_numbers, loss_trend


def make_log(rank: int = 0, **values: list[float]) -> EventLog:
    header = Header(role="drafter", rank=rank, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    log = EventLog(header=header)
    for name, series in values.items():
        log.gauges += [Gauge(name, step, step, value) for step, value in enumerate(series)]
    return log


def test_healthy_numbers_are_left_alone() -> None:
    losses = [3 - 0.01 * step for step in range(100)]

    assert check_numbers([make_log(loss=losses, acc=[0.0, 0.5, 1.0], grad_norm=[0.1, 1e-8], queue=[math.nan])]) is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("loss", math.nan, "loss is nan at step 2 of drafter 3"),
        ("loss", math.inf, "loss is inf at step 2 of drafter 3"),
        ("grad_norm", -math.inf, "grad_norm is -inf at step 2 of drafter 3"),
        ("grad_norm", 0.0, "grad_norm is 0 at step 2 of drafter 3"),
        ("acc", 1.5, "acc is 1.5 at step 2 of drafter 3"),
        ("acc", -0.1, "acc is -0.1 at step 2 of drafter 3"),
        ("acc", math.nan, "acc is nan at step 2 of drafter 3"),
    ],
)
def test_an_impossible_value_is_named_with_step_and_rank(name: str, value: float, said: str) -> None:
    reason = check_numbers([make_log(0, loss=[1.0, 0.9]), make_log(3, **{name: [0.5, 0.4, value, value]})])

    assert reason is not None
    assert reason.startswith(said)


def test_twenty_equal_losses_are_wrong_and_nineteen_are_not() -> None:
    falling = [3.0, 2.0, 1.0]

    reason = check_numbers([make_log(loss=[*falling, *[0.5] * 20])])

    assert reason is not None
    assert "from step 3 to step 22 of drafter 0" in reason
    assert check_numbers([make_log(loss=[*falling, *[0.5] * 19, 0.4])]) is None


def test_the_trend_compares_the_first_and_the_last_tenth_over_ranks() -> None:
    logs = [make_log(rank, loss=[10.0 - step / 10 + rank for step in range(100)]) for rank in range(2)]

    # Steps 0–9 average 9.55, steps 90–99 average 0.55; ranks average to 0.5 more.
    assert loss_trend(logs) == (pytest.approx(10.05), pytest.approx(1.05))


def test_a_trend_needs_two_finite_losses() -> None:
    assert loss_trend([make_log(loss=[1.0, math.nan])]) is None
    assert loss_trend([make_log(loss=[2.0, 1.0])]) == (2.0, 1.0)
