"""A case of the regression suite: one small file in `cases/`, read and checked here."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.search import SearchKind

CASES = Path(__file__).parent / "cases"
WORKLOADS = MappingProxyType(
    {
        # Milliseconds a step, of the drafter and of the target, one thread each, with `analytic-mask,early-exit`.
        "tiny": (),  # 138 and 95: the preset itself
        "small": ("--max-length", "256", "--buckets", "128,256", "--token-budget", "512", "--anchors", "16"),  # 24, 18
        "wide": ("--token-budget", "1024", "--anchors", "64"),  # 97 and 43
        "target": ("--token-budget", "1024", "--anchors", "16"),  # 30 and 44: the target limits
    }
)
"""Options of `train` over the tiny preset. A cause shows where its process limits, and best where steps are short."""

Files = dict[str, str]
"""Path within the tree to text."""


class Role(StrEnum):
    """What a commit that is no neutral filler does to tok/s."""

    LOSS = "loss"
    """A culprit."""
    GAIN = "gain"
    NEUTRAL = "neutral"
    """It changes something, but not tok/s."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One replacement in one file."""

    file: str
    old: str
    """Stands in the file exactly once."""
    new: str

    def fits(self, files: Mapping[str, str]) -> bool:
        """Whether it can be made."""
        return files.get(self.file, "").count(self.old) == 1

    def apply(self, files: Files) -> None:
        """
        Make it.

        Raises:
            ValueError: The old text is not there exactly once: the pipeline has changed since the case was written.
        """
        if not self.fits(files):
            count = files.get(self.file, "").count(self.old)
            raise ValueError(f"{self.file} holds this {count} times, not once:\n{self.old}")
        files[self.file] = files[self.file].replace(self.old, self.new)


@dataclass(frozen=True, kw_only=True)
class PlantedCommit:
    """A commit that the history holds besides neutral ones."""

    subject: str
    role: Role
    edits: tuple[Edit, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question with a known answer."""

    name: str
    title: str
    scenario: str
    """Number in `shared/scenarios.md`; `story`, or `own`."""
    kind: SearchKind
    verdict: Verdict
    toggles: str
    """Of every commit; empty where toggles are searched."""
    good: str
    bad: str
    """Toggle expressions; empty where commits are searched."""
    workload: str
    slow_down_pct: tuple[float, float]
    """In which range a plain measurement finds good over bad; the other case file's business where both are empty."""
    phases: tuple[str, ...]
    """`drafter mask`: any of them is right; empty where there is none to find."""
    frames: tuple[str, ...]
    culprits: tuple[tuple[str, ...], ...]
    """Toggles, or pairs of them, that are to be named; of commits, the roles say it."""
    before: tuple[Edit, ...] = ()
    """Made to the whole history: what a gain takes away, or what a toggle switches."""
    commits: tuple[PlantedCommit, ...] = ()
    fillers: tuple[str, ...] = ()
    """Kinds of neutral commits (`benchmarks.regressions.neutral`); empty: all."""

    @property
    def train_options(self) -> tuple[str, ...]:
        """Of the workload."""
        return WORKLOADS[self.workload]

    @property
    def is_control(self) -> bool:
        """Whether the right answer is that there is nothing to find."""
        return self.verdict is Verdict.NO_REGRESSION


def case_names() -> tuple[str, ...]:
    """All that there are."""
    return tuple(sorted(path.stem for path in CASES.glob("*.toml")))


def load_case(name: str, folder: Path = CASES) -> Case:
    """
    Read a case.

    Raises:
        ValueError: The file says something that does not go together.
    """
    raw = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    try:
        case = _from_raw(name, raw)
    except TypeError as error:
        raise ValueError(f"case {name}: {error}") from error
    _check(case)
    return case


def _from_raw(name: str, raw: dict[str, Any]) -> Case:
    commits = tuple(
        PlantedCommit(subject=item["subject"], role=Role(item["role"]), edits=_edits(item["edits"]))
        for item in raw.pop("commits", ())
    )
    low, high = raw.pop("slow_down_pct", (-3.0, 3.0) if "verdict" in raw else (8.0, 45.0))
    return Case(
        name=name,
        scenario=str(raw.pop("scenario")),
        kind=SearchKind(raw.pop("kind")),
        verdict=Verdict(raw.pop("verdict", Verdict.REGRESSION)),
        toggles=raw.pop("toggles", ""),
        good=raw.pop("good", ""),
        bad=raw.pop("bad", ""),
        workload=raw.pop("workload", "tiny"),
        slow_down_pct=(low, high),
        phases=tuple(raw.pop("phases", ())),
        frames=tuple(raw.pop("frames", ())),
        culprits=tuple(tuple(members) for members in raw.pop("culprits", ())),
        before=_edits(raw.pop("before", ())),
        commits=commits,
        fillers=tuple(raw.pop("fillers", ())),
        **raw,
    )


def _edits(raw: Any) -> tuple[Edit, ...]:
    return tuple(Edit(**item) for item in raw)


def _check(case: Case) -> None:
    finds = bool(case.culprits) or any(commit.role is Role.LOSS for commit in case.commits)
    if finds == case.is_control:
        raise ValueError(f"case {case.name}: a regression has a culprit, and a control has none")
    is_toggles = case.kind is SearchKind.TOGGLES
    if is_toggles != bool(case.good and case.bad) or is_toggles == bool(case.toggles):
        raise ValueError(f"case {case.name}: toggle cases have good and bad, commit cases toggles")
    if case.workload not in WORKLOADS:
        raise ValueError(f"case {case.name}: workload {case.workload!r} is none of {', '.join(WORKLOADS)}")
