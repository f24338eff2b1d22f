"""
All that a folder of reports holds, as a page needs it: runs, comparisons, bisects, and a line for what is none of them.

Only what was written when a launch, a comparison or a bisect ended is read, never its events: 200 runs with a million
spans each are 14 GB. Nothing in the folder is trusted: see `flashprof.store.safe_read`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from flashprof.contracts.comparison import StudyResult
from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.results import RunSummary
from flashprof.contracts.search import SearchResult
from flashprof.contracts.site import BisectView, BrokenFolder, CompareView, RunView
from flashprof.store import run_folder, search_result, study_result, summary_file
from flashprof.store.calibration_file import FILE as CALIBRATION_FILE
from flashprof.store.from_json import from_json
from flashprof.store.journal import EXPLAINED, LAUNCHES
from flashprof.store.safe_read import has_file, names_in, printable, read_document, read_head

Kind = TypeVar("Kind")
View = TypeVar("View")

COMPARISON_FILE = "comparison.json"
MADE_OF = ("manifest.json", COMPARISON_FILE, "study.json", search_result.FILE, "search.json", "gate.json")
"""A file of these makes a folder one of those that a folder of reports holds."""
OWN_FOLDERS = ("report-figures",)
"""What `flashprof report` itself writes among the runs."""
PUT_ASIDE = ".old-"
HEADER_BYTES = 4096
"""The first line of an events file takes about 200."""
MAX_BROKEN_LAUNCHES = 5
GATE_PREFIX = "gate-"
"""Of one study that get a line each; more are counted."""
MAX_NAMED = 3
READ_AGAIN = "read it with the FlashProf that wrote it, or measure again"


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run and where it lies."""

    path: Path
    view: RunView
    """Without timeline, profiles and disturbances: they are read only where they are drawn."""


@dataclass(frozen=True, kw_only=True)
class StoredReports:
    """What one folder of reports holds, each the newest first."""

    runs: tuple[StoredRun, ...] = ()
    """Launches of comparisons and bisects, too."""
    compares: tuple[CompareView, ...] = ()
    bisects: tuple[BisectView, ...] = ()
    broken: tuple[BrokenFolder, ...] = ()
    notes: tuple[str, ...] = ()


class _Place(NamedTuple):
    """A folder below the folder of reports."""

    reports: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.reports.joinpath(*self.names)

    @property
    def shown(self) -> str:
        return "/".join(map(printable, self.names))

    def has(self, name: str) -> bool:
        return has_file(self.path, name)

    def document(self, name: str, format_: str, version: int, remedy: str) -> dict[str, Any]:
        """
        A document of the folder, of the only version that is known.

        Raises:
            FormatError: There is none that can be read.
        """
        try:
            document = read_document(self.reports, *self.names, name)
        except FileNotFoundError as error:
            raise FormatError(f"it has no {name}", next_command=remedy) from error
        found = f"{document.get('format')} version {document.get('version')}"
        if found != f"{format_} version {version}":
            what = f"{name}: format {printable(found)} is not known, only {format_} version {version}"
            raise FormatError(what, next_command=READ_AGAIN)
        return document


def read_reports(reports: Path, *, link: str = "") -> StoredReports:
    """
    Read a folder of reports. What cannot be read becomes a line; it never spoils the rest.

    Args:
        reports: The folder.
        link: What leads from the page to it, such as `../reports/`; empty for a page that lies in it.

    Raises:
        UsageError: There is no such folder, or it cannot be read, or it is itself a run, a comparison or a bisect.
    """
    _refuse_one(reports)
    reader = _Reader(reports, link)
    for name in _entries(reports):
        reader.read(name)
    return reader.found()


def _refuse_one(folder: Path) -> None:
    """What lies in the folder of a run would be called broken, one by one, and told to be removed."""
    if any((folder / name).is_file() for name in MADE_OF):
        parent = folder.resolve().parent
        raise UsageError(
            "this is the folder of one run, comparison, bisect or gate; a report is of the folder that it lies in",
            where=str(folder),
            next_command=f"flashprof report {shlex.quote(str(parent))}, or read {folder / 'report.md'}",
        )


