"""What a command line makes of errors that no part of it has foreseen: a message, and a status that is no verdict."""

from __future__ import annotations

import errno
from pathlib import Path

from flashprof.contracts.errors import FlashProfError, ToolError, UsageError

NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
OF_AN_OUTPUT = (errno.EPIPE, errno.ENOSPC)


def failure_of(error: Exception) -> FlashProfError:
    """
    *error* as a user may meet it.

    Args:
        error: Whatever a command has ended with.

    Returns:
        It itself where it is one already; wrong use where a path cannot be; else a failure of the tool. The traceback
        of a bug is written to a file.
    """
    if isinstance(error, FlashProfError):
        return error
    system_error = _system_error(error)
    return _bug(error) if system_error is None else _failure_of_system(system_error)


def _system_error(error: Exception) -> OSError | None:
    if isinstance(error, RuntimeError):
        # Before Python 3.13 `Path.resolve` says so of a link that leads to itself.
        cause = error.__context__
        return cause if isinstance(cause, OSError) and cause.errno == errno.ELOOP else None
    return error if isinstance(error, OSError) else None


def _failure_of_system(error: OSError) -> FlashProfError:
    what, place = error.strerror or str(error), error.filename
    if error.errno in NO_SUCH_PATH and place:
        return UsageError(
            what,
            where=str(place),
            allowed="a path that exists or can be made: names of 255 bytes at most, no link to itself",
            next_command="another path",
        )
    if error.errno == errno.ENOENT and not _has_current_folder():
        return UsageError("the current folder is gone", allowed="a folder that exists", next_command="cd FOLDER")
    if place is None and error.errno in OF_AN_OUTPUT:
        place = "while writing the output"
    return ToolError(what if place is None else f"{what}: {place}")


def _has_current_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _bug(error: Exception) -> ToolError:
    # Here: every `--help` would wait for them.
    import tempfile
    import traceback

    what = f"{type(error).__name__}: {error}: this is a bug in FlashProf"
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="flashprof-", suffix=".traceback", encoding="utf-8", errors="replace", delete=False
        ) as file:
            file.write(text)
    except OSError:
        return ToolError(what, where=text)
    return ToolError(what, where=f"the traceback is in {file.name}", next_command="report it with that file")
