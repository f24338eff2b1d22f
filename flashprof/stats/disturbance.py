"""
Which windows the machine disturbed, and what it did all the time. Pure.

A window is judged once, when it ends, against the windows before it, and never again: what a later window shows must
not change what was already counted. So a replay of the files judges as the live session did.

The rule sees the machine only, never the subject's speed: it could otherwise leave out what it does not like. Why
each limit is what it is: docs/adr/0008-disturbed-windows.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import median

from flashprof.contracts.machine import MachineUse

OWN_LOAD_REASONS = ("sw power cap", "sync boost")
"""Reasons for lower clocks that a subject brings about by its own work; they are shown and disturb nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbanceLimits:
    """How far from typical is disturbed. The numbers were measured: ADR 8."""

    other_cores: float = 0.2
    """More than typical. An idle two-core VM shows 0.00 to 0.03 over 2 s; 1 s of one busy core is 0.5."""
    stolen_cores: float = 0.05
    """More than typical; an undisturbed VM shows 0.00 to 0.01."""
    swapped_pages: float = 0.0
    """More than typical: where nothing swaps, any page is one too many."""
    spread_factor: float = 7.0
    """Times the distance from median to upper quartile; 7 of them are 4.7 standard deviations of a Gaussian."""
    typical_share: float = 0.25
    """What was seen in this share of the earlier windows is no disturbance but how the machine is."""
    memory: int = 32
    """Earlier windows that are looked at: a level that changes for good is typical after a quarter of them."""
    min_earlier: int = 3
    """With fewer there is no typical level, and only changes within the window are seen."""


def find_disturbances(
    uses: Sequence[MachineUse | None], limits: DisturbanceLimits, *, before: Sequence[MachineUse] = ()
) -> tuple[tuple[str, ...], ...]:
    """
    Judge the windows of one launch, each against those before it.

    Args:
        uses: In the order of time; None for a window that the readings do not span: it passes.
        limits: How far from typical is disturbed.
        before: Stretches before the first window, `windows.machine.uses_before`.

    Returns:
        Sentences for each window, none for one that counts. A longer *uses* never changes the answers to a shorter one.
    """
    earlier = list(before)
    found = []
    for use in uses:
        found.append(() if use is None else judge_window(use, earlier, limits))
        if use is not None:
            earlier.append(use)
    return tuple(found)


def judge_window(use: MachineUse, earlier: Sequence[MachineUse], limits: DisturbanceLimits) -> tuple[str, ...]:
    """
    Judge one window when it ends.

    Args:
        use: What happened during it.
        earlier: All windows and stretches before it, disturbed or not, in the order of time.
        limits: How far from typical is disturbed.

    Returns:
        A sentence for each disturbance.
    """
    recent = earlier[-limits.memory :]
    return (*_changes_within(use), *(_levels(use, recent, limits) if len(recent) >= limits.min_earlier else ()))


def standing_load(uses: Sequence[MachineUse], limits: DisturbanceLimits) -> tuple[str, ...]:
    """
    Say what the machine did all the time: it disturbs no single window, but costs speed or makes noise.

    Args:
        uses: All windows of a study.
        limits: The same that the windows were judged by.

    Returns:
        Notes, one sentence each.
    """
    if not uses:
        return ()
    notes = []
    others = sorted(use.other_cores for use in uses)
    typical, upper = median(others), _upper_quartile(others)
    if typical > limits.other_cores or upper - typical > limits.other_cores:
        notes.append(f"other processes used {typical:.1f} cores half of the time, {upper:.1f} or more a quarter of it")
    stolen = median(use.stolen_cores for use in uses)
    if stolen > limits.stolen_cores:
        notes.append(f"the hypervisor gave {stolen:.2f} cores to others most of the time")
    delay = median(use.delay_share for use in uses)
    if delay > 0.05:
        notes.append(
            f"the subject's threads waited for a core {100 * delay:.0f} % of the time that they could have run: "
            "other processes, or more threads than cores"
        )
    for reason in dict.fromkeys(reason for use in uses for reason in use.throttle_reasons):
        share = sum(reason in use.throttle_reasons for use in uses) / len(uses)
        if share >= limits.typical_share:
            notes.append(f"{reason} in {100 * share:.0f} % of the windows")
    foreign = median(use.num_foreign_gpu_processes for use in uses)
    if foreign > 0:
        notes.append(f"{foreign:.0f} processes on the GPUs were not recognised as the subject's, most of the time")
    return tuple(notes)


