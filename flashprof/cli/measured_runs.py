"""Runs that `flashprof run` has measured, as ends of a search: which subject they had, and which toggles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec, WindowPlan
from flashprof.contracts.search_request import subject_from_json, windows_from_json

PREFIX = "toggles."
SUBJECT_FIELDS = ("kind", "preset", "topology", "seed", "train_options")
"""What must be the same for all cells of a search, toggles apart."""
FOREIGN_FIELDS = ("kind", "command", "tok_per_s_pattern")
"""The same, of a trainer that is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a run says of itself."""

    path: Path
    subject: SubjectSpec
    windows: WindowPlan
    toggles: str
    """As an expression that names every toggle; empty where the subject has none."""


def read_run(path: Path) -> MeasuredRun:
    """
    Read a run's manifest.

    Raises:
        FormatError: It is damaged, of another version, or does not say what its cell was.
    """
    from flashprof.store.run_folder import read_manifest

    manifest = read_manifest(path)
    try:
        facts = dict(manifest["cell_facts"])
        experiment = manifest["experiment"]
        subject, windows = subject_from_json(experiment["subject"]), windows_from_json(experiment["windows"])
        names = [name for name in facts if name.startswith(PREFIX)]
        toggles = ",".join(f"{name.removeprefix(PREFIX)}={facts[name]}" for name in names)
    except (AttributeError, KeyError, TypeError, ValueError, UsageError) as error:
        raise FormatError(
            "the run does not say what its cell was",
            where=str(path / "manifest.json"),
            allowed="a complete run that was measured by this FlashProf",
            next_command="measure it again: flashprof run",
        ) from error
    return MeasuredRun(path=path, subject=subject, windows=windows, toggles=toggles)


def common_toggles(option: str, runs: Sequence[MeasuredRun]) -> str:
    """
    The toggles of the runs of one end.

    Raises:
        UsageError: They differ, or the runs know no toggles.
    """
    expressions = list(dict.fromkeys(run.toggles for run in runs))
    if len(expressions) > 1:
        raise UsageError(
            f"the runs of {option} differ in their toggles",
            offered="; ".join(f"{run.path.name}: {run.subject.toggles}" for run in runs),
            allowed="runs of one cell",
            next_command=f"{option} with one of them",
        )
    if not expressions[0]:
        raise UsageError(
            f"the run of {option} has no toggles",
            offered=str(runs[0].path),
            allowed="a run of a subject with toggles, or a toggle expression",
            next_command="flashprof run --toggles compile,swa",
        )
    return expressions[0]


def common_subject(runs: Sequence[MeasuredRun]) -> SubjectSpec:
    """
    What all runs measured, toggles apart.

    Raises:
        UsageError: They are of different subjects.
    """
    first = runs[0]
    for run in runs[1:]:
        refuse_other_subject(first.subject, run.subject, where=f"{first.path.name} and {run.path.name}")
    return first.subject


def refuse_other_subject(subject: SubjectSpec, other: SubjectSpec, *, where: str) -> None:
    """
    Make sure that two cells are of one subject.

    Raises:
        UsageError: They differ in a field; names it with both values.
    """
    is_foreign = SubjectKind.FOREIGN in (subject.kind, other.kind)
    names = FOREIGN_FIELDS if is_foreign else SUBJECT_FIELDS
    for name in names:
        first, second = getattr(subject, name), getattr(other, name)
        if first != second:
            raise UsageError(
                f"{where} are of different subjects",
                offered=f"{name}: {_text(first)} and {_text(second)}",
                allowed=f"the same {', '.join(names)}",
                next_command="flashprof run, with what both shall share",
            )


def _text(value: object) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
