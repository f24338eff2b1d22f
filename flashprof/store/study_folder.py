"""
The folder of a study: one question, all that was measured for it, by however many calls.

    reports/<study-id>/
      study.json         the question, and the plan of the latest call
      journal.jsonl      one observation a line: the study's only state
      launches/<run-id>/ run folders; `.<run-id>.part` while they are written, and for ever if they were cut off
      comparison.json  verdict.json  report.md …   made from the journal, again by every call

Format history
    1  2026-11  study.json, journal.jsonl, launches/
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flashprof.decide.observations import (
    ColdFailed,
    ColdLaunch,
    HotEnded,
    Observation,
    observation_from_json,
    observation_to_json,
)
from flashprof.store.journal import CutOffLaunch, FolderKind
from flashprof.store.question_folder import QuestionFolder, QuestionKind, opened

__all__ = ["VERSION", "CutOffLaunch", "Question", "StudyFolder", "open_study", "study_id"]

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked; not how sure the answer must be, nor how long it may take: those may change from call to call."""

    base: Mapping[str, str]
    """Facts of the base's cell that are known before a launch, by dotted name."""
    candidate: Mapping[str, str]
    method: str
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """What else makes blocks alike: how long a window is."""


def _ended_run_id(observation: Observation) -> str | None:
    return observation.run_id if isinstance(observation, HotEnded | ColdLaunch | ColdFailed) else None


STUDY: QuestionKind[Observation] = QuestionKind(
    folder=FolderKind(noun="study", version=VERSION, work="the same comparison"),
    prefix="compare",
    encode=observation_to_json,
    decode=observation_from_json,
    ended_run_id=_ended_run_id,
)
GATE: QuestionKind[Observation] = replace(STUDY, folder=replace(STUDY.folder, work="the same gate"), prefix="gate")
"""A study whose arms are trees."""


@dataclass(frozen=True)
class StudyFolder(QuestionFolder[Observation]):
    """A study that this process owns: opened by `open_study`."""

    kind: QuestionKind[Observation] = STUDY


def study_id(question: Question, kind: QuestionKind[Observation] = STUDY) -> str:
    """Name of the question's folder: equal for equal questions, on every machine."""
    return kind.name(question)


@contextlib.contextmanager
def open_study(
    reports: Path,
    question: Question,
    *,
    plan: Mapping[str, Any],
    fresh: bool = False,
    kind: QuestionKind[Observation] = STUDY,
) -> Iterator[StudyFolder]:
    """
    Begin a study, or go on with it where an earlier call stopped, even if that was killed.

    Args:
        reports: Folder of all runs and studies.
        question: What is asked.
        plan: Of this call, kept in study.json for the reader.
        fresh: Put an earlier study aside, as `<study-id>.old-1`, and begin anew.
        kind: Of the question.

    Raises:
        UsageError: Another FlashProf works on it, or the reports folder is not writable.
        FormatError: The folder was written by another version.
        ToolError: The disk is full.
    """
    folder = StudyFolder(reports / study_id(question, kind), kind)
    with opened(folder, question, call={"plan": plan}, fresh=fresh):
        yield folder
