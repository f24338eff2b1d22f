"""
The folder of a search: one question, all that was measured for it, by however many calls.

    reports/<search-id>/
      search.json        the question; of the latest call the plan, and the request as the user gave it
      journal.jsonl      one observation a line: the search's only state, to which `undo` and `skip` only add
      launches/<run-id>/ run folders of all cells; `.<run-id>.part` until they are complete
      result.json  report.md …   made from the journal, again by every call

`flashprof bisect status`, `log`, `undo`, `skip` and `--resume` need no more than this folder.

Format history
    1  2026-11  search.json, journal.jsonl, launches/
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from flashprof.contracts.errors import FormatError, UnknownNameError
from flashprof.contracts.search import SearchKind
from flashprof.decide.search_observations import (
    LaunchEnded,
    SearchObservation,
    search_observation_from_json,
    search_observation_to_json,
)
from flashprof.store.journal import JOURNAL, FolderKind, owned, read_document
from flashprof.store.question_folder import QuestionFolder, QuestionKind, opened

VERSION = 1
SEARCH = FolderKind(noun="search", version=VERSION, work="the same search")
_NAME = re.compile(r"bisect-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuestion:
    """What is asked; not how sure the answer must be, nor how long it may take: those may change from call to call."""

    kind: SearchKind
    good: Mapping[str, str]
    """Facts of the good cell that are known before a launch, by dotted name."""
    bad: Mapping[str, str]
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """What else makes readings alike: how long a window is, how an environment is made."""


class StoredSearch(NamedTuple):
    """What is on the disk of a search, whether or not one works on it now."""

    question: SearchQuestion
    request: Mapping[str, Any]
    """As the user gave it to the latest call."""
    observations: tuple[SearchObservation, ...]


def _ended_run_id(observation: SearchObservation) -> str | None:
    return observation.run_id if isinstance(observation, LaunchEnded) else None


_KIND: QuestionKind[SearchObservation] = QuestionKind(
    folder=SEARCH,
    prefix="bisect",
    encode=search_observation_to_json,
    decode=search_observation_from_json,
    ended_run_id=_ended_run_id,
)


@dataclass(frozen=True)
class SearchFolder(QuestionFolder[SearchObservation]):
    """A search that this process owns: opened by `open_search`."""

    kind: QuestionKind[SearchObservation] = _KIND


def search_id(question: SearchQuestion) -> str:
    """Name of the question's folder: equal for equal questions, on every machine."""
    return _KIND.name(question)


@contextlib.contextmanager
def open_search(
    reports: Path,
    question: SearchQuestion,
    *,
    plan: Mapping[str, Any],
    request: Mapping[str, Any],
    fresh: bool = False,
) -> Iterator[SearchFolder]:
    """
    Begin a search, or go on with it where an earlier call stopped, even if that was killed.

    Args:
        reports: Folder of all runs, studies and searches.
        question: What is asked.
        plan: Of this call, kept in search.json for the reader.
        request: Of this call, as JSON holds it, for calls that only say "the latest search".
        fresh: Put an earlier search aside, as `<search-id>.old-1`, and begin anew.

    Raises:
        UsageError: Another FlashProf works on it, or the reports folder is not writable.
        FormatError: The folder was written by another version.
        ToolError: The disk is full.
    """
    folder = SearchFolder(reports / search_id(question))
    with opened(folder, question, call={"plan": plan, "request": request}, fresh=fresh):
        # From now on this is the search that was worked on last, even if it is killed before it has learnt anything.
        folder.journal.touch()
        yield folder


def latest_search(reports: Path) -> Path | None:
    """The folder of the search that was worked on last; None where there is none. One put aside is not looked at."""
    worked_on = []
    for journal in reports.glob(f"bisect-*/{JOURNAL}"):
        # Another FlashProf may put it aside while we look.
        with contextlib.suppress(FileNotFoundError):
            if _NAME.fullmatch(journal.parent.name):
                worked_on.append((journal.stat().st_mtime_ns, journal.parent))
    return max(worked_on)[1] if worked_on else None


def read_search(path: Path) -> StoredSearch:
    """
    Read a search without owning it: it may be under way, and grow.

    Raises:
        UnknownNameError: There is no such search.
        FormatError: It is one of another version, or damaged.
    """
    document = _document(path)
    try:
        question, request = _question(document["question"]), dict(document["request"])
    except (KeyError, TypeError, ValueError) as error:
        where = str(path / SEARCH.document)
        raise FormatError(f"the search is damaged: {error!r}", where=where, next_command="--fresh") from error
    return StoredSearch(question, request, _KIND.journal(path).read())


def append_outside(path: Path, observation: SearchObservation) -> None:
    """
    Add what a user says about a search between two calls: `undo`, `skip`.

    Raises:
        UnknownNameError: There is no such search.
        UsageError: A FlashProf works on it.
        FormatError: It is one of another version.
        ToolError: The disk is full.
    """
    _document(path)
    with owned(path, SEARCH):
        journal = _KIND.journal(path)
        # Behind a torn line this one would be lost with it.
        journal.drop_torn_line()
        journal.append(observation)


def _document(path: Path) -> dict[str, Any]:
    if not (path / SEARCH.document).exists():
        names = [found.parent.name for found in sorted(path.parent.glob(f"bisect-*/{SEARCH.document}"))]
        raise UnknownNameError("search", path.name, names, next_command="--reports DIRECTORY, where its folder is")
    return read_document(path, SEARCH)


def _question(raw: Mapping[str, Any]) -> SearchQuestion:
    values = {item.name: raw[item.name] for item in fields(SearchQuestion)}
    facts = {name: dict(values[name]) for name in ("good", "bad", "settings")}
    return SearchQuestion(**{**values, **facts, "kind": SearchKind(values["kind"])})
