"""Writes what a gate has to say where CI looks for it."""

from __future__ import annotations

from collections.abc import Sequence

from flashprof.contracts.errors import ToolError
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


def _write(file: FileText) -> str:
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_appended:
            write_whole(file.path, file.text, "gate")
            return ""
        with file.path.open("a", encoding="utf-8") as target:
            target.write(file.text)
    except ToolError as error:
        return f"{file.path} is not written: {error.what}"
    except OSError as error:
        return f"{file.path} is not written: {error.strerror}"
    return ""
