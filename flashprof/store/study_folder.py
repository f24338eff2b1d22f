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
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
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
from flashprof.store.journal import (
    JOURNAL,
    LAUNCHES,
    CutOffLaunch,
    FolderKind,
    Journal,
    begin,
    launches_but,
    owned,
    write_whole,
)

__all__ = ["VERSION", "CutOffLaunch", "Question", "StudyFolder", "open_study", "study_id"]

VERSION = 1
STUDY = FolderKind(noun="study", version=VERSION, work="the same comparison")


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


@dataclass(frozen=True)
class StudyFolder:
    """A study that this process owns: opened by `open_study`."""

    path: Path

    @property
    def name(self) -> str:
        """The study's id."""
        return self.path.name

    @property
    def launches(self) -> Path:
        """Run folders of this study: the reports folder of its runs."""
        return self.path / LAUNCHES

    @property
    def journal(self) -> Path:
        """One observation a line."""
        return self.path / JOURNAL

    def append(self, observation: Observation) -> None:
        """
        Write down one observation; it is on the disk when this returns.

        Raises:
            ToolError: The disk is full or the folder is gone; the journal is as before.
        """
        _journal(self.path).append(observation)

    def observations(self) -> tuple[Observation, ...]:
        """
        All that was written down, oldest first.

        Raises:
            FormatError: A line that was once complete is none any more, or is of a newer version.
        """
        return _journal(self.path).read()

    def cut_off_launches(self) -> tuple[CutOffLaunch, ...]:
        """Launches that the journal does not know as ended, by name; complete blocks in their events still count."""
        ended = {
            observation.run_id
            for observation in self.observations()
            if isinstance(observation, HotEnded | ColdLaunch | ColdFailed)
        }
        return launches_but(ended, self.path)

    def write_text(self, name: str, text: str) -> None:
        """
        Write one file whole or not at all.

        Raises:
            ToolError: The disk is full or the folder is gone.
        """
        write_whole(self.path / name, text, STUDY.noun)


def study_id(question: Question) -> str:
    """Name of the question's folder: equal for equal questions, on every machine."""
    text = json.dumps(asdict(question), sort_keys=True, ensure_ascii=True)
    return f"compare-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def open_study(
    reports: Path, question: Question, *, plan: Mapping[str, Any], fresh: bool = False
) -> Iterator[StudyFolder]:
    """
    Begin a study, or go on with it where an earlier call stopped, even if that was killed.

    Args:
        reports: Folder of all runs and studies.
        question: What is asked.
        plan: Of this call, kept in study.json for the reader.
        fresh: Put an earlier study aside, as `<study-id>.old-1`, and begin anew.

    Raises:
        UsageError: Another FlashProf works on it, or the reports folder is not writable.
        FormatError: The folder was written by another version.
    """
    folder = StudyFolder(reports / study_id(question))
    with owned(folder.path, STUDY):
        begin(_journal(folder.path), STUDY, question=asdict(question), call={"plan": plan}, fresh=fresh)
        yield folder


def _journal(folder: Path) -> Journal[Observation]:
    return Journal(folder / JOURNAL, observation_to_json, observation_from_json, STUDY.noun)
