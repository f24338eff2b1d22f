"""
The folder of a study: one question, all that was measured for it, by however many calls.

    reports/<study-id>/
      study.json         the question, and the plan of the latest call
      journal.jsonl      one observation a line: the study's only state
      launches/<run-id>/ run folders; `.<run-id>.part` while they are written, and for ever if they were cut off
      comparison.json  verdict.json  report.md …   made from the journal, again by every call

A line is appended in one write and synced, so a kill at any byte costs at most the line that was being written.

Format history
    1  2026-11  study.json, journal.jsonl, launches/
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from flashprof.decide.observations import (
    ColdFailed,
    ColdLaunch,
    HotEnded,
    Observation,
    observation_from_json,
    observation_to_json,
)
from flashprof.store.run_folder import unwritable

FORMAT = "flashprof-study"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOffLaunch:
    """A launch whose end the journal does not know."""

    run_id: str
    path: Path
    is_published: bool
    """Whether its run folder is complete; else it is what a killed FlashProf left."""


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
        return self.path / "launches"

    @property
    def journal(self) -> Path:
        """One observation a line."""
        return self.path / "journal.jsonl"

    def append(self, observation: Observation) -> None:
        """
        Write down one observation; it is on the disk when this returns.

        Raises:
            ToolError: The disk is full or the folder is gone; the journal is as before.
        """
        line = json.dumps(observation_to_json(observation), allow_nan=False, separators=(",", ":")) + "\n"
        try:
            with self.journal.open("ab") as file:
                before = file.tell()
                _append_whole(file.fileno(), line.encode(), before)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def observations(self) -> tuple[Observation, ...]:
        """
        All that was written down, oldest first.

        Raises:
            FormatError: A line that was once complete is none any more, or is of a newer version.
        """
        lines = _whole_lines(self.journal)
        return tuple(_decode(line, f"{self.journal}:{number}") for number, line in enumerate(lines, start=1))

    def cut_off_launches(self) -> tuple[CutOffLaunch, ...]:
        """Launches that the journal does not know as ended, by name; complete blocks in their events still count."""
        known = {
            observation.run_id
            for observation in self.observations()
            if isinstance(observation, HotEnded | ColdLaunch | ColdFailed)
        }
        found = [_launch(path) for path in sorted(self.launches.iterdir()) if path.is_dir()]
        return tuple(launch for launch in found if launch.run_id not in known)

    def write_text(self, name: str, text: str) -> None:
        """
        Write one file whole or not at all.

        Raises:
            ToolError: The disk is full or the folder is gone.
        """
        temporary = self.path / f".{name}.tmp"
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self.path / name)
        except OSError as error:
            raise _cannot_write(self.path, error) from error


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
    from filelock import FileLock, Timeout

    path = reports / study_id(question)
    owner = reports / f".{path.name}.owner.json"
    try:
        reports.mkdir(parents=True, exist_ok=True)
        # Beside the folder, which may be put aside. The kernel frees the lock of a process that was killed.
        lock = FileLock(reports / f".{path.name}.lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise _under_way(path, owner) from error
    except OSError as error:
        raise unwritable(reports, error) from error
    try:
        owner.write_text(json.dumps({"host": platform.node(), "pid": os.getpid()}), encoding="utf-8")
        if fresh and path.exists():
            _put_aside(path)
        yield _prepare(path, question, plan)
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def _prepare(path: Path, question: Question, plan: Mapping[str, Any]) -> StudyFolder:
    folder = StudyFolder(path)
    asked = asdict(question)
    if (path / "study.json").exists() or folder.journal.exists():
        _check_study(path, asked)
    try:
        folder.launches.mkdir(parents=True, exist_ok=True)
        _drop_torn_line(folder.journal)
    except OSError as error:
        raise _cannot_write(path, error) from error
    document = {"format": FORMAT, "version": VERSION, "question": asked, "plan": plan}
    folder.write_text("study.json", json.dumps(document, indent=2, default=str) + "\n")
    return folder


def _check_study(path: Path, asked: Mapping[str, Any]) -> None:
    where = path / "study.json"
    try:
        document = dict(json.loads(where.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise FormatError(f"{path} is no study folder", where=str(where), next_command="--fresh") from error
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise FormatError(
            f"study folder format {document.get('format')} version {document.get('version')} is not known",
            where=str(path),
            allowed=f"{FORMAT} version {VERSION}",
            next_command="--fresh puts it aside and measures again, or use the FlashProf that wrote it",
        )
    if document.get("question") != asked:
        raise FormatError("the study folder holds another question", where=str(where), next_command="--fresh")


def _decode(line: bytes, where: str) -> Observation:
    remedy = "--fresh puts the study aside and measures again"
    try:
        return observation_from_json(dict(json.loads(line)))
    except FormatError as error:
        raise FormatError(error.what, where=where, allowed=error.allowed, next_command=remedy) from error
    except (ValueError, TypeError) as error:
        raise FormatError("a line of the journal is damaged", where=where, next_command=remedy) from error


def _whole_lines(journal: Path) -> list[bytes]:
    content = journal.read_bytes() if journal.exists() else b""
    return content.split(b"\n")[:-1]


def _drop_torn_line(journal: Path) -> None:
    """Cut off what follows the last line end: a line that a killed FlashProf was writing."""
    if journal.exists():
        os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)


def _append_whole(descriptor: int, line: bytes, before: int) -> None:
    """Append and sync, or leave the file at *before* bytes."""
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(None, "only a part could be written")
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def _launch(path: Path) -> CutOffLaunch:
    is_part = path.name.startswith(".") and path.name.endswith(".part")
    run_id = path.name[1 : -len(".part")] if is_part else path.name
    return CutOffLaunch(run_id=run_id, path=path, is_published=not is_part)


def _put_aside(path: Path) -> None:
    number = 1
    while (target := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    path.rename(target)


def _under_way(path: Path, owner: Path) -> UsageError:
    who = "another FlashProf"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(owner.read_text(encoding="utf-8"))
        who = f"process {document['pid']} on {document['host']}"
    return UsageError(
        "the same comparison is under way", where=str(path), offered=who, next_command="wait for it, or end it first"
    )


def _cannot_write(path: Path, error: OSError) -> ToolError:
    return ToolError(
        f"cannot write to the study folder: {error.strerror or error}",
        where=str(path),
        next_command=f"df -h {shlex.quote(str(path.parent))}; the same command goes on where this one stopped",
    )
