"""What the user asks `flashprof compare`: two arms, how to measure them, and when to stop. Frozen, standard library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.experiment import SubjectSpec, WindowPlan
from flashprof.contracts.toggles import ToggleValues


class MethodChoice(StrEnum):
    """How the arms may be interleaved."""

    AUTO = "auto"
    """Hot where every toggle under test is hot, else cold."""
    HOT = "hot"
    COLD = "cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """The toggles of one arm."""

    expression: str
    """The shortest one that gives these values: equal cells have equal expressions."""
    values: ToggleValues
    """Of every toggle that the subject has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """One question, as the command line gives it to `flashprof.app.compare`."""

    base: ArmSpec
    candidate: ArmSpec
    cold_toggles: tuple[str, ...] = ()
    """Those among the differing ones that only a launch can set; with any, nothing can be screened hot."""
    upstream_toggles: tuple[str, ...] = ()
    """Those among the differing ones that act in front of the queue: a switch shows once the queue is drained."""
    subject: SubjectSpec
    """What both arms share; its toggles are the base's, its command is made for each launch."""
    windows: WindowPlan
    rule: DecisionRule
    method: MethodChoice = MethodChoice.AUTO
    confirm: bool = True
    """Whether cold launches confirm what hot blocks have found."""
    explain: bool = True
    """Whether launches with samplers show in which frames a regression lies."""
    allow: tuple[str, ...] = ()
    """Facts of the cells, or whole sections, that may differ though they are not under test."""
    gpu_sets: tuple[tuple[int, ...], ...] = ()
    """Sites for cold blocks, each a launch's GPUs; empty for whatever the environment shows."""
    fresh: bool = False
    """Put aside what an earlier call has measured."""
    reports: Path

    @property
    def under_test(self) -> tuple[str, ...]:
        """Names of the toggles in which the arms differ."""
        base, candidate = self.base.values, self.candidate.values
        return tuple(sorted(name for name in {*base, *candidate} if base.get(name) != candidate.get(name)))
