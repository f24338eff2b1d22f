"""Which figures of threads, lanes, devices, counters and the machine differ between two arms. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from types import MappingProxyType

from flashprof.contracts.localisation import ResourceChange
from flashprof.contracts.results import Interval
from flashprof.stats.sequential import t_quantile
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.lanes import MAIN_THREAD

LEVEL = 0.95
MAX_ROWS = 40
"""More than a page shows; a `2+2` launch has some 120 figures."""
NO_RESOURCES = frozenset({"loss", "acc", "lr", "grad_norm", "hidden_mismatch", "metrics_stamp"})
"""Gauges of our trainer that speak of learning."""
SMALL = MappingProxyType(
    {"%": 5.0, "/s": 100.0, "MHz": 15.0, "W": 10.0, "°C": 5.0, "cores": 0.2, "GiB": 0.05, "tok/s": 100.0}
)
"""
Changes of this size are as notable as a doubling, larger ones of a small figure no more: 0 → 0.2 % of a core would
otherwise stand first. 15 MHz is one step of an NVIDIA clock; 0.2 cores are what disturbs a window (ADR 8).
"""
GRAIN = MappingProxyType(
    {"SM clock": 15.0, "temperature": 1.0, "foreign GPU processes": 1.0}
    | dict.fromkeys(("compilations", "recompiles", "allocator retries"), 1.0)
)
"""
Steps of figures that most launches share to the digit, and some do not: two and two launches of which each draws one of
two steps have no spread and a difference in one comparison of eight. By the spread alone, ten clocks of two steps had a
clear one in 14 to 71 of 100 comparisons of 2 + 2 launches without a difference.
"""
SMALL_OTHERWISE = 1e-9
NO_MEANING = 1e-12
"""Differences of means below this share of them come from adding up in another order."""

Figure = tuple[str, str, str]
"""Place, name, unit."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    change: ResourceChange
    p_value: float


def resource_changes(base: Sequence[ArmEvidence], candidate: Sequence[ArmEvidence]) -> tuple[ResourceChange, ...]:
    """
    Compare every figure that both arms have.

    Args:
        base: One launch each.
        candidate: The same of the other arm.

    Returns:
        Clear ones first, then by how notable the change is; at most 40, figures that are 0 on both sides left out.
        Each arm needs two launches for an interval, a Welch interval at 95 % with the launch as unit. Clear is what
        Holm's procedure rejects at 5 %, over all figures and under any dependence. Of a figure that comes in steps,
        launches are taken to differ by a step at least (`GRAIN`).

    Calibration: tests/flashprof/stats/test_resources.py, for noise and for clocks of one of two steps.
    """
    absent = _absent((*base, *candidate))
    values = [_values(arm, absent) for arm in (base, candidate)]
    both = [figure for figure in values[0] if figure in values[1]]
    rows = [_row(figure, values[0][figure], values[1][figure]) for figure in both]
    told = [row for row in rows if row.change.base or row.change.candidate]
    clear = _holm([row.p_value for row in told])
    changes = [replace(row.change, is_clear=index in clear) for index, row in enumerate(told)]
    ordered = sorted(changes, key=lambda change: (not change.is_clear, -_notability(change)))
    return tuple(ordered[:MAX_ROWS])


def _absent(launches: Sequence[ArmEvidence]) -> tuple[frozenset[Figure], frozenset[Figure]]:
    """Figures of threads and of GPUs' reasons of any launch: 0 in one that was looked at and does not have them."""
    threads = frozenset(figure for launch in launches for figure, _ in _of_threads(launch))
    reasons = frozenset(figure for launch in launches for figure, _ in _of_reasons(launch))
    return threads, reasons


def _values(
    launches: Sequence[ArmEvidence], absent: tuple[frozenset[Figure], frozenset[Figure]]
) -> dict[Figure, list[float]]:
    held: dict[Figure, list[float]] = {}
    for launch in launches:
        zeros = (absent[0] if launch.threads else frozenset()) | (absent[1] if launch.gpus else frozenset())
        for figure, value in {**dict.fromkeys(sorted(zeros), 0.0), **dict(_figures(launch))}.items():
            if math.isfinite(value):
                held.setdefault(figure, []).append(value)
    return held


def _row(figure: Figure, base: Sequence[float], candidate: Sequence[float]) -> _Row:
    place, name, unit = figure
    interval, p_value = _welch(base, candidate, GRAIN.get(name, 0.0))
    return _Row(
        change=ResourceChange(
            place=place, name=name, unit=unit, base=fmean(base), candidate=fmean(candidate), difference=interval
        ),
        p_value=p_value,
    )


def _welch(base: Sequence[float], candidate: Sequence[float], grain: float) -> tuple[Interval | None, float]:
    """Interval of candidate − base and two-sided p; none and 1 where an arm has one launch; *grain*: see `GRAIN`."""
    if min(len(base), len(candidate)) < 2:
        return None, 1.0
    from scipy.special import stdtr

    squared = [variance(values) / len(values) for values in (base, candidate)]
    difference, error = fmean(candidate) - fmean(base), math.sqrt(sum(squared))
    if abs(difference) <= NO_MEANING * max(map(abs, (*base, *candidate))):
        difference = 0.0
    freedoms = [len(base) - 1, len(candidate) - 1]
    below = sum(part**2 / freedom for part, freedom in zip(squared, freedoms, strict=True))
    freedom = sum(squared) ** 2 / below if below > 0 else float(sum(freedoms))
    half = t_quantile(freedom, tail=(1 - LEVEL) / 2) * error
    interval = Interval(
        estimate=difference,
        low=difference - half,
        high=difference + half,
        level=LEVEL,
        num_samples=len(base) + len(candidate),
        method=f"Welch interval, {len(base)} and {len(candidate)} launches",
    )
    least = grain * math.sqrt(1 / len(base) + 1 / len(candidate))
    if error < least:
        error, freedom = least, math.inf
    # What is the same in all launches of an arm, and another in the other one, leaves no room for chance.
    p_value = 2 * float(stdtr(freedom, -abs(difference) / error)) if error else float(difference == 0)
    return interval, p_value


