"""NVML's answers become readings, and its refusals zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from flashprof.contracts.machine import GpuReading
from flashprof.sample.nvml import NvmlGpus, open_nvml


class FakeNvmlError(Exception):
    """What the library raises."""


@dataclass
class FakeNvml:
    """Two GPUs; handles are their indices. As the module `pynvml`."""

    users: dict[int, list[int]] = field(default_factory=lambda: {0: [21, 99], 1: [99]})
    bits: int = 0
    refused: set[str] = field(default_factory=set)
    """Names of functions that raise."""
    missing: set[str] = field(default_factory=set)
    """Names of functions that this version of the library has not."""
    NVMLError: type[Exception] = FakeNvmlError
    NVML_CLOCK_SM: int = 1
    NVML_TEMPERATURE_GPU: int = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [SimpleNamespace(pid=pid) for pid in self.users[gpu]],
            "nvmlDeviceGetClockInfo": lambda gpu, clock: {1: 1980}[clock] - gpu,
            "nvmlDeviceGetTemperature": lambda gpu, sensor: {0: 61}[sensor],
            "nvmlDeviceGetPowerUsage": lambda gpu: 412_500,
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=93, memory=40),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: self.bits,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: self.bits,
        }
        if name in self.missing or name not in answers:
            raise AttributeError(name)
        if name in self.refused:
            return self._refuse
        return answers[name]

    def _refuse(self, *_: object) -> None:
        raise FakeNvmlError


def test_the_gpus_that_the_subject_uses_are_read() -> None:
    expected = GpuReading(
        index=0,
        sm_clock_mhz=1980,
        throttle_reasons=(),
        temperature_c=61,
        power_w=412.5,
        utilization_pct=93,
        num_foreign_processes=1,
    )

    assert (expected,) == NvmlGpus(FakeNvml()).read({20, 21})


def test_where_the_subject_is_on_no_gpu_all_are_read() -> None:
    readings = NvmlGpus(FakeNvml()).read({20})

    assert [(0, 2), (1, 1)] == [(reading.index, reading.num_foreign_processes) for reading in readings]


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x001 | 0x002 | 0x100, ()),
        (0x004, ("sw power cap",)),
        (0x008 | 0x040, ("hw slowdown", "hw thermal slowdown")),
        (0x020 | 0x080, ("sw thermal slowdown", "hw power brake")),
    ],
)
def test_reasons_have_names_and_idling_is_none(bits: int, reasons: tuple[str, ...]) -> None:
    [reading] = NvmlGpus(FakeNvml(bits=bits)).read({21})

    assert reasons == reading.throttle_reasons


@pytest.mark.parametrize("how", ["refused", "missing"])
def test_older_drivers_are_asked_by_the_older_name(how: str) -> None:
    nvml = FakeNvml(bits=0x004, **{how: {"nvmlDeviceGetCurrentClocksEventReasons"}})
    [reading] = NvmlGpus(nvml).read({21})

    assert ("sw power cap",) == reading.throttle_reasons


def test_what_a_driver_does_not_answer_is_zero() -> None:
    names = ("ClockInfo", "Temperature", "PowerUsage", "UtilizationRates", "ComputeRunningProcesses")
    events = ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
    nvml = FakeNvml(bits=0x004, refused={f"nvmlDeviceGet{name}" for name in (*names, *events)})
    readings = NvmlGpus(nvml).read({21})

    assert [
        GpuReading(
            index=index,
            sm_clock_mhz=0,
            throttle_reasons=(),
            temperature_c=0,
            power_w=0.0,
            utilization_pct=0,
            num_foreign_processes=0,
        )
        for index in (0, 1)
    ] == list(readings)


@pytest.mark.parametrize("name", ["nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_gpus_that_cannot_be_reached_are_left_out(name: str) -> None:
    assert () == NvmlGpus(FakeNvml(refused={name})).read({21})


def test_without_nvml_there_are_no_gpus() -> None:
    assert () == NvmlGpus(None).read({21})


def test_opening_it_fails_on_no_machine() -> None:
    readings = NvmlGpus(open_nvml()).read(())

    assert all(reading.index >= 0 for reading in readings)