class _Reader:
    """Collects what one folder of reports holds."""

    def __init__(self, reports: Path, link: str) -> None:
        self._reports = reports
        self._link = link
        self._runs: list[StoredRun] = []
        self._compares: list[CompareView] = []
        self._bisects: list[BisectView] = []
        self._broken: list[BrokenFolder] = []
        self._left_out: dict[str, list[str]] = {}

    def read(self, name: str) -> None:
        """Classify one entry and read it."""
        place = _Place(self._reports, (name,))
        if place.path.is_file() and not place.path.is_symlink():
            return
        if reason := _why_left_out(place):
            self._left_out.setdefault(reason, []).append(place.shown)
        elif not name.startswith(".") and name not in OWN_FOLDERS:
            self._try(place, partial(self._read, place))

    def found(self) -> StoredReports:
        """All that was read, the newest first."""
        notes = [f"left out, {reason}: {_few(names)}" for reason, names in sorted(self._left_out.items())]
        return StoredReports(
            runs=_newest(self._runs, lambda run: run.view.started),
            compares=_newest(self._compares, lambda view: view.started),
            bisects=_newest(self._bisects, lambda view: view.started),
            broken=tuple(self._broken),
            notes=tuple(notes),
        )

    def _try(self, place: _Place, read: Callable[[], None]) -> None:
        try:
            read()
        except FormatError as error:
            self._broken.append(broken(place.shown, error))
        except OSError as error:
            failed = FormatError(f"it cannot be read: {error.strerror or error}", next_command="remove it")
            self._broken.append(broken(place.shown, failed))

    def _read(self, place: _Place) -> None:
        names_in(place.reports, *place.names)
        if place.has("manifest.json"):
            self._run(place)
        elif place.has(COMPARISON_FILE) or place.has("study.json"):
            self._compare(place)
        elif place.has(search_result.FILE) or place.has("search.json"):
            self._bisect(place)
        else:
            raise FormatError(
                "it is no run, comparison or bisect", next_command="remove it, or leave it: it does no harm"
            )

    def _run(self, place: _Place, *, is_part_of: str = "") -> None:
        manifest = place.document("manifest.json", run_folder.FORMAT, run_folder.VERSION, "flashprof run")
        raw = place.document(
            "summary.json", summary_file.FORMAT, summary_file.VERSION, "measure it again: flashprof run"
        )
        summary = _made(RunSummary, raw, "summary.json")
        facts = manifest.get("cell_facts")
        view = RunView(
            folder=f"{self._link}{'/'.join(place.names)}/",
            # A copied folder is a run of its own; a launch is called by its comparison as it calls itself.
            summary=replace(summary, run_id=printable(place.names[-1])),
            facts={name: str(text) for name, text in facts.items()} if isinstance(facts, dict) else {},
            started=_started(place),
            is_part_of=is_part_of,
        )
        self._runs.append(StoredRun(path=place.path, view=view))

    def _compare(self, place: _Place) -> None:
        remedy = "the same `flashprof compare` again goes on where it stopped"
        started = self._launches(place)
        raw = place.document(COMPARISON_FILE, study_result.FORMAT, study_result.VERSION, remedy)
        result = replace(_made(StudyResult, raw, COMPARISON_FILE), study=place.shown)
        self._compares.append(
            CompareView(
                folder=f"{self._link}{place.names[0]}/",
                result=result,
                localisation=result.localisation,
                started=started,
            )
        )

    def _bisect(self, place: _Place) -> None:
        started = self._launches(place)
        raw = place.document(search_result.FILE, search_result.FORMAT, search_result.VERSION, search_result.REMEDY)
        result = replace(_made(SearchResult, raw, search_result.FILE), search=place.shown)
        self._bisects.append(
            BisectView(
                folder=f"{self._link}{place.names[0]}/",
                result=result,
                localisation=result.localisation,
                started=started,
            )
        )

    def _launches(self, place: _Place) -> str:
        """Read the launches of a study, and those that explain it; returns when the first of them began."""
        num_before, num_broken = len(self._runs), len(self._broken)
        for folder in (LAUNCHES, EXPLAINED):
            with suppress(FileNotFoundError):
                for name in names_in(place.reports, *place.names, folder):
                    if not name.startswith("."):
                        launch = _Place(place.reports, (*place.names, folder, name))
                        self._try(launch, partial(self._run, launch, is_part_of=place.shown))
        extra = self._broken[num_broken + MAX_BROKEN_LAUNCHES :]
        if extra:
            del self._broken[num_broken + MAX_BROKEN_LAUNCHES :]
            self._broken.append(BrokenFolder(folder=place.shown, line=f"{len(extra)} more launches cannot be read"))
        return min((run.view.started for run in self._runs[num_before:] if run.view.started), default="")


