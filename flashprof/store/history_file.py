"""
One SQLite file for the history: opened, locked, checked, and set aside where it is broken.

SQLite and not DuckDB: several processes write, and DuckDB lets one in. The standard library's `sqlite3` and no layer
above it: five tables, fifteen statements. A write-ahead log where the file system is local. It needs memory that all
writers share, which a network has not: there it is a rollback journal, and a lock file around the whole connection.

Schema history
    1  2026-11  launches, cells, gates, acknowledgements, baselines
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from flashprof.contracts.errors import FormatError, ToolError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

APPLICATION_ID = 0x464C5052
"""`FLPR` in the file's header: another program's database is never written to."""
VERSION = 1
WAIT_S = 30.0
"""For another writer; each writes for some milliseconds."""
NETWORKS = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gpfs", "lustre", "nfs"),
        *("nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "vboxsf", "wekafs"),
    )
)
"""Types of file systems that other machines may have mounted, too."""
SET_ASIDE = ".broken-"
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
COMPANIONS = ("", "-wal", "-shm", "-journal")
LOW_BYTE = 0xFF
"""Of an extended error code: the error itself."""
SCHEMA = """
CREATE TABLE cells (cell TEXT PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE launches (
    id INTEGER PRIMARY KEY, host TEXT NOT NULL, kind TEXT NOT NULL, gate TEXT NOT NULL, run_id TEXT NOT NULL,
    started TEXT NOT NULL, folder TEXT NOT NULL, cell TEXT NOT NULL REFERENCES cells, title TEXT NOT NULL,
    commit_id TEXT NOT NULL, branch TEXT NOT NULL, toggles TEXT NOT NULL, outcome TEXT NOT NULL, log_tok_per_s REAL,
    error REAL, num_windows INTEGER NOT NULL, startup_s REAL, phases_ns_per_token TEXT NOT NULL,
    UNIQUE (host, kind, gate, run_id, started, cell)
);
CREATE INDEX launches_of_cells ON launches (cell, kind, started);
CREATE TABLE gates (
    gate TEXT NOT NULL, at TEXT NOT NULL, mode TEXT NOT NULL, base TEXT NOT NULL, head TEXT NOT NULL,
    base_commit TEXT NOT NULL, head_commit TEXT NOT NULL, cell TEXT NOT NULL, verdict TEXT NOT NULL,
    reason TEXT NOT NULL, is_failed INTEGER NOT NULL, change TEXT, spent_s REAL NOT NULL, UNIQUE (gate, at)
);
CREATE TABLE acknowledgements (
    cell TEXT NOT NULL, kind TEXT NOT NULL, run_id TEXT NOT NULL, started TEXT NOT NULL, why TEXT NOT NULL,
    who TEXT NOT NULL, at TEXT NOT NULL, UNIQUE (cell, kind, run_id, started)
);
CREATE TABLE baselines (
    name TEXT NOT NULL, cell TEXT NOT NULL, kind TEXT NOT NULL, run_ids TEXT NOT NULL, since TEXT NOT NULL,
    who TEXT NOT NULL, at TEXT NOT NULL
);
"""


@contextlib.contextmanager
def opened(
    path: Path, *, is_checked: bool = False, is_shared: bool | None = None
) -> Iterator[tuple[sqlite3.Connection, str]]:
    """
    A transaction on the store at *path*, which is made where there is none; kept when the block ends, undone else.

    Args:
        path: Of the file.
        is_checked: Look at every page first, 2 ms a MiB: a reader's job, since a writer may be in a hurry. A file
            that nobody may write to is only read then.
        is_shared: Other machines may have it open, too; None to look at its file system.

    Yields:
        The connection, and where a broken file was set aside, or what was written last cannot be seen, a sentence
        that says so; empty else.

    Raises:
        FormatError: It is of a newer version, or another program's.
        ToolError: It cannot be written, or another process does not let go of it.
    """
    try:
        place = _Place(path, is_shared=on_network(path) if is_shared is None else is_shared, is_checked=is_checked)
        if is_checked and _is_read_only(path):
            connection, said = _seen(place)
            with contextlib.closing(connection):
                yield connection, said
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) if place.is_shared else contextlib.nullcontext():
            connection, said = _sound(place)
            with contextlib.closing(connection):
                yield connection, said
                connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise _failed(path, str(error)) from error
    except UnicodeEncodeError as error:
        raise _failed(path, "a text to be kept is not UTF-8") from error
    except OSError as error:
        raise _failed(path, error.strerror or str(error)) from error


def on_network(path: Path, mounts: Sequence[tuple[str, str]] | None = None) -> bool:
    """
    Whether other machines may have the file open, too, so that no memory is shared by all who do.

    Args:
        path: Of the file, which need not be there.
        mounts: Where file systems are mounted, and their types, the oldest first; None for this machine's.
    """
    if mounts is None:
        import psutil

        mounts = [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
    folder = path.absolute().parent.resolve()
    holding = [
        (len(Path(mount).parts), place, kind)
        for place, (mount, kind) in enumerate(mounts)
        if folder.is_relative_to(mount)
    ]
    return max(holding, default=(0, 0, ""))[2] in NETWORKS


@dataclass(frozen=True)
class _Place:
    """A store, and how it is opened."""

    path: Path
    is_shared: bool
    is_checked: bool


def _sound(place: _Place) -> tuple[sqlite3.Connection, str]:
    """A connection within a transaction; a broken file has made way for a new one."""
    path = place.path
    if path.exists() and path.stat().st_size:
        try:
            return _begun(place), ""
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise
    # One at a time: two who turn a new file into one with a write-ahead log are in each other's way.
    with contextlib.nullcontext() if place.is_shared else _locked(path):
        try:
            # Another process may have been faster.
            return _begun(place), ""
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise
            aside = _set_aside(path)
            said = f"the history was broken ({error}) and is kept as {aside}; a new one begins"
            return _begun(place), said


def _begun(place: _Place) -> sqlite3.Connection:
    # With a lock file around it SQLite's own locks are not needed, and some networks have none.
    connection = _connected(place.path, "vfs=unix-none" if place.is_shared else "")
    try:
        if place.is_shared:
            # One that a local FlashProf left has a write-ahead log, which is read without shared memory only so.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        _check(connection, place)
        connection.execute(f"PRAGMA journal_mode = {'DELETE' if place.is_shared else 'WAL'}").fetchall()
        # A commit is on the disk when it returns: this file is all there is of the past.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_read_only(path: Path) -> bool:
    """Whether there is a file, and it or its folder, where a writer makes others beside it, may only be read."""
    return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _seen(place: _Place) -> tuple[sqlite3.Connection, str]:
    """A connection that only reads, as of a mounted archive or of somebody else's reports."""
    if not place.is_shared:
        # Fails where the file has a write-ahead log: its shared memory is a file beside it, which cannot be made here.
        with contextlib.suppress(sqlite3.OperationalError):
            return _read_only(place, "mode=ro"), ""
    log = place.path.with_name(f"{place.path.name}-wal")
    is_behind = log.exists() and log.stat().st_size > 0
    behind = f"the history can only be read here, and what was written last, {log.name}, is not seen"
    return _read_only(place, "mode=ro&immutable=1"), behind if is_behind else ""


def _read_only(place: _Place, options: str) -> sqlite3.Connection:
    connection = _connected(place.path, options)
    try:
        connection.execute("BEGIN")
        _check(connection, place)
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(path: Path, options: str) -> sqlite3.Connection:
    # The bytes of a name need not be text.
    address = f"file:{quote(os.fsencode(path.absolute()))}?{options}"
    connection = sqlite3.connect(address, uri=True, timeout=WAIT_S, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def _check(connection: sqlite3.Connection, place: _Place) -> None:
    """Refuse what is not ours before anything in it is changed."""
    version, application = _number(connection, "user_version"), _number(connection, "application_id")
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not is_empty and application != APPLICATION_ID:
        raise FormatError(
            "this is no history of FlashProf, but another program's database",
            where=str(place.path),
            next_command="FLASHPROF_HISTORY=OTHER.sqlite flashprof history",
        )
    if version > VERSION:
        raise FormatError(
            f"history version {version} is not known",
            where=str(place.path),
            allowed=f"version {VERSION} and older",
            next_command="use the FlashProf that wrote it, or FLASHPROF_HISTORY=OTHER.sqlite",
        )
    if place.is_checked and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        broken = sqlite3.DatabaseError("database disk image is malformed")
        broken.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise broken


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables of a new file; within the transaction, so that two who come at once make them once."""
    if _number(connection, "user_version") == VERSION:
        return
    for statement in SCHEMA.split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _locked(path: Path) -> AbstractContextManager[object]:
    from filelock import FileLock

    lock: AbstractContextManager[object] = FileLock(path.with_name(f".{path.name}.lock"), timeout=WAIT_S)
    return lock


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & LOW_BYTE in BROKEN


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}{SET_ASIDE}{number}")).exists():
        number += 1
    for companion in COMPANIONS:
        with contextlib.suppress(FileNotFoundError):
            # The journals keep their names' ends: they belong to the file, and may mend it.
            path.with_name(path.name + companion).rename(f"{aside}{companion}")
    return aside


def _failed(path: Path, why: str) -> ToolError:
    return ToolError(
        f"the history cannot be used: {why}",
        where=str(path),
        next_command=f"ls -l {path.parent}; or FLASHPROF_HISTORY=OTHER.sqlite",
    )
