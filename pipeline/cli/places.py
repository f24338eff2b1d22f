"""Paths of the command line, looked at before hours of work go into what is written there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import click

from flashprof.contracts.errors import UsageError


class NamedPath(click.Path):
    """A path with a name: of an empty variable of a script, `Path` would make the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path that *value* spells."""
        if not os.fspath(value):
            self.fail("an empty string is no path.", param, ctx)
        return super().convert(value, param, ctx)


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


def require_plain_file(path: Path | None, option: str) -> None:
    """
    Make sure that what a file at *path* replaces, if anything, is a plain file: neither a device nor a link.

    Args:
        path: Of the file, there or not; None: the option was not given.
        option: That it came with, for the message.

    Raises:
        UsageError: Something else is there, such as `/dev/stdout`.
    """
    if path is not None and os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise UsageError(
            f"{option}: {path} is no plain file, and is not replaced",
            where=str(path),
            allowed="the name of a file, there or not",
        )
