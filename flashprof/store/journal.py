"""
A journal that only grows, and the folder around it, which one FlashProf owns at a time.

    reports/
      .<name>.lock  .<name>.owner.json   who works on it: beside the folder, which may be put aside as `<name>.old-1`
      <name>/
        study.json or search.json        format, version, question, and what else the latest call said
        journal.jsonl                    one fact a line: the only state
        launches/<run-id>/               run folders; `.<run-id>.part` until they are complete

A line is appended in one write and synced, so a kill at any byte costs at most the line that was being written.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from flashprof.store.run_folder import unwritable

JOURNAL = "journal.jsonl"
LAUNCHES = "launches"
EXPLAINED = "explained"
"""Launches with samplers that show why; no verdict is read from them, and no journal knows them."""

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Journal(Generic[Fact]):
    """Facts in a file, one a line."""

    path: Path
    encode: Callable[[Fact], Mapping[str, Any]]
    decode: Callable[[Mapping[str, Any]], Fact]
    """Raises a FormatError for what is no fact of this version."""
    noun: str
    """What the folder is to the user, in messages: `study`."""

    def append(self, fact: Fact) -> None:
        """
        Write down one fact; it is on the disk when this returns.

        Raises:
            ToolError: The disk is full or the folder is gone; the journal is as before.
        """
        line = json.dumps(self.encode(fact), allow_nan=False, separators=(",", ":")) + "\n"
        try:
            with self.path.open("ab") as file:
                before = file.tell()
                _append_whole(file.fileno(), line.encode(), before)
        except OSError as error:
            raise cannot_write(self.path.parent, error, self.noun) from error

    def read(self) -> tuple[Fact, ...]:
        """
        All that was written down, oldest first; a last line without its end is left out, and may still be written.

        Raises:
            FormatError: A line that was once complete is none any more, or is of a newer version.
        """
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content.split(b"\n")[:-1]
        return tuple(self._fact(line, f"{self.path}:{number}") for number, line in enumerate(lines, start=1))

    def drop_torn_line(self) -> None:
        """Cut off what follows the last line end: a line that a killed FlashProf was writing. For the owner only."""
        if self.path.exists():
            os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)

    def _fact(self, line: bytes, where: str) -> Fact:
        remedy = f"--fresh puts the {self.noun} aside and measures again"
        try:
            return self.decode(dict(json.loads(line)))
        except FormatError as error:
            raise FormatError(error.what, where=where, allowed=error.allowed, next_command=remedy) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise FormatError("a line of the journal is damaged", where=where, next_command=remedy) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderKind:
    """How folders of one kind are told from others, and what they are called."""

    noun: str
    """`study`: in messages, in the name of the document, and in its format, `flashprof-study`."""
    version: int
    work: str
    """What a second FlashProf is told: `the same comparison is under way`."""

    @property
    def document(self) -> str:
        """Name of the file that holds the question."""
        return f"{self.noun}.json"

    @property
    def format(self) -> str:
        """What that file says it is."""
        return f"flashprof-{self.noun}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOffLaunch:
    """A launch whose end the journal does not know."""

    run_id: str
    path: Path
    is_published: bool
    """Whether its run folder is complete; else it is what a killed FlashProf left."""


def launches_but(ended: Collection[str], folder: Path) -> tuple[CutOffLaunch, ...]:
    """Launches under *folder*, by name, whose run ids are not among those that have *ended*."""
    found = [_launch(path) for path in sorted((folder / LAUNCHES).iterdir()) if path.is_dir()]
    return tuple(launch for launch in found if launch.run_id not in ended)


@contextlib.contextmanager
def owned(path: Path, kind: FolderKind) -> Iterator[None]:
    """
    Be the only FlashProf that works on a folder, which need not exist.

    Raises:
        UsageError: Another one does, or the reports folder around it is not writable.
    """
    from filelock import FileLock, Timeout

    reports = path.parent
    owner = reports / f".{path.name}.owner.json"
    try:
        reports.mkdir(parents=True, exist_ok=True)
        # Beside the folder, which may be put aside. The kernel frees the lock of a process that was killed.
        lock = FileLock(reports / f".{path.name}.lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise _under_way(path, owner, kind) from error
    except OSError as error:
        raise unwritable(reports, error) from error
    try:
        # Only for the message that a second one gets; on a full disk that names nobody.
        with contextlib.suppress(OSError):
            owner.write_text(json.dumps({"host": platform.node(), "pid": os.getpid()}), encoding="utf-8")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def begin(
    journal: Journal[Any],
    kind: FolderKind,
    *,
    question: Mapping[str, Any],
    call: Mapping[str, Any],
    fresh: bool,
) -> None:
    """
    Make the owned folder ready: new, or as an earlier call left it, even if that was killed.

    Args:
        journal: The folder's.
        kind: The folder's.
        question: What is asked, as JSON holds it; the same from call to call.
        call: More entries for the document: what is known of the latest call.
        fresh: Put an earlier folder aside, as `<name>.old-1`, and begin anew.

    Raises:
        FormatError: The folder was written by another version.
        ToolError: The disk is full.
    """
    path = journal.path.parent
    if fresh and path.exists():
        _put_aside(path)
    document = path / kind.document
    is_new = not document.exists() and not journal.path.exists()
    if not is_new and read_document(path, kind).get("question") != question:
        what = f"the {kind.noun} folder holds another question"
        raise FormatError(what, where=str(document), next_command="--fresh")
    try:
        (path / LAUNCHES).mkdir(parents=True, exist_ok=True)
        journal.drop_torn_line()
    except OSError as error:
        raise cannot_write(path, error, kind.noun) from error
    content = {"format": kind.format, "version": kind.version, "question": question, **call}
    write_whole(document, json.dumps(content, indent=2, default=str) + "\n", kind.noun)


def read_document(path: Path, kind: FolderKind) -> dict[str, Any]:
    """
    What a folder's study.json or search.json holds.

    Raises:
        FormatError: The folder is of another kind or version, or none at all.
    """
    where = path / kind.document
    try:
        document = dict(json.loads(where.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"{path} is no {kind.noun} folder", where=str(where), next_command="--fresh") from error
    if document.get("format") != kind.format or document.get("version") != kind.version:
        raise FormatError(
            f"{kind.noun} folder format {document.get('format')} version {document.get('version')} is not known",
            where=str(path),
            allowed=f"{kind.format} version {kind.version}",
            next_command="--fresh puts it aside and measures again, or use the FlashProf that wrote it",
        )
    return document


def write_whole(path: Path, text: str, noun: str) -> None:
    """
    Write a file of the folder whole or not at all.

    Raises:
        ToolError: The disk is full or the folder is gone.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise cannot_write(path.parent, error, noun) from error


def cannot_write(folder: Path, error: OSError, noun: str) -> ToolError:
    """What to tell a user whose disk is full."""
    return ToolError(
        f"cannot write to the {noun} folder: {error.strerror or error}",
        where=str(folder),
        next_command=f"df -h {shlex.quote(str(folder.parent))}; the same command goes on where this one stopped",
    )


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


def _under_way(path: Path, owner: Path, kind: FolderKind) -> UsageError:
    who = "another FlashProf"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        document = json.loads(owner.read_text(encoding="utf-8"))
        who = f"process {document['pid']} on {document['host']}"
    return UsageError(
        f"{kind.work} is under way", where=str(path), offered=who, next_command="wait for it, or end it first"
    )
