"""What to measure: one frozen description, built by the CLI and never changed after."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

from flashprof.contracts.errors import UnknownNameError, UsageError


class SubjectKind(StrEnum):
    """Which kind of program is measured."""

    PIPELINE = "pipeline"
    """Ours: phases, hot toggles, control channel."""
    FOREIGN = "foreign"
    """Anybody's: wall tok/s from its output, samplers, flamegraph; more if it uses `flashprof.emit`."""


@dataclass(frozen=True, kw_only=True)
class SubjectSpec:
    """The measured program."""

    kind: SubjectKind = SubjectKind.PIPELINE
    command: tuple[str, ...] = ()
    """The full command line, as it will be started."""
    preset: str = "tiny"
    topology: str = "1+1"
    """Targets + drafters."""
    toggles: str = "none"
    """Normalised toggle expression."""
    seed: int = 0
    train_options: tuple[str, ...] = ()
    """More options of our pipeline's `train`, word by word."""
    tok_per_s_pattern: str = ""
    """Foreign only: regular expression whose group `value` (or first group) is tok/s in the subject's output."""
    facts: tuple[tuple[str, str], ...] = ()
    """Foreign only: what its declaration knows of its cell before a launch, the hashes of its files."""


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """How many windows of which length, and how long to wait for what."""

    num_measure: int = 5
    """Measure windows; at least 2, or there is no interval."""
    measure_s: float = 5.0
    """
    Length at the pace of the steady state. A window is cut by tokens: it ends when the lead rank has trained as many
    as its steady state does in this time, or after 3 times as long. By the clock where the subject reports no steps.
    """
    num_profile: int = 4
    """Profile windows; they lie between the measure windows."""
    profile_s: float = 4.0
    """As `measure_s`."""
    settle_steps: int = 2
    """Steps dropped after a sampler came or went."""
    steady_timeout_s: float = 45.0
    """Give up waiting for steady state after this; the report says so."""
    start_timeout_s: float = 600.0
    """Longest start-up: from launch to the first step."""
    hang_timeout_s: float = 60.0
    """No event for this long means hung."""
    stop_timeout_s: float = 20.0
    """Grace between asking the subject to stop and killing it."""

    def __post_init__(self) -> None:
        """Check ranges; the message names the field as `--set` spells it."""
        _check(self.num_measure >= 2, "windows.num_measure", self.num_measure, ">= 2 (one window has no interval)")
        _check(self.num_profile >= 0, "windows.num_profile", self.num_profile, ">= 0")
        for name in (
            "measure_s",
            "profile_s",
            "steady_timeout_s",
            "start_timeout_s",
            "hang_timeout_s",
            "stop_timeout_s",
        ):
            # `inf` and `nan` are floats too; an infinite window never ends.
            _check(0 < getattr(self, name) < math.inf, f"windows.{name}", getattr(self, name), "> 0 seconds")
        _check(self.settle_steps >= 0, "windows.settle_steps", self.settle_steps, ">= 0")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What runs beside the subject in profile windows."""

    stacks: str = "auto"
    """`auto` (py-spy where it may trace), `pyspy`, `off`."""
    resources: str = "auto"
    """`auto` (pidstat, else schedstat), `pidstat`, `schedstat`, `off`."""
    rate_hz: int = 15
    """Stack samples a second and process. Three py-spy processes took 0.9 % of two cores at 10 Hz, 1.8 % at 20 Hz."""
    blocking: bool = False
    """Stop every thread at each sample: exact stacks, and up to 2.2 times slower (py-spy#872)."""

    def __post_init__(self) -> None:
        """Check ranges."""
        _check(self.stacks in ("auto", "pyspy", "off"), "sampling.stacks", self.stacks, "auto, pyspy, off")
        allowed = ("auto", "pidstat", "schedstat", "off")
        _check(self.resources in allowed, "sampling.resources", self.resources, ", ".join(allowed))
        _check(1 <= self.rate_hz <= 1000, "sampling.rate_hz", self.rate_hz, "1..1000")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the run folder goes."""

    reports: Path = Path("reports")
    run_id: str = ""
    """Name of the run folder; empty for one made of the time and the cell."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One cell, measured once: subject, windows, sampling, output."""

    subject: SubjectSpec = field(default_factory=SubjectSpec)
    windows: WindowPlan = field(default_factory=WindowPlan)
    sampling: Sampling = field(default_factory=Sampling)
    output: Output = field(default_factory=Output)


def apply_settings(experiment: Experiment, settings: tuple[str, ...]) -> Experiment:
    """
    Apply `section.field=value` settings, the later winning.

    Raises:
        UsageError: Not of that form, or a value of another type or out of range.
        UnknownNameError: No such section or field.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        section_name, dot, field_name = path.partition(".")
        if not (equals and dot):
            raise UsageError(
                f"--set {setting!r} is not SECTION.FIELD=VALUE", offered=setting, allowed="windows.measure_s=5"
            )
        if section_name not in _sections():
            raise UnknownNameError("section", section_name, _sections())
        section = getattr(experiment, section_name)
        experiment = replace(experiment, **{section_name: _replace_field(section, section_name, field_name, text)})
    return experiment


def _sections() -> tuple[str, ...]:
    return tuple(f.name for f in fields(Experiment))


def _replace_field(section: Any, section_name: str, field_name: str, text: str) -> Any:
    types = get_type_hints(type(section))
    if field_name not in types:
        raise UnknownNameError(f"field of section {section_name!r}", field_name, types)
    value = _convert(types[field_name], text, f"{section_name}.{field_name}")
    return replace(section, **{field_name: value})


def _convert(kind: Any, text: str, path: str) -> object:
    words = {"true": True, "on": True, "false": False, "off": False}
    if kind is bool:
        _check(text.lower() in words, path, text, "true, false")
        return words[text.lower()]
    if kind not in (int, float, str, Path) and not (isinstance(kind, type) and issubclass(kind, StrEnum)):
        raise UsageError(
            f"{path} cannot be set with --set", offered=text, allowed="a number, a word, true or false, or a path"
        )
    try:
        return kind(text)
    except ValueError as error:
        allowed = ", ".join(kind) if issubclass(kind, StrEnum) else f"a value of type {kind.__name__}"
        raise UsageError(f"{path} does not take {text!r}", offered=text, allowed=allowed) from error


def _check(ok: bool, path: str, value: object, allowed: str) -> None:
    if not ok:
        raise UsageError(
            f"{path} is out of range", offered=f"{path}={value}", allowed=allowed, next_command=f"--set {path}=…"
        )
