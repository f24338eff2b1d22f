"""Which samplers `benchmarks.overhead` compares with none, and how they are had on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.app.session import Ports
from flashprof.contracts.ports import Clock, Sampler, SampleTarget
from flashprof.sample.counters import SystemMeter
from flashprof.sample.nvml import NvmlGpus, open_nvml
from flashprof.sample.pidstat import PidstatSampler
from flashprof.sample.pyspy import PySpySampler
from flashprof.sample.schedstat import SchedstatSampler

PYSPY_RATES_HZ = (10, 20, 100)
METER_RATES_HZ = (1, 10)
DEFAULT = "sampling_default"
"""All that `flashprof run` attaches in a profile window; the only one with a goal."""
DEFAULT_TURNS = 3
"""A round: the goal of 1 % needs a narrower interval than the others do."""

Read = Callable[[Sequence[int]], object]
"""Reads something of processes; what comes out is dropped."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What is attached together in the windows of one arm."""

    name: str
    samplers: tuple[Sampler, ...]
    turns_a_round: int = 1
    refusal: str = ""
    """Why it cannot be had here; empty where it can, as far as that is known before it is tried."""
    note: str = ""


class Readings:
    """Reads again and again in a thread of its own, so that a meter is attached and detached like a sampler."""

    def __init__(self, name: str, read: Read, rate_hz: float) -> None:
        self.name = name
        self._read = read
        self._period_s = 1 / rate_hz
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:  # noqa: ARG002 (a Sampler)
        """Read once now, for the first reading is dearer, and then at the rate."""
        pids = [target.pid for target in targets]
        self._read(pids)
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, args=(pids,), name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> list[str]:
        """End the thread."""
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            self._thread = None
        return []

    def _run(self, pids: Sequence[int]) -> None:
        while not self._is_over.wait(self._period_s):
            self._read(pids)


def configurations(default: Ports) -> list[Configuration]:
    """
    All that are compared, also those that this machine does not have.

    Args:
        default: As `app.wiring` makes them for an experiment without settings; their samplers and meter are the
            default. A sampler that it does without, py-spy where tracing is forbidden, is missing there too.
    """
    return [
        *_pyspy(),
        Configuration(name="pidstat", samplers=(PidstatSampler(),)),
        Configuration(name="schedstat", samplers=(SchedstatSampler(default.clock),)),
        *_meters(default.clock),
        _default(default),
    ]


def _pyspy() -> list[Configuration]:
    ways = (("nonblocking", False, False), ("blocking", True, False), ("native", True, True))
    return [
        Configuration(name=f"pyspy_{way}_{rate_hz}_hz", samplers=(PySpySampler(rate_hz, blocking, native=native),))
        for way, blocking, native in ways
        for rate_hz in PYSPY_RATES_HZ
    ]


def _meters(clock: Clock) -> list[Configuration]:
    nvml = open_nvml()
    refusal = "NVML finds no GPU here" if nvml is None else ""
    # A ledger of its own for each: a meter remembers processes that have ended.
    kinds: list[tuple[str, Callable[[], Read], str]] = [
        ("meter", lambda: SystemMeter(clock, gpus=NvmlGpus(nvml)).read, ""),
        ("nvml", lambda: NvmlGpus(nvml).read, refusal),
    ]
    return [
        Configuration(
            name=f"{name}_{rate_hz}_hz", samplers=(Readings(name, make_read(), rate_hz),), refusal=kind_refusal
        )
        for name, make_read, kind_refusal in kinds
        for rate_hz in METER_RATES_HZ
    ]


def _default(ports: Ports) -> Configuration:
    meters = () if ports.meter is None else (Readings("meter", ports.meter.read, 1),)
    samplers = (*ports.samplers, *meters)
    return Configuration(
        name=DEFAULT,
        samplers=samplers,
        turns_a_round=DEFAULT_TURNS,
        note=", ".join((" + ".join(sampler.name for sampler in samplers), *ports.notes)),
    )
