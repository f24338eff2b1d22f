"""
Clocks, heat and company of the GPUs, from NVIDIA's own library through `nvidia-ml-py`.

Nothing here fails: no driver, no library, a GPU that fell off the bus or a question that a driver does not answer
gives an empty tuple or a 0, for a window is measured with or without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from flashprof.contracts.machine import GpuReading

REASONS = {
    0x004: "sw power cap",
    0x008: "hw slowdown",
    0x010: "sync boost",
    0x020: "sw thermal slowdown",
    0x040: "hw thermal slowdown",
    0x080: "hw power brake",
    0x200: "board limit",
    0x400: "reliability",
}
"""nvml.h's nvmlClocksEventReason bits; idle, application and display clock settings slow nothing down by themselves."""

_Answer = TypeVar("_Answer")


def open_nvml() -> Any | None:
    """The initialised library; None where it, the driver or a GPU is missing."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


class NvmlGpus:
    """The GPUs of this host."""

    def __init__(self, nvml: Any | None) -> None:
        """*nvml* is what `open_nvml` gave."""
        self._nvml = nvml

    def read(self, pids: Collection[int]) -> tuple[GpuReading, ...]:
        """
        The GPUs now.

        Args:
            pids: The subject's processes.

        Returns:
            The GPUs that a process of the subject uses; all of them where NVML lists none of its processes on any.
        """
        if self._nvml is None:
            return ()
        count = self._ask(self._nvml.nvmlDeviceGetCount, 0)
        both = [self._read_gpu(index, pids) for index in range(count)]
        seen = [item for item in both if item is not None]
        used = [reading for reading, is_used in seen if is_used]
        return tuple(used or [reading for reading, _ in seen])

    def _read_gpu(self, index: int, pids: Collection[int]) -> tuple[GpuReading, bool] | None:
        nvml: Any = self._nvml
        gpu = self._ask(lambda: nvml.nvmlDeviceGetHandleByIndex(index), None)
        if gpu is None:
            return None
        processes = self._ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(gpu), ())
        users = {process.pid for process in processes}
        reading = GpuReading(
            index=index,
            sm_clock_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM), 0),
            throttle_reasons=self._reasons(gpu),
            temperature_c=self._ask(lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU), 0),
            power_w=self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(gpu), 0) / 1000,
            utilization_pct=self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu, 0),
            num_foreign_processes=len(users.difference(pids)),
        )
        return reading, not users.isdisjoint(pids)

    def _reasons(self, gpu: object) -> tuple[str, ...]:
        nvml: Any = self._nvml
        # Drivers before 535 know the question by its older name only.
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        questions = [getattr(nvml, name) for name in names if hasattr(nvml, name)]
        bits = next((bits for ask in questions if (bits := self._ask_bits(ask, gpu)) is not None), 0)
        return tuple(name for bit, name in REASONS.items() if bits & bit)

    def _ask_bits(self, question: Callable[[object], int], gpu: object) -> int | None:
        return self._ask(lambda: question(gpu), None)

    def _ask(self, question: Callable[[], Any], otherwise: _Answer) -> Any | _Answer:
        nvml: Any = self._nvml
        try:
            return question()
        except nvml.NVMLError:
            return otherwise
