"""
Faults that are planted on request, to show that FlashProf sees them.

Two make a run faster and wrong, for the sanity guard: bugs of the team whose work this trainer follows. The third makes
it slower by a known share, for studies of comparisons (`pipeline.brake`).

On CUDA each bug is the bug itself. A CPU has no streams, so `LaggingDevice` stands for one: it does what it is given
one step late, as a busy GPU does, and who does not wait for it reads what a recycled buffer held before. That is the
same in every run.

Light to import: the command line reads the names. The parts that need torch import it when they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.toggles import ToggleValues
from pipeline.brake import BRAKE, BRAKE_TOGGLE

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from pipeline.train.metrics import Copy, MetricsReader

NO_FAULT = "none"
METRICS_UNORDERED = "metrics-unordered"
PACK_UNORDERED = "pack-unordered"

FAULTS = MappingProxyType(
    {
        NO_FAULT: "nothing is planted",
        METRICS_UNORDERED: "async-metrics reads its copy before the numbers are made",
        PACK_UNORDERED: "targets pack hidden states on a second stream that nobody waits for",
        BRAKE: "drafters are slower by the hot toggle brake, in per mille of tok/s; brake=170: from the first step",
    }
)

LAG_CYCLES = 2_000_000
"""About 1 ms of an H200: a tiny model's device is so far ahead of its host that an unordered copy would be right."""

NUM_HOST_BUFFERS = 2

Pack = Callable[[list["Tensor"], "Tensor", int], "Tensor"]


def find_fault(name: str, toggles: ToggleValues) -> str:
    """
    The fault of that name, for a run with *toggles*.

    Raises:
        UnknownNameError: There is none; offers the nearest.
        UsageError: It would not show, since the toggle that it sits in is off, or is a brake out of range.
    """
    if planted_toggles(name):
        return name
    if name not in FAULTS:
        raise UnknownNameError("fault", name, FAULTS, next_command="python -m pipeline train --help")
    if name == METRICS_UNORDERED and not toggles["async-metrics"]:
        raise UsageError(
            f"the fault {name} sits in the toggle async-metrics, which is off",
            offered=f"--fault {name}",
            next_command=f"--toggles async-metrics --fault {name}",
        )
    return name


def planted_toggles(fault: str) -> ToggleValues:
    """
    The hidden toggles that *fault* makes known to a run, with the values that it begins with.

    Raises:
        UsageError: `brake=` with a value that the brake does not take.
    """
    name, sign, value = fault.partition("=")
    if name != BRAKE:
        return {}
    return {BRAKE: BRAKE_TOGGLE.parse(value) if sign else BRAKE_TOGGLE.default}


def make_async_metrics(fault: str, device: torch.device) -> MetricsReader:
    """The reader behind `async-metrics`, with the fault in it if it is `metrics-unordered`."""
    from pipeline.train.metrics import AsyncMetrics

    if fault != METRICS_UNORDERED:
        return AsyncMetrics(device)
    return AsyncMetrics(device, UnorderedCopy(device) if device.type == "cuda" else LaggingCopy())


def make_pack(fault: str, device: torch.device) -> Pack:
    """What packs a target's hidden states, with the fault in it if it is `pack-unordered`."""
    from pipeline.model.taps import pack

    return UnorderedPack(device) if fault == PACK_UNORDERED else pack


class LaggingDevice:
    """Does each piece of work when it is given the next one."""

    def __init__(self) -> None:
        self._waiting: Callable[[], object] | None = None

    def give(self, work: Callable[[], object]) -> None:
        """Hand in *work*; returns when the work before it is done."""
        done, self._waiting = self._waiting, work
        if done is not None:
            done()


class LaggingCopy:
    """Copies to a small ring of host buffers, read without waiting: metrics are of two steps before."""

    def __init__(self) -> None:
        self._device = LaggingDevice()
        self._hosts: list[Tensor] = []
        self._num_started = 0

    def __call__(self, packed: Tensor) -> Copy:
        """Start the copy, and say that it is done."""
        from pipeline.train.metrics import Copy

        if not self._hosts or self._hosts[0].shape != packed.shape:
            self._hosts = [packed.new_zeros(packed.shape) for _ in range(NUM_HOST_BUFFERS)]
        host = self._hosts[self._num_started % NUM_HOST_BUFFERS]
        self._num_started += 1
        self._device.give(lambda: host.copy_(packed))
        return Copy(host)


class UnorderedCopy:
    """The first bug: the side stream waits for the current stream, which by then is the side stream."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._side = torch.cuda.Stream(device)
        self._packed: Tensor | None = None

    def __call__(self, packed: Tensor) -> Copy:
        """Start a copy that waits for nothing."""
        import torch

        from pipeline.train.metrics import copy_to_pinned

        # One buffer for all steps, so that what is read too early is a number of an earlier step.
        if self._packed is None or self._packed.shape != packed.shape:
            self._packed = torch.zeros_like(packed)
        torch.cuda._sleep(LAG_CYCLES)  # noqa: SLF001, nothing public keeps a stream busy
        self._packed.copy_(packed)
        with torch.cuda.stream(self._side):
            self._side.wait_stream(torch.cuda.current_stream(packed.device))
            return copy_to_pinned(self._packed)


class UnorderedPack:
    """The second bug: packing on a second stream that waits for no forward pass, into a buffer that is read at once."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._device = LaggingDevice()
        self._buffer_TF: Tensor | None = None

    def __call__(self, states_BSD: list[Tensor], keep_T: Tensor, padded_length: int) -> Tensor:
        """As `pipeline.model.taps.pack`; returns what the buffer held before."""
        buffer_TF = self._room(states_BSD, padded_length)[:padded_length]

        def fill() -> None:
            from pipeline.model.taps import pack

            # On CUDA the indices may not have arrived either, and one out of range would end the process.
            last = states_BSD[0].shape[0] * states_BSD[0].shape[1] - 1
            buffer_TF.copy_(pack(states_BSD, keep_T.clamp(0, last), padded_length))

        if self._side is None:
            self._device.give(fill)
        else:
            _run_late(self._side, fill)
        # A copy, since it is shared with another process: the sender does not wait either.
        return buffer_TF.clone()

    def _room(self, states_BSD: list[Tensor], padded_length: int) -> Tensor:
        num_features = sum(state_BSD.shape[-1] for state_BSD in states_BSD)
        if self._buffer_TF is None or self._buffer_TF.shape[0] < padded_length:
            if self._side is not None:
                # The old buffer goes back to the allocator: nobody may still write to it.
                self._side.synchronize()
            # Memory that nobody has written to holds anything; the team's held NaN, and so did their loss.
            self._buffer_TF = states_BSD[0].new_full((padded_length, num_features), float("nan"))
        return self._buffer_TF


def _run_late(side: torch.cuda.Stream, work: Callable[[], object]) -> None:
    """Do *work* on *side* after a while, in no order with other streams."""
    import torch

    with torch.cuda.stream(side):
        torch.cuda._sleep(LAG_CYCLES)  # noqa: SLF001, as above
        work()