def _holm(p_values: Sequence[float]) -> frozenset[int]:
    """
    Indices that are rejected.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    rejected = []
    for rank, index in enumerate(order):
        if p_values[index] > (1 - LEVEL) / (len(p_values) - rank):
            break
        rejected.append(index)
    return frozenset(rejected)


def _notability(change: ResourceChange) -> float:
    size = max((abs(change.base) + abs(change.candidate)) / 2, SMALL.get(change.unit, SMALL_OTHERWISE))
    return abs(change.candidate - change.base) / size


def _figures(launch: ArmEvidence) -> Iterator[tuple[Figure, float]]:
    yield from _of_threads(launch)
    yield from _of_lanes(launch)
    yield from _of_gpus(launch)
    yield from _of_reasons(launch)
    yield from _of_machine(launch)
    yield from _of_counters(launch)
    for (role, name), use in launch.gauges.items():
        if name not in NO_RESOURCES:
            yield (role, name, "GiB" if name.endswith("_gib") else ""), use.mean


def _of_threads(launch: ArmEvidence) -> Iterator[tuple[Figure, float]]:
    seen: Counter[str] = Counter()
    for row in launch.threads:
        place = f"{row.role} {row.rank}/{row.thread}"
        seen[place] += 1
        place = f"{place} #{seen[place]}" if seen[place] > 1 else place
        yield (place, "%usr", "%"), row.usr_pct
        yield (place, "%system", "%"), row.system_pct
        yield (place, "%wait", "%"), row.wait_pct
        yield (place, "voluntary switches", "/s"), row.voluntary_switches_per_s
        yield (place, "involuntary switches", "/s"), row.involuntary_switches_per_s


def _of_lanes(launch: ArmEvidence) -> Iterator[tuple[Figure, float]]:
    for row in launch.lanes:
        if row.wall_ns and row.lane.thread == MAIN_THREAD:
            yield (str(row.lane), "waits", "%"), 100 * row.wait_ns / row.wall_ns
            yield (str(row.lane), "capacity", "tok/s"), row.capacity_tok_per_s
        elif row.wall_ns:
            yield (str(row.lane), "busy", "%"), 100 * row.work_ns / row.wall_ns
    for role, times in launch.steps.items():
        if times.p50_ns:
            yield (role, "step work, p95 over p50", ""), times.p95_ns / times.p50_ns
        if launch.num_ranks.get(role, 1) > 1:
            yield (role, "work of the slowest rank over the mean", ""), times.slowest_share


def _of_gpus(launch: ArmEvidence) -> Iterator[tuple[Figure, float]]:
    for gpu in launch.gpus:
        place = f"GPU {gpu.index}"
        yield (place, "busy", "%"), gpu.busy_pct
        yield (place, "SM clock", "MHz"), gpu.sm_clock_mhz
        yield (place, "power", "W"), gpu.power_w
        yield (place, "temperature", "°C"), gpu.temperature_c


def _of_reasons(launch: ArmEvidence) -> Iterator[tuple[Figure, float]]:
    for gpu in launch.gpus:
        for reason, share in gpu.reasons.items():
            yield (f"GPU {gpu.index}", f"clocks lowered: {reason}", "%"), 100 * share


def _of_machine(launch: ArmEvidence) -> Iterator[tuple[Figure, float]]:
    if not launch.uses:
        return
    place = "machine"
    yield (place, "cores used by others", "cores"), fmean(use.other_cores for use in launch.uses)
    yield (place, "cores given away by the hypervisor", "cores"), fmean(use.stolen_cores for use in launch.uses)
    yield (place, "runnable but not running", "%"), 100 * fmean(use.delay_share for use in launch.uses)
    length_s = sum(use.length_s for use in launch.uses)
    yield (place, "swapped pages", "/s"), sum(use.num_swapped_pages for use in launch.uses) / length_s
    yield (place, "foreign GPU processes", ""), fmean(use.num_foreign_gpu_processes for use in launch.uses)


def _of_counters(launch: ArmEvidence) -> Iterator[tuple[Figure, float]]:
    for role in launch.num_ranks if launch.tells_compilations else ():
        held = [item for item in launch.compilations if item.role == role]
        per = "/1,000 steps"
        yield (role, "compilations", per), launch.per_1000_steps(len(held))
        yield (role, "recompiles", per), launch.per_1000_steps(sum(item.is_again for item in held))
        yield (role, "compile time", f"s{per}"), launch.per_1000_steps(sum(item.seconds for item in held))
    for role, use in launch.allocators.items():
        yield (role, "allocator retries", "/1,000 steps"), launch.per_1000_steps(use.num_retries)
        yield (role, "allocator growth", "GiB"), use.grown_gib
    for role, share in launch.gil_shares.items():
        yield (role, "GIL held by other threads", "%"), 100 * share
