"""Pieces of an arm's evidence: gauges, marks, GPUs, the GIL; read from one launch, pooled over launches. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TypeVar

from flashprof.contracts.events import EventLog, Mark
from flashprof.contracts.machine import GpuReading, MachineReading
from flashprof.contracts.profiles import ProfiledWindow, StackView

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

WARM_MARKS = frozenset({"compile", "autotune"})

Inside = Callable[[int], bool]
"""Whether a moment lies in a window that counts."""
GaugeAt = tuple[str, str]
"""Role and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeUse:
    """A gauge in the windows, values that are not finite left out."""

    num_values: int
    mean: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One mark `compile` or `autotune` within the windows, and so behind the warm-up."""

    role: str
    rank: int
    what: str
    seconds: float
    reason: str = ""

    @property
    def is_again(self) -> bool:
        """Whether it was compiled before."""
        return self.what.startswith("recompile ")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorUse:
    """What a role's device allocator did in the windows: that of the rank that lost most time by it."""

    num_retries: float
    grown_gib: float
    excess_ns: float
    """By which the steps with retries were longer than the median step, together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """One GPU, mean over the readings in the windows; 0 for what the driver does not tell."""

    index: int
    num_readings: int
    busy_pct: float
    sm_clock_mhz: float
    power_w: float
    temperature_c: float
    reasons: Mapping[str, float]
    """Why its clocks were lowered → share of the readings, 0 to 1."""


def read_gauges(logs: Iterable[EventLog], inside: Inside) -> dict[GaugeAt, GaugeUse]:
    """All gauges with a finite value in the windows."""
    values: defaultdict[GaugeAt, list[float]] = defaultdict(list)
    for log in logs:
        for gauge in log.gauges:
            if _is_finite(gauge.value) and inside(gauge.at_ns):
                values[log.header.role, gauge.name].append(gauge.value)
    return {key: GaugeUse(num_values=len(held), mean=fmean(held), median=median(held)) for key, held in values.items()}


def read_compilations(logs: Iterable[EventLog], inside: Inside) -> Iterator[Compilation]:
    """In the order of the files."""
    for log in logs:
        for mark in log.marks:
            if mark.name in WARM_MARKS and inside(mark.at_ns):
                yield Compilation(
                    role=log.header.role,
                    rank=log.header.rank,
                    what=str(mark.detail.get("what", "")),
                    seconds=_number(mark, "seconds"),
                    reason=str(mark.detail.get("reason", "")),
                )


def read_allocators(
    logs: Iterable[EventLog], inside: Inside, excess_ns: Mapping[tuple[str, int], float]
) -> dict[str, AllocatorUse]:
    """
    Of the roles that have a device's allocator: they marked it at some time.

    Args:
        logs: All processes.
        inside: Tells the windows.
        excess_ns: Role and rank → what its steps with retries took too long.
    """
    worst: dict[str, AllocatorUse] = {}
    for log in logs:
        marks = [mark for mark in log.marks if mark.name == "allocator"]
        held = [mark for mark in marks if inside(mark.at_ns)]
        use = AllocatorUse(
            num_retries=sum(_number(mark, "retries") for mark in held),
            grown_gib=sum(_number(mark, "gib") for mark in held),
            excess_ns=excess_ns.get((log.header.role, log.header.rank), 0.0),
        )
        if marks:
            worst[log.header.role] = max(
                use, worst.get(log.header.role, use), key=lambda item: (item.excess_ns, item.num_retries)
            )
    return worst


def read_gpus(readings: Iterable[MachineReading]) -> tuple[GpuUse, ...]:
    """By index."""
    by_index: defaultdict[int, list[GpuReading]] = defaultdict(list)
    for reading in readings:
        for gpu in reading.gpus:
            by_index[gpu.index].append(gpu)
    return tuple(_gpu(index, held) for index, held in sorted(by_index.items()))


def read_gil_shares(profiles: Iterable[ProfiledWindow]) -> dict[str, float]:
    """Role → samples in which another thread held the GIL, over all samples of its main thread."""
    all_main: defaultdict[str, int] = defaultdict(int)
    others: defaultdict[str, int] = defaultdict(int)
    sampled: set[str] = set()
    for profile in profiles:
        is_main = profile.thread == "main"
        if profile.view is StackView.GIL:
            sampled.add(profile.role)
            others[profile.role] += 0 if is_main else profile.num_samples
        elif profile.view is StackView.ALL and is_main:
            all_main[profile.role] += profile.num_samples
    return {role: others[role] / all_main[role] for role in sorted(sampled) if all_main[role]}


def pool_gauges(launches: Iterable[Mapping[GaugeAt, GaugeUse]]) -> dict[GaugeAt, GaugeUse]:
    """Means by the number of values; the median is that of the launches' medians."""
    held = _by_key(launches)
    return {
        key: GaugeUse(
            num_values=sum(use.num_values for use in uses),
            mean=weighted([(use.mean, use.num_values) for use in uses]),
            median=median(use.median for use in uses),
        )
        for key, uses in held.items()
    }


