"""
What the user asks `flashprof bisect`: two ends, how to measure between them, and when to stop.

Frozen, standard library only. A request is kept in its search's folder as JSON, so that `--resume` needs no arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.errors import FormatError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec, WindowPlan
from flashprof.contracts.search import SearchKind, SearchRule
from flashprof.contracts.study import ArmSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectRequest:
    """One search, as the command line gives it to `flashprof.app.search`."""

    kind: SearchKind
    good: ArmSpec | None = None
    """Of a search among toggles: the fast cell. None where commits are searched."""
    bad: ArmSpec | None = None
    commits: str = ""
    """`GOOD..BAD`, as git names them; empty where toggles are searched."""
    repo: Path = Path()
    """The repository of the commits, or a folder in it."""
    setup: str = ""
    """Shell command that makes a worktree's environment; empty for what FlashProf finds itself."""
    command: tuple[str, ...] = ()
    """What to start in each worktree; empty for our pipeline, or for a declared trainer."""
    cold_toggles: tuple[str, ...] = ()
    """Those among the differing ones that only a launch can set."""
    upstream_toggles: tuple[str, ...] = ()
    """Those among the differing ones that act in front of the queue."""
    subject: SubjectSpec
    """What all cells share; its toggles are the good cell's, or those of every commit."""
    subject_file: str = ""
    """Full path of the declaration of a foreign trainer; empty for our pipeline, or for a command."""
    windows: WindowPlan
    rule: SearchRule
    confirm: bool = True
    """Whether launches of one cell each confirm what was proved within one."""
    explain: bool = True
    """Whether launches with samplers show in which frames the culprit costs its time."""
    allow: tuple[str, ...] = ()
    """Facts of the cells, or whole sections, that may differ though they are not searched."""
    gpu_sets: tuple[tuple[int, ...], ...] = ()
    """As in `CompareRequest`."""
    fresh: bool = False
    """Put aside what an earlier call has measured."""
    reports: Path

    @property
    def under_test(self) -> tuple[str, ...]:
        """Names of the toggles in which the ends differ."""
        good, bad = (end.values if end is not None else {} for end in (self.good, self.bad))
        return tuple(sorted(name for name in {*good, *bad} if good.get(name) != bad.get(name)))


class HereStatus(StrEnum):
    """What the tree that is checked out is, to `git bisect run`."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"
    """It could not be measured, or lies between the two: it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HereRequest:
    """Whether the tree that is checked out is as fast as the good runs, or as slow as the bad ones."""

    good: tuple[Path, ...]
    """Run folders. What they measured is measured again here."""
    bad: tuple[Path, ...]
    subject: SubjectSpec
    """Of all the runs."""
    subject_file: str = ""
    """As in `BisectRequest`."""
    windows: WindowPlan
    rule: DecisionRule
    allow: tuple[str, ...] = ()
    reports: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HereResult:
    """The answer, and what it was read from."""

    status: HereStatus
    reason: str
    """One sentence."""


def request_to_json(request: BisectRequest) -> dict[str, Any]:
    """What JSON can hold; `request_from_json` reads it again."""
    return {**asdict(request), "repo": str(request.repo), "reports": str(request.reports)}


def request_from_json(raw: Mapping[str, Any]) -> BisectRequest:
    """
    Read a request; what this version does not know is left out, what it misses has its default.

    Raises:
        FormatError: It is no request.
    """
    readers = _readers()
    try:
        values = _known(BisectRequest, raw)
        return BisectRequest(**{name: readers[name](raw) if name in readers else raw for name, raw in values.items()})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"not a request to bisect: {error!r}", next_command="flashprof bisect --help") from error


def subject_from_json(raw: Mapping[str, Any]) -> SubjectSpec:
    """
    Read a subject, as requests and run folders keep it.

    Raises:
        TypeError, ValueError: It is none.
    """
    values = {**_known(SubjectSpec, raw), "kind": SubjectKind(raw.get("kind", SubjectKind.PIPELINE))}
    for name in ("command", "train_options"):
        values[name] = tuple(values.get(name, ()))
    facts = tuple((str(name), str(text)) for name, text in values.get("facts", ()))
    return SubjectSpec(**{**values, "facts": facts})


def windows_from_json(raw: Mapping[str, Any]) -> WindowPlan:
    """
    Read a plan of windows, as requests and run folders keep it.

    Raises:
        TypeError, UsageError: It is none.
    """
    return WindowPlan(**_known(WindowPlan, raw))


def _known(kind: type[Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    return {item.name: raw[item.name] for item in fields(kind) if item.name in raw}


def _arm(raw: Mapping[str, Any] | None) -> ArmSpec | None:
    return None if raw is None else ArmSpec(expression=raw["expression"], values=dict(raw["values"]))


def _rule(raw: Mapping[str, Any]) -> SearchRule:
    return SearchRule(**_known(SearchRule, raw))


def _gpu_sets(raw: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(numbers) for numbers in raw)


def _readers() -> dict[str, Callable[[Any], Any]]:
    """How fields come back from JSON, which knows neither tuples nor paths; the others come back as they are."""
    return {
        "kind": SearchKind,
        "good": _arm,
        "bad": _arm,
        "repo": Path,
        "reports": Path,
        "subject": subject_from_json,
        "windows": windows_from_json,
        "rule": _rule,
        "gpu_sets": _gpu_sets,
        "command": tuple,
        "cold_toggles": tuple,
        "upstream_toggles": tuple,
        "allow": tuple,
    }
