"""
The folder of one question, all that was measured for it, by however many calls: what studies and searches share.

Their layout is in `study_folder` and `search_folder`, that of the files in `journal`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionKind(Generic[Fact]):
    """Questions of one kind, and what their journals hold."""

    folder: FolderKind
    prefix: str
    """Of the folders' names: `compare`."""
    encode: Callable[[Fact], Mapping[str, Any]]
    decode: Callable[[Mapping[str, Any]], Fact]
    """Raises a FormatError for what is no fact of this version."""
    ended_run_id: Callable[[Fact], str | None]
    """The launch that a fact says to have ended; None for a fact of another kind."""

    def name(self, question: DataclassInstance) -> str:
        """Name of the question's folder: equal for equal questions, on every machine."""
        text = json.dumps(asdict(question), sort_keys=True, ensure_ascii=True)
        return f"{self.prefix}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def journal(self, folder: Path) -> Journal[Fact]:
        """That of a folder."""
        return Journal(folder / JOURNAL, self.encode, self.decode, self.folder.noun)


@dataclass(frozen=True)
class QuestionFolder(Generic[Fact]):
    """A folder that this process owns, once it was `opened`."""

    path: Path
    kind: QuestionKind[Fact]

    @property
    def name(self) -> str:
        """The question's id."""
        return self.path.name

    @property
    def launches(self) -> Path:
        """Run folders of this question: the reports folder of its runs."""
        return self.path / LAUNCHES

    @property
    def journal(self) -> Path:
        """One observation a line."""
        return self.path / JOURNAL

    def append(self, observation: Fact) -> None:
        """
        Write down one observation; it is on the disk when this returns.

        Raises:
            ToolError: The disk is full or the folder is gone; the journal is as before.
        """
        self.kind.journal(self.path).append(observation)

    def observations(self) -> tuple[Fact, ...]:
        """
        All that was written down, oldest first.

        Raises:
            FormatError: A line that was once complete is none any more, or is of a newer version.
        """
        return self.kind.journal(self.path).read()

    def cut_off_launches(self) -> tuple[CutOffLaunch, ...]:
        """Launches that the journal does not know as ended, by name; what they have measured still counts."""
        ended = {run_id for fact in self.observations() if (run_id := self.kind.ended_run_id(fact)) is not None}
        return launches_but(ended, self.path)

    def write_text(self, name: str, text: str) -> None:
        """
        Write one file whole or not at all.

        Raises:
            ToolError: The disk is full or the folder is gone.
        """
        write_whole(self.path / name, text, self.kind.folder.noun)


@contextlib.contextmanager
def opened(
    folder: QuestionFolder[Any], question: DataclassInstance, *, call: Mapping[str, Any], fresh: bool
) -> Iterator[None]:
    """
    Own a folder: new, or as an earlier call left it, even if that was killed.

    Args:
        folder: Of the question.
        question: What is asked.
        call: More entries for its document: what is known of this call, kept for the reader.
        fresh: Put an earlier folder aside, as `<name>.old-1`, and begin anew.

    Raises:
        UsageError: Another FlashProf works on it, or the reports folder is not writable.
        FormatError: The folder was written by another version.
        ToolError: The disk is full.
    """
    kind = folder.kind
    with owned(folder.path, kind.folder):
        begin(kind.journal(folder.path), kind.folder, question=asdict(question), call=call, fresh=fresh)
        yield
