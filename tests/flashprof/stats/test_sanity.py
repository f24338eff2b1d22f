"""Impossible numbers are found and named; possible ones are left alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.events import EventLog, Gauge, Header
from flashprof.stats.sanity import STAMP_MODULO, check_numbers, loss_trend

FALLING = [3.0, 2.0, 1.0]


def make_log(rank: int = 0, first_step: int = 0, **values: list[float]) -> EventLog:
    header = Header(role="drafter", rank=rank, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    log = EventLog(header=header)
    for name, series in values.items():
        log.gauges += [Gauge(name, step, step, value) for step, value in enumerate(series, first_step)]
    return log


def stamped(steps: list[float], first_step: int = 0) -> EventLog:
    return make_log(first_step=first_step, metrics_stamp=steps)


def test_healthy_numbers_are_left_alone() -> None:
    losses = [3 - 0.01 * step for step in range(100)]

    assert check_numbers([make_log(loss=losses, acc=[0.0, 0.5, 1.0], grad_norm=[0.1, 1e-8], queue=[math.nan])]) is None


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e6, width=32),
            st.floats(0, 1, width=32),
            st.floats(0, 1e6, width=32, exclude_min=True),
            st.booleans(),
        ),
        max_size=60,
    ),
    st.integers(0, 3 * STAMP_MODULO),
    st.integers(1, 3),
)
def test_no_healthy_run_fails(steps: list[tuple[float, float, float, bool]], first_step: int, num_ranks: int) -> None:
    """Whatever the losses do, late readings included; only a constant loss is not healthy, so each gets its own ulp."""
    log = make_log(first_step=first_step)
    for step, (loss, acc, grad_norm, skipped) in enumerate(steps, first_step):
        if not skipped:
            for name, value in (
                ("metrics_stamp", step % STAMP_MODULO),
                ("hidden_mismatch", 0.0),
                ("loss", loss + step * 1e-3),
                ("acc", acc),
                ("grad_norm", grad_norm),
            ):
                log.gauges.append(Gauge(name, step, 0, value))
        log.gauges += [Gauge("lr", step, 0, 0.0), Gauge("padding_share", step, 0, 0.0)]

    assert check_numbers([log] * num_ranks) is None


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


@pytest.mark.parametrize(
    ("first_step", "stamp", "origin"),
    [
        (42, 41.0, "of step 42 were made in step 41"),
        (42, 0.0, "of step 42 were made in step 0"),
        (STAMP_MODULO + 1, STAMP_MODULO - 1.0, f"of step {STAMP_MODULO + 1} were made in step {STAMP_MODULO - 1}"),
        (STAMP_MODULO + 42, 41.0, f"of step {STAMP_MODULO + 42} were made in step {STAMP_MODULO + 41}"),
        (42, 43.0, "of step 42 carry the stamp of no step before it"),
        (42, 41.5, "of step 42 carry the stamp of no step before it"),
        (42, -1.0, "of step 42 carry the stamp of no step before it"),
        (42, float(STAMP_MODULO), "of step 42 carry the stamp of no step before it"),
        (42, math.nan, "of step 42 carry the stamp of no step before it"),
        (42, math.inf, "of step 42 carry the stamp of no step before it"),
    ],
)
def test_metrics_of_another_step_are_named_with_the_step_that_made_them(
    first_step: int, stamp: float, origin: str
) -> None:
    expected = f"drafter 0: the metrics {origin}: they were read before their copy was ordered"

    assert expected == check_numbers([stamped([stamp], first_step)])


@given(st.integers(0, 4 * STAMP_MODULO), st.integers(1, STAMP_MODULO - 1))
def test_every_lag_is_seen(step: int, lag: int) -> None:
    reason = check_numbers([stamped([(step - lag) % STAMP_MODULO], step)])

    assert reason is not None
    assert (f"were made in step {step - lag}:" in reason) == (lag <= step)


@pytest.mark.parametrize("value", [1.0, 3.0, math.nan])
def test_hidden_states_that_changed_on_the_way_are_named(value: float) -> None:
    expected = (
        "drafter 1: the hidden states that the drafter of step 2 trained on are not those that the target computed"
    )

    assert expected == check_numbers([make_log(), make_log(1, hidden_mismatch=[0.0, 0.0, value, value])])


def test_the_reason_that_explains_the_others_is_given() -> None:
    """Even if it shows later: a NaN at step 0 says less than a stamp that is wrong at step 2."""
    loss, mismatch, stamps = [math.nan] * 3, [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]

    inputs = check_numbers([make_log(0, loss=loss), make_log(1, hidden_mismatch=mismatch)])
    metrics = check_numbers([make_log(0, loss=loss, hidden_mismatch=mismatch), make_log(1, metrics_stamp=stamps)])

    assert inputs is not None
    assert "hidden states" in inputs
    assert metrics is not None
    assert "the metrics of step 2" in metrics


def test_of_one_kind_the_first_is_given_whichever_rank_has_it() -> None:
    late, early = make_log(0, acc=[0.5, 0.5, 2.0]), make_log(1, grad_norm=[1.0, 0.0, 0.0])

    reason = check_numbers([late, early])

    assert reason is not None
    assert "step 1 of drafter 1" in reason


def test_twenty_equal_losses_are_wrong_and_nineteen_are_not() -> None:
    reason = check_numbers([make_log(), make_log(loss=[*FALLING, *[0.5] * 20])])

    assert reason is not None
    assert "from step 3 to step 22 of drafter 0" in reason
    assert check_numbers([make_log(loss=[*FALLING, *[0.5] * 19, 0.4])]) is None


def test_the_trend_compares_the_first_and_the_last_tenth_over_ranks() -> None:
    logs = [make_log(rank, loss=[10.0 - step / 10 + rank for step in range(100)]) for rank in range(2)]

    # Steps 0–9 average 9.55, steps 90–99 average 0.55; ranks average to 0.5 more.
    assert loss_trend(logs) == (pytest.approx(10.05), pytest.approx(1.05))


def test_a_trend_needs_two_finite_losses() -> None:
    assert loss_trend([make_log(loss=[1.0, math.nan])]) is None
    assert loss_trend([make_log(loss=[2.0, 1.0])]) == (2.0, 1.0)