def broken(folder: str, error: FormatError) -> BrokenFolder:
    """One line for a folder: what is wrong, and the next command."""
    whole = f"{error.what}; try: {error.next_command}" if error.next_command else error.what
    return BrokenFolder(folder=folder, line=printable(whole, most=400))


def _entries(reports: Path) -> Sequence[str]:
    hint = "flashprof run, or flashprof report DIRECTORY"
    try:
        return names_in(reports)
    except FileNotFoundError as error:
        raise UsageError("there is no such folder of reports", where=str(reports), next_command=hint) from error
    except FormatError as error:
        what = "the folder of reports cannot be read" if reports.is_dir() else "it is no folder of reports"
        raise UsageError(what, where=str(reports), next_command=hint) from error


def _why_left_out(place: _Place) -> str:
    name = place.names[0]
    if name.startswith(".") and name.endswith(".part"):
        return "under way or cut off"
    if place.path.is_symlink():
        return "links, of which a report follows none"
    if name.startswith("."):
        return ""
    if PUT_ASIDE in name:
        return "put aside by --fresh"
    if name.startswith(GATE_PREFIX):
        return "gates, whose report.md says what they found"
    return "calibrations with a page of their own" if place.has(CALIBRATION_FILE) else ""


def _made(kind: type[Kind], raw: Mapping[str, Any], name: str) -> Kind:
    """
    The dataclass of a document.

    Raises:
        FormatError: It is damaged; says where.
    """
    try:
        return from_json(kind, raw, name)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"damaged: {printable(str(error))}", next_command=READ_AGAIN) from error


def _started(place: _Place) -> str:
    """When the first process of a launch began to write, ISO 8601; empty where no events say so."""
    try:
        names = names_in(place.reports, *place.names, "events")
    except (FileNotFoundError, FormatError):
        return ""
    walls_ns = [_wall_ns(place, name) for name in names if name.endswith(".jsonl")]
    first_ns = min((wall_ns for wall_ns in walls_ns if wall_ns > 0), default=0)
    try:
        return datetime.fromtimestamp(first_ns / 1e9, tz=UTC).isoformat(timespec="seconds") if first_ns else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _wall_ns(place: _Place, name: str) -> int:
    try:
        head = read_head(place.reports, *place.names, "events", name, num_bytes=HEADER_BYTES)
        wall_ns = json.loads(head.partition(b"\n")[0])["wall_ns"]
    except (OSError, FormatError, ValueError, KeyError, TypeError, RecursionError):
        return 0
    return wall_ns if isinstance(wall_ns, int) and not isinstance(wall_ns, bool) else 0


def _newest(views: Sequence[View], started: Callable[[View], str]) -> tuple[View, ...]:
    """By time, and where that is unknown, last; the entries came by name."""
    return tuple(sorted(views, key=started, reverse=True))


def _few(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
