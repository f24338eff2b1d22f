"""What happened on the machine during a window, from the readings around it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

from flashprof.contracts.machine import MachineReading, MachineUse


def machine_use(readings: Sequence[MachineReading], start_ns: int, end_ns: int) -> MachineUse | None:
    """
    Add up one window.

    Args:
        readings: Of one launch, in the order of time.
        start_ns: Where the window begins; the counters there lie on a line between the readings around it.
        end_ns: Where it ends.

    Returns:
        States (governor, throttling, processes on the GPUs) are those of every reading within, and of the two at the
        ends. None where the readings do not span the window: one at its end or later is needed.
    """
    first = bisect_right(readings, start_ns, key=_at_ns) - 1
    last = bisect_left(readings, end_ns, key=_at_ns)
    if first < 0 or last >= len(readings) or end_ns <= start_ns:
        return None
    seen = readings[first : last + 1]

    def spent(counter: Callable[[MachineReading], float]) -> float:
        difference = _value_at(seen[-2:], end_ns, counter) - _value_at(seen[:2], start_ns, counter)
        return max(0.0, difference)

    length_s = (end_ns - start_ns) / 1e9
    subject_s, delay_s = spent(lambda item: item.subject_cpu_s), spent(lambda item: item.subject_delay_s)
    other_s = spent(lambda item: item.busy_cpu_s - item.subject_cpu_s - item.own_cpu_s)
    foreign = [sum(gpu.num_foreign_processes for gpu in item.gpus) for item in seen]
    return MachineUse(
        length_s=length_s,
        other_cores=other_s / length_s,
        stolen_cores=spent(lambda item: item.stolen_cpu_s) / length_s,
        delay_share=delay_s / (subject_s + delay_s) if delay_s > 0 else 0.0,
        # A part of a page is a page: that there was any swapping must not be rounded away.
        num_swapped_pages=math.ceil(spent(lambda item: item.num_swapped_pages)),
        governors=_distinct(item.governor for item in seen if item.governor),
        throttle_reasons=_distinct(
            f"gpu {gpu.index}: {reason}" for item in seen for gpu in item.gpus for reason in gpu.throttle_reasons
        ),
        num_foreign_gpu_processes=max(foreign),
        is_foreign_gpu_steady=len(set(foreign)) == 1,
    )


def uses_before(readings: Sequence[MachineReading], until_ns: int, length_s: float) -> tuple[MachineUse, ...]:
    """
    Cut the time before the first window into stretches as long as a window, to know what is typical from the start.

    Warm-up serves as well as steady state: the subject's own CPU time is not part of what is judged.

    Args:
        readings: Of one launch, in the order of time.
        until_ns: Where the first window begins.
        length_s: Of a window.

    Returns:
        All whole stretches back to the first reading, in the order of time.
    """
    length_ns = round(length_s * 1e9)
    if not readings or length_ns <= 0:
        return ()
    num_stretches = max(0, (until_ns - readings[0].at_ns) // length_ns)
    starts_ns = (until_ns - back * length_ns for back in range(num_stretches, 0, -1))
    uses = (machine_use(readings, start_ns, start_ns + length_ns) for start_ns in starts_ns)
    return tuple(use for use in uses if use is not None)


def _at_ns(reading: MachineReading) -> int:
    return reading.at_ns


def _value_at(around: Sequence[MachineReading], at_ns: int, counter: Callable[[MachineReading], float]) -> float:
    """The counter at *at_ns*, on the line between the first and the last of *around*."""
    before, after = around[0], around[-1]
    start, end = counter(before), counter(after)
    span_ns = after.at_ns - before.at_ns
    return start + (end - start) * (at_ns - before.at_ns) / span_ns if span_ns > 0 else end


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    """In the order in which they were first seen."""
    return tuple(dict.fromkeys(values))
