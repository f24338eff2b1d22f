"""Where a command is going to write, looked at before hours of work go into what it writes."""

from __future__ import annotations

import os
from pathlib import Path

from flashprof.contracts.errors import UsageError


def require_writable(path: Path | None, option: str) -> None:
    """
    Make sure that *path* can be made or written; nothing is made yet, so that a wrong command leaves nothing behind.

    Args:
        path: A file or a folder, there or not; None: the option was not given.
        option: That it came with, for the message.

    Raises:
        UsageError: The nearest folder above it is a file, or must not be written to.
    """
    if path is None:
        return
    place = path.absolute()
    while not os.path.lexists(place):
        place = place.parent
    is_way = place == path.absolute() or place.is_dir()
    if is_way and os.access(place, os.W_OK | (os.X_OK if place.is_dir() else 0)):
        return
    raise UsageError(
        f"{option}: cannot write there: {'no permission' if is_way else f'{place.name} is a file'}",
        where=str(place),
        offered=str(path),
        allowed="a place in a folder that can be written to",
        next_command=f"ls -ld {place}, or another {option}",
    )
