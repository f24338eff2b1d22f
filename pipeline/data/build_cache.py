"""
Folders that are built once: whole or not there, whoever races and whoever is killed.

A build goes to a hidden `.<name>.part` folder, writes its manifest (size and checksum of every file) last, and
is renamed. A lock file keeps a dispatcher and its targets, which start together, from building the same thing
at once; a killed owner's lock is freed by the system.

Format history of the manifest
    1  2026-11  version, files: name to size_bytes and blake2b
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from flashprof.contracts.errors import ToolError
from pipeline.data.progress import say

VERSION = 1
MANIFEST = "manifest.json"
LARGEST_HASHED_BYTES = 64 * 2**20
"""Larger files are checked by size: blake2b reads 0.8 GB/s, and every start pays for the check."""
QUIET_WAIT_S = 2.0


def open_or_build(folder: Path, build: Callable[[Path], None], *, what: str) -> Path:
    """
    Return *folder*, built before or now.

    Args:
        folder: Where it is to lie; its parents are made.
        build: Fills the empty folder that it is given, without subfolders; may call `open_or_build` for other folders.
        what: Its name for people, such as `samples of stdlib`.

    Raises:
        ToolError: The disk is full, or the folder cannot be read or written.
    """
    # Without the lock first: a warm cache may lie on a disk that this user cannot write to.
    if _is_intact(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(folder.with_name(f".{folder.name}.lock"), what)
        try:
            if not _is_intact(folder):
                _rebuild(folder, build, what)
        finally:
            lock.release()
    except OSError as error:
        raise ToolError(
            f"cannot build {what}: {error.strerror or error}",
            where=str(folder),
            next_command=f"df -h {folder.parent}; ls -ld {folder.parent}   (space and permission), or delete {folder}",
        ) from error
    return folder


def _acquire(path: Path, what: str) -> FileLock:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=QUIET_WAIT_S)
    except Timeout:
        say(f"waiting for another process that builds {what}")
        lock.acquire()
    return lock


def _rebuild(folder: Path, build: Callable[[Path], None], what: str) -> None:
    if folder.exists():
        say(f"{what} in {folder} is damaged: building it anew")
        shutil.rmtree(folder)
    part = folder.with_name(f".{folder.name}.part")
    # The lock is ours, so a part folder that is there was left by a build that was killed.
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        build(part)
        _write_manifest(part)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_manifest(folder: Path) -> None:
    files = {path.name: _fingerprint(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"version": VERSION, "files": files}), encoding="utf-8")


def _is_intact(folder: Path) -> bool:
    try:
        raw = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(
            raw["version"] == VERSION
            and all(_fingerprint(folder / name) == expected for name, expected in raw["files"].items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _fingerprint(path: Path) -> dict[str, Any]:
    size_bytes = path.stat().st_size
    if size_bytes > LARGEST_HASHED_BYTES:
        return {"size_bytes": size_bytes}
    with path.open("rb") as file:
        return {"size_bytes": size_bytes, "blake2b": hashlib.file_digest(file, "blake2b").hexdigest()}
