"""Stack samples of one profile window, as localising and drawing need them. Frozen, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PHASE_FILE = "phase"
"""`FrameId("mask", PHASE_FILE)` is no function: it marks where a stack enters the phase `mask`."""


class StackView(StrEnum):
    """Which samples a window's stacks are of."""

    ALL = "all"
    """Waiting threads included: each sample is a piece of wall time."""
    GIL = "gil"
    """Only the thread that held the GIL, where the sampler can tell."""
    IDLE = "idle"
    """Only threads that did not run."""


@dataclass(frozen=True, slots=True, order=True)
class FrameId:
    """One function, whatever the line."""

    name: str
    file: str
    """Shortened path; empty where the sampler gave none; `PHASE_FILE` for a phase."""

    def __hash__(self) -> int:
        """By the name alone: 5,000 stacks ask two million times, and a tuple of both takes twice as long."""
        return hash(self.name)

    @property
    def is_phase(self) -> bool:
        """Whether it marks a phase."""
        return self.file == PHASE_FILE


StackCounts = Mapping[tuple[FrameId, ...], int]
"""Outermost frame first → samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledWindow:
    """The samples of one role's threads of one name in one profile window, ranks pooled."""

    launch: str
    """Run id."""
    label: str
    """Of the window."""
    role: str
    thread: str = "main"
    """`main`, or the thread's name."""
    view: StackView = StackView.ALL
    num_ranks: int
    ns_per_token: float
    """Wall time of the window over tokens of all ranks: what all samples of one rank's thread stand for."""
    stacks: StackCounts
    lines: Mapping[FrameId, int] = field(default_factory=dict)
    """The line at which each frame was seen most."""

    @property
    def num_samples(self) -> int:
        """All of them."""
        return sum(self.stacks.values())
