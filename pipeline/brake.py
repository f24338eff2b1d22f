"""
The planted slow-down: a hidden toggle that costs a known share of the drafter's tok/s, for studies of FlashProf itself.

A run with `--fault brake` knows the hot toggle `brake`, in per mille of tok/s: `SET_TOGGLES {"brake": 170}` makes the
drafter 17 % slower from that step on, and `--fault brake=170` from the first one. It is no optimisation, so the public
registry does not have it, and a run without the fault refuses it.

Only the drafter brakes: where a target limits, waiting for it hides the brake. On the tiny preset with `compile,swa` a
target takes 123 µs a token and a drafter 118 on two busy cores; with `early-exit` besides, the drafter limits clearly.

Light to import: the command line reads the toggle.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from flashprof.contracts.toggles import Toggle, ToggleValues

if TYPE_CHECKING:
    import torch

BRAKE = "brake"
BRAKE_TOGGLE = Toggle(
    name=BRAKE,
    help="take so many per mille of the drafter's tok/s away",
    default=0,
    on=50,
    minimum=0,
    maximum=900,
    hot=True,
)

Hold = Callable[[ToggleValues], None]
"""Called in every forward phase of the drafter, with the toggles in force."""


def no_brake(toggles: ToggleValues) -> None:
    """Hold nothing up: a run without the fault."""


class Brake:
    """
    Stands still for b/(1−b) of the time that has passed since it last stood still: tok/s falls by the share b.

    It counts from one call's end to the next one's start, which is one whole step without the brake's own time, so it
    slows waiting and saving as well as computing.

    The host is busy all the while. On CUDA the device has nothing to do meanwhile: the host waits for it first, also
    where the brake is 0, so that the arms of a comparison differ by the brake alone.
    """

    def __init__(self, synchronize: Callable[[], None], clock_ns: Callable[[], int] = monotonic_ns) -> None:
        """*synchronize* waits until the device has done what it was given."""
        self._synchronize = synchronize
        self._clock_ns = clock_ns
        self._free_since_ns: int | None = None

    def __call__(self, toggles: ToggleValues) -> None:
        """Hold the step up by what `brake` says; not the first one, before which nothing is known."""
        self._synchronize()
        now_ns = self._clock_ns()
        share = int(toggles.get(BRAKE, 0)) / 1000
        free_ns = 0 if self._free_since_ns is None else now_ns - self._free_since_ns
        until_ns = now_ns + round(free_ns * share / (1 - share))
        while now_ns < until_ns:
            now_ns = self._clock_ns()
        # What the last look at the clock took too long is time of the brake, too.
        self._free_since_ns = now_ns


def make_hold(toggles: ToggleValues, device: torch.device) -> Hold:
    """The brake of a drafter on *device*, if *toggles* have one."""
    if BRAKE not in toggles:
        return no_brake
    if device.type == "cpu":
        return Brake(lambda: None)
    import torch

    return Brake(lambda: torch.cuda.current_stream(device).synchronize())
