"""Fast but wrong is wrong: impossible values in the subject's own gauges, and whether its loss fell. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean

from flashprof.contracts.events import EventLog, Gauge

LOSS, ACCURACY, GRAD_NORM = "loss", "acc", "grad_norm"
STAMP, MISMATCH = "metrics_stamp", "hidden_mismatch"

STAMP_MODULO = 2**20
"""A subject stamps metrics with its step modulo this: so far, float32 counts exactly."""

MAX_EQUAL_LOSSES = 20
"""Two float32 losses of different batches are equal about once in 10⁶; twenty in a row mean a dead graph."""


def check_numbers(logs: Sequence[EventLog]) -> str | None:
    """
    Look for values that no healthy training gives.

    What explains most comes first: metrics of another step say nothing about this one, and wrong inputs explain every
    loss. Only then are the values themselves looked at.

    Args:
        logs: All processes; the gauges `metrics_stamp` (the step, modulo 2²⁰, in which the device made the metrics),
            `hidden_mismatch` (how many of the step's inputs arrived changed), `loss`, `acc` and `grad_norm` are read.

    Returns:
        One sentence on the first thing that is wrong, with its step and rank; None where nothing is.
    """
    for judge in (_judge_stamp, _judge_inputs, _judge_value):
        found = [(gauge.step, sentence) for log in logs for gauge in log.gauges if (sentence := judge(gauge, log))]
        if found:
            return min(found, key=lambda pair: pair[0])[1]
    return next((sentence for log in logs if (sentence := _dead_loss(log))), None)


def loss_trend(logs: Sequence[EventLog]) -> tuple[float, float] | None:
    """Mean loss of the first and of the last tenth of the steps, over all ranks; None below 2 steps with a loss."""
    by_step: dict[int, list[float]] = {}
    for gauge in _named(LOSS, (gauge for log in logs for gauge in log.gauges)):
        if math.isfinite(gauge.value):
            by_step.setdefault(gauge.step, []).append(gauge.value)
    if len(by_step) < 2:
        return None
    losses = [fmean(by_step[step]) for step in sorted(by_step)]
    tenth = max(1, len(losses) // 10)
    return fmean(losses[:tenth]), fmean(losses[-tenth:])


def _judge_stamp(gauge: Gauge, log: EventLog) -> str:
    """What is wrong with metrics that were made in another step, or nothing. The other judges answer alike."""
    if gauge.name != STAMP or gauge.value == gauge.step % STAMP_MODULO:
        return ""
    made_in = _made_in(gauge)
    origin = "carry the stamp of no step before it" if made_in is None else f"were made in step {made_in}"
    return f"{_place(log)}: the metrics of step {gauge.step} {origin}: they were read before their copy was ordered"


def _made_in(gauge: Gauge) -> int | None:
    """The newest step up to the gauge's own whose stamp it carries; None for what is no stamp."""
    if not (0 <= gauge.value < STAMP_MODULO and gauge.value == int(gauge.value)):
        return None
    step = gauge.step - (gauge.step - int(gauge.value)) % STAMP_MODULO
    return step if step >= 0 else None


def _judge_inputs(gauge: Gauge, log: EventLog) -> str:
    if gauge.name != MISMATCH or gauge.value == 0:
        return ""
    return (
        f"{_place(log)}: the hidden states that the drafter of step {gauge.step} trained on "
        "are not those that the target computed"
    )


def _judge_value(gauge: Gauge, log: EventLog) -> str:
    wrong = _wrong_value(gauge)
    return f"{gauge.name} is {gauge.value:g} at step {gauge.step} of {_place(log)}: {wrong}" if wrong else ""


def _wrong_value(gauge: Gauge) -> str:
    if gauge.name in (LOSS, GRAD_NORM) and not math.isfinite(gauge.value):
        return "the numbers have left the finite range"
    if gauge.name == ACCURACY and not 0 <= gauge.value <= 1:
        return "an accuracy lies between 0 and 1"
    if gauge.name == GRAD_NORM and gauge.value == 0:
        return "no gradient reaches the weights"
    return ""


def _dead_loss(log: EventLog) -> str:
    losses = sorted(_named(LOSS, log.gauges), key=lambda gauge: gauge.step)
    runs = (list(run) for _, run in groupby(losses, key=lambda gauge: gauge.value))
    constant = next((run for run in runs if len(run) >= MAX_EQUAL_LOSSES), None)
    if constant is None:
        return ""
    return (
        f"loss is exactly {constant[0].value:g} from step {constant[0].step} to step {constant[-1].step} "
        f"of {_place(log)}: {len(constant)} equal values in a row mean that nothing is learnt"
    )


def _place(log: EventLog) -> str:
    return f"{log.header.role} {log.header.rank}"


def _named(name: str, gauges: Iterable[Gauge]) -> Iterable[Gauge]:
    return (gauge for gauge in gauges if gauge.name == name)
