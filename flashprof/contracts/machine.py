"""What the machine does beside the subject: light counters, read once a second also in measure windows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU at a moment, from NVML; 0 for what the driver does not tell."""

    index: int
    sm_clock_mhz: int
    throttle_reasons: tuple[str, ...]
    """NVML's clock event reasons that slow it down: thermal, power brake, …; idle and application settings left out."""
    temperature_c: int
    power_w: float
    utilization_pct: int
    num_foreign_processes: int
    """
    Processes on it that are not the subject's. Within a container that has process ids of its own, NVML may list the
    subject under others: only a change of this number says something.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReading:
    """Counters at a moment. Those in seconds and pages count up; a difference of two readings says what happened."""

    at_ns: int
    """The host's monotonic clock."""
    busy_cpu_s: float
    """All CPU time that the host has spent, idle and waiting for disks left out; `steal` is `stolen_cpu_s`."""
    stolen_cpu_s: float
    """What the hypervisor gave to others."""
    subject_cpu_s: float
    """All CPU time of the subject's processes and of their descendants."""
    own_cpu_s: float
    """All CPU time of FlashProf and of its other descendants: samplers, the guard."""
    subject_delay_s: float
    """Time that the subject's threads were runnable and did not run: pidstat's %wait."""
    num_swapped_pages: int
    """In and out."""
    governor: str
    """CPU frequency governors in force, joined; empty where there are none."""
    gpus: tuple[GpuReading, ...] = ()
    """The subject's; all that NVML sees where none of them lists a process of the subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """What happened on the machine during a window."""

    length_s: float
    other_cores: float
    """Cores that processes other than the subject and FlashProf kept busy, on average."""
    stolen_cores: float
    delay_share: float
    """Runnable but not running, over the subject's CPU time plus that delay, 0 to 1."""
    num_swapped_pages: int
    governors: tuple[str, ...]
    """Each that was seen; more than one means that it changed."""
    throttle_reasons: tuple[str, ...]
    """`gpu 0: sw thermal slowdown`, each that was seen."""
    num_foreign_gpu_processes: int
    """The most at one reading, over all GPUs of the subject."""
    is_foreign_gpu_steady: bool = True
    """Whether that number was the same at all readings."""