def pool_allocators(launches: Iterable[Mapping[str, AllocatorUse]]) -> dict[str, AllocatorUse]:
    """Sums."""
    return {
        role: AllocatorUse(
            num_retries=sum(use.num_retries for use in uses),
            grown_gib=sum(use.grown_gib for use in uses),
            excess_ns=sum(use.excess_ns for use in uses),
        )
        for role, uses in _by_key(launches).items()
    }


def pool_gpus(launches: Iterable[Sequence[GpuUse]]) -> tuple[GpuUse, ...]:
    """Means by the number of readings."""
    by_index = _by_key({gpu.index: gpu for gpu in gpus} for gpus in launches)
    return tuple(_pool_gpu(index, held) for index, held in sorted(by_index.items()))


def weighted(values: Sequence[tuple[float, float]]) -> float:
    """The mean of values with weights; 0 where there is no weight."""
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else 0.0


def _by_key(launches: Iterable[Mapping[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    held: defaultdict[_Key, list[_Value]] = defaultdict(list)
    for launch in launches:
        for key, value in launch.items():
            held[key].append(value)
    return dict(held)


def _gpu(index: int, held: Sequence[GpuReading]) -> GpuUse:
    reasons = dict.fromkeys(reason for gpu in held for reason in gpu.throttle_reasons)
    return GpuUse(
        index=index,
        num_readings=len(held),
        busy_pct=fmean(gpu.utilization_pct for gpu in held),
        sm_clock_mhz=_mean_of_told(gpu.sm_clock_mhz for gpu in held),
        power_w=_mean_of_told(gpu.power_w for gpu in held),
        temperature_c=_mean_of_told(gpu.temperature_c for gpu in held),
        reasons={reason: fmean(reason in gpu.throttle_reasons for gpu in held) for reason in reasons},
    )


def _pool_gpu(index: int, held: Sequence[GpuUse]) -> GpuUse:
    def mean(value: Callable[[GpuUse], float], *, told: bool = False) -> float:
        return weighted([(value(gpu), gpu.num_readings) for gpu in held if value(gpu) or not told])

    reasons = dict.fromkeys(reason for gpu in held for reason in gpu.reasons)
    return GpuUse(
        index=index,
        num_readings=sum(gpu.num_readings for gpu in held),
        busy_pct=mean(lambda gpu: gpu.busy_pct),
        sm_clock_mhz=mean(lambda gpu: gpu.sm_clock_mhz, told=True),
        power_w=mean(lambda gpu: gpu.power_w, told=True),
        temperature_c=mean(lambda gpu: gpu.temperature_c, told=True),
        reasons={
            reason: weighted([(gpu.reasons.get(reason, 0.0), gpu.num_readings) for gpu in held]) for reason in reasons
        },
    )


def _mean_of_told(values: Iterable[float]) -> float:
    told = [value for value in values if value]
    return fmean(told) if told else 0.0


def _number(mark: Mark, name: str) -> float:
    """In a mark's detail; 0 where a subject wrote none, or something else."""
    value = mark.detail.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _is_finite(value: object) -> bool:
    """An events file may hold anything where a gauge's value belongs."""
    return isinstance(value, int | float) and math.isfinite(value)