def level_note(disturbances: Sequence[Sequence[str]], *, num_last: int = 12) -> str | None:
    """A note where more than half of the last windows were disturbed; None otherwise, and for fewer than 4 windows."""
    last = disturbances[-num_last:]
    count = sum(1 for reasons in last if reasons)
    if len(last) < 4 or 2 * count <= len(last):
        return None
    return f"{count} of the last {len(last)} windows were disturbed: the machine is not what it was when this began"


def arm_note(base: Sequence[Sequence[str]], candidate: Sequence[Sequence[str]], *, level: float = 0.01) -> str | None:
    """
    Say whether disturbances follow one arm: then it may cause them, and leaving its windows out would hide its cost.

    Args:
        base: Disturbances of each window of the base.
        candidate: The same of the candidate.
        level: Largest chance, were the disturbances dealt to the windows at random.

    Source: Fisher's exact test, two-sided by doubling the smaller tail. It supposes that windows are disturbed one by
    one; a disturbance of several windows in a row hits both arms of a block, which makes a false note rarer.
    """
    counts = [sum(1 for reasons in arm if reasons) for arm in (base, candidate)]
    sizes = [len(base), len(candidate)]
    if 2 * _smaller_tail(counts, sizes) > level:
        return None
    arm = "base" if counts[0] * sizes[1] > counts[1] * sizes[0] else "candidate"
    return (
        f"disturbances follow the {arm}: {counts[0]} of {sizes[0]} windows of the base, {counts[1]} of {sizes[1]} of "
        "the candidate; it may cause them itself, and leaving them out may hide what it costs"
    )


def _changes_within(use: MachineUse) -> list[str]:
    found = []
    if len(use.governors) > 1:
        found.append(f"the CPU governor changed: {', '.join(use.governors)}")
    if not use.is_foreign_gpu_steady:
        found.append("processes of others came to the GPUs or left them")
    return found


def _levels(use: MachineUse, earlier: Sequence[MachineUse], limits: DisturbanceLimits) -> list[str]:
    found = []

    def judge(value: Callable[[MachineUse], float], at_least: float, sentence: str, digits: int) -> None:
        typical = median(map(value, earlier))
        spread = _upper_quartile([value(item) for item in earlier]) - typical
        if value(use) - typical > max(at_least, limits.spread_factor * spread):
            found.append(f"{sentence.format(f'{value(use):.{digits}f}')} (typically {typical:.{digits}f})")

    judge(lambda item: item.other_cores, limits.other_cores, "other processes used {} cores", 1)
    judge(lambda item: item.stolen_cores, limits.stolen_cores, "the hypervisor gave {} cores to others", 2)
    judge(lambda item: item.num_swapped_pages, limits.swapped_pages, "the machine swapped {} pages", 0)
    return found + _states(use, earlier, limits)


def _states(use: MachineUse, earlier: Sequence[MachineUse], limits: DisturbanceLimits) -> list[str]:
    def is_new(value: Hashable, seen: Callable[[MachineUse], Sequence[Hashable]]) -> bool:
        return sum(value in seen(item) for item in earlier) < limits.typical_share * len(earlier)

    found = [
        f"{reason} (typically not)"
        for reason in use.throttle_reasons
        if not reason.endswith(OWN_LOAD_REASONS) and is_new(reason, lambda item: item.throttle_reasons)
    ]
    if len(use.governors) == 1 and is_new(use.governors[0], lambda item: item.governors):
        found.append(f"the CPU governor was {use.governors[0]} (typically another)")
    foreign = use.num_foreign_gpu_processes
    if use.is_foreign_gpu_steady and is_new(foreign, lambda item: (item.num_foreign_gpu_processes,)):
        typical = median(item.num_foreign_gpu_processes for item in earlier)
        found.append(f"{foreign} processes of others on the GPUs (typically {typical:.0f})")
    return found


def _upper_quartile(values: Sequence[float]) -> float:
    """The smallest of the highest quarter."""
    return sorted(values)[int(0.75 * len(values))]


def _smaller_tail(counts: Sequence[int], sizes: Sequence[int]) -> float:
    """The chance of counts as uneven as these in the same direction, given their sum: hypergeometric."""
    total, marked = sum(sizes), sum(counts)

    def chance(first: int) -> float:
        return math.comb(sizes[0], first) * math.comb(sizes[1], marked - first) / math.comb(total, marked)

    lowest, highest = max(0, marked - sizes[1]), min(sizes[0], marked)
    below = sum(chance(first) for first in range(lowest, counts[0] + 1))
    above = sum(chance(first) for first in range(counts[0], highest + 1))
    return min(below, above)
