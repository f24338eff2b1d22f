"""Writes what a gate has to say where CI looks for it."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from flashprof.contracts.errors import FlashProfError, UsageError
from flashprof.report.gate_files import FileText
from flashprof.store.journal import write_whole


def write_texts(files: Sequence[FileText]) -> tuple[str, ...]:
    """
    Write all that can be written.

    Args:
        files: From `gate_files`; folders are made.

    Returns:
        One line for each file that could not be: the verdict stands without it.
    """
    return tuple(why for file in files if (why := _write(file)))


def refuse_unwritable(paths: Collection[Path]) -> None:
    """
    Make sure, before anything is measured, that each path can be a file that is replaced as a whole.

    Raises:
        UsageError: One is a folder, a link, a device or a pipe.
    """
    for path in paths:
        if what := _not_replaced(path):
            raise UsageError(
                f"--write does not write to {path}: it {what}",
                offered=str(path),
                allowed="the name of a file, there already or not",
                next_command="another path; --json prints the result, and cat a file that was written",
            )


def _not_replaced(path: Path) -> str:
    """Why a file cannot take its place; empty where it can."""
    try:
        if path.is_dir():
            return "is a folder"
        # /dev/stdout is a link, and a rename takes it away from everybody on the machine.
        is_other = os.path.lexists(path) and (path.is_symlink() or not path.is_file())
    except OSError as error:
        return f"cannot be used: {error.strerror}"
    return "is no plain file, and is not replaced" if is_other else ""


def _write(file: FileText) -> str:
    what = "" if file.is_appended else _not_replaced(file.path)
    if what:
        return f"{file.path} is not written: it {what}"
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_appended:
            write_whole(file.path, file.text, "gate")
            return ""
        with file.path.open("a", encoding="utf-8") as target:
            target.write(file.text)
    except FlashProfError as error:
        return f"{file.path} is not written: {error.what}"
    except OSError as error:
        return f"{file.path} is not written: {error.strerror}"
    return ""
