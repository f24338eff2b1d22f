"""Run folders for the history: what was measured, when, on which branch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FlashProfError, FormatError, UsageError
from flashprof.contracts.history import HistoryLaunch
from flashprof.contracts.results import RunSummary
from flashprof.store import summary_file
from flashprof.store.from_json import from_json
from flashprof.store.history import history_path, launch_of, record_run, record_runs
from flashprof.store.run_folder import read_manifest
from flashprof.store.safe_read import names_in, read_document, read_head

CI_BRANCHES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
"""CI checks a commit out, and no branch."""
HEADER_BYTES = 4096
"""The first line of an events file takes about 200."""
HEAD_PREFIX = "ref: refs/heads/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What `flashprof history add` has done."""

    num_new: int
    num_known: int
    left_out: tuple[str, ...]
    """Folders that are no runs, each with the reason."""
    said: str = ""
    """That a broken file was set aside; empty else."""


def remember(folder: Path, env: Mapping[str, str]) -> str:
    """
    Keep a run that has just been published; never fails it.

    Args:
        folder: Of the run, among the reports.
        env: Environment of the command: `FLASHPROF_HISTORY`, and what CI says of the branch.

    Returns:
        A note for the user; empty where all is well.
    """
    path = history_path(folder.parent, env)
    if path is None:
        return ""
    try:
        return record_run(path, read_run(folder, env=env))
    except (FlashProfError, OSError) as error:
        what = error.what if isinstance(error, FlashProfError) else str(error)
        return f"the run is not in the history: {what}; try: flashprof history add {folder}"


def add_runs(history: Path, folders: Sequence[Path]) -> Added:
    """
    Keep runs that were measured earlier; those that are known stay as they are.

    Args:
        history: The file.
        folders: Run folders, or folders of them.

    Raises:
        UsageError: None of them is a run.
        FormatError, ToolError: The history cannot be used.
    """
    launches, left_out = [], []
    for folder in chain.from_iterable(map(_runs_of, folders)):
        try:
            launches.append(read_run(folder))
        except FormatError as error:
            left_out.append(f"{folder}: {error.what}")
    if not launches:
        raise UsageError(
            "none of these is a run that can be read",
            offered="; ".join(left_out) or ", ".join(map(str, folders)),
            allowed="folders that `flashprof run` wrote, or a folder of them",
            next_command="flashprof history add reports",
        )
    num_new, said = record_runs(history, launches)
    return Added(num_new=num_new, num_known=len(launches) - num_new, left_out=tuple(left_out), said=said)


def read_run(folder: Path, *, env: Mapping[str, str] | None = None) -> HistoryLaunch:
    """
    A run folder as the history keeps it.

    Args:
        folder: That was published.
        env: Of the command that measured it; None for an old run, whose branch nobody knows any more.

    Raises:
        FormatError: It is no run, or one that says nothing of its cell.
    """
    manifest = read_manifest(folder)
    facts = manifest.get("cell_facts")
    if not isinstance(facts, dict) or not facts:
        raise FormatError("it was cut off before its cell was known", next_command="flashprof run")
    try:
        raw = read_document(folder, "summary.json")
        if (raw.get("format"), raw.get("version")) != (summary_file.FORMAT, summary_file.VERSION):
            raise FormatError("its summary is of another version", next_command="measure again")
        summary = from_json(RunSummary, raw, "summary.json")
    except (FileNotFoundError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"its summary cannot be read: {error}", next_command="measure again") from error
    launch = launch_of(
        summary,
        {str(name): str(text) for name, text in facts.items()},
        started=_started(folder),
        folder=str(folder.absolute()),
        branch="" if env is None else _branch(manifest, env),
    )
    _check_texts(launch)
    return launch


def _check_texts(launch: HistoryLaunch) -> None:
    """A name on a disk may be made of any bytes; the store holds UTF-8, and one such run would keep all others out."""
    for field in fields(launch):
        text = str(getattr(launch, field.name))
        if text.encode(errors="ignore").decode() != text:
            raise FormatError(f"its {field.name} is no UTF-8 text", next_command="rename it, and add it again")


def _runs_of(folder: Path) -> Sequence[Path]:
    if (folder / "manifest.json").exists() or not folder.is_dir():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/manifest.json") if not path.parent.name.startswith("."))


def _started(folder: Path) -> str:
    """When its first process began to write; a trainer that writes no events began no later than its manifest says."""
    walls_ns = []
    with suppress(FileNotFoundError, FormatError):
        for name in names_in(folder, "events"):
            with suppress(FileNotFoundError, FormatError, ValueError, KeyError, TypeError, RecursionError):
                head = read_head(folder, "events", name, num_bytes=HEADER_BYTES)
                walls_ns.append(int(json.loads(head.partition(b"\n")[0])["wall_ns"]))
    at_s = min(walls_ns) / 1e9 if walls_ns else (folder / "manifest.json").stat().st_mtime
    try:
        return datetime.fromtimestamp(at_s, tz=UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError) as error:
        raise FormatError("its events are of no time", next_command="measure again") from error


def _branch(manifest: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """What CI says, else what the source tree has checked out; empty where neither does."""
    told = next((env[name] for name in CI_BRANCHES if env.get(name)), "")
    tree = (manifest.get("machine") or {}).get("source", {}).get("tree")
    if told or not tree:
        return told
    with suppress(OSError, UnicodeDecodeError):
        for folder in (Path(tree), *Path(tree).parents):
            git = folder / ".git"
            if git.is_file():
                # A worktree's own folder, below that of the repository.
                git = folder / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
            if git.is_dir():
                head = (git / "HEAD").read_text(encoding="utf-8").strip()
                return head.removeprefix(HEAD_PREFIX) if head.startswith(HEAD_PREFIX) else ""
    return ""
