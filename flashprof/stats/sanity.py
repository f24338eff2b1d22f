"""Fast but wrong is wrong: impossible values in the subject's own gauges, and whether its loss fell. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean

from flashprof.contracts.events import EventLog, Gauge

LOSS, ACCURACY, GRAD_NORM = "loss", "acc", "grad_norm"

MAX_EQUAL_LOSSES = 20
"""Two float32 losses of different batches are equal about once in 10⁶; twenty in a row mean a dead graph."""


def check_numbers(logs: Sequence[EventLog]) -> str | None:
    """
    Look for values that no healthy training gives.

    Args:
        logs: All processes; the gauges `loss`, `acc` and `grad_norm` are read.

    Returns:
        One sentence on the first thing that is wrong, with its step and rank; None where nothing is.
    """
    for log in logs:
        place = f"{log.header.role} {log.header.rank}"
        found = [(gauge, wrong) for gauge in log.gauges if (wrong := _wrong_value(gauge))]
        if found:
            gauge, wrong = min(found, key=lambda pair: pair[0].step)
            return f"{gauge.name} is {gauge.value:g} at step {gauge.step} of {place}: {wrong}"
        constant = _constant_losses(log.gauges)
        if constant:
            return (
                f"loss is exactly {constant[0].value:g} from step {constant[0].step} to step {constant[-1].step} "
                f"of {place}: {len(constant)} equal values in a row mean that nothing is learnt"
            )
    return None


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


def _wrong_value(gauge: Gauge) -> str:
    """Why this value cannot be, or nothing."""
    if gauge.name in (LOSS, GRAD_NORM) and not math.isfinite(gauge.value):
        return "the numbers have left the finite range"
    if gauge.name == ACCURACY and not 0 <= gauge.value <= 1:
        return "an accuracy lies between 0 and 1"
    if gauge.name == GRAD_NORM and gauge.value == 0:
        return "no gradient reaches the weights"
    return ""


def _constant_losses(gauges: Iterable[Gauge]) -> list[Gauge]:
    losses = sorted(_named(LOSS, gauges), key=lambda gauge: gauge.step)
    runs = (list(run) for _, run in groupby(losses, key=lambda gauge: gauge.value))
    return next((run for run in runs if len(run) >= MAX_EQUAL_LOSSES), [])


def _named(name: str, gauges: Iterable[Gauge]) -> Iterable[Gauge]:
    return (gauge for gauge in gauges if gauge.name == name)
