"""Where an export goes: standard output, or files that are whole or not there, and none replaced by chance."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TextIO

from flashprof.contracts.errors import ToolError, UsageError

STDOUT = Path("-")
GZIP_LEVEL = 4
"""A trace of the tiny preset shrinks to a sixth; level 6, the usual one, takes 1.6 times the time for 7 % less."""
Write = Callable[[str], object]


@contextmanager
def text_output(target: Path, *, force: bool) -> Iterator[Write]:
    """
    What writes text to *target*; compressed where its name ends with `.gz`.

    Args:
        target: A file, or `-` for standard output.
        force: Whether a file of that name may be replaced.

    Raises:
        UsageError: The file is there and *force* is not given, or it cannot be written.
        ToolError: The disk is full.
    """
    if target == STDOUT:
        yield sys.stdout.write
        return
    with new_files([target], force=force) as parts, _text_file(parts[target], is_packed=target.suffix == ".gz") as file:
        yield file.write


@contextmanager
def new_files(targets: Sequence[Path], *, force: bool) -> Iterator[Mapping[Path, Path]]:
    """
    Temporary names for some files, which become theirs together when all is written; none where anything fails.

    Args:
        targets: The files; their folders are made.
        force: Whether files of these names may be replaced.

    Raises:
        UsageError: A file is there and *force* is not given, or cannot be written.
        ToolError: The disk is full.
    """
    _refuse_taken(targets, force=force)
    parts = {target: target.with_name(f".{target.name}.{os.getpid()}.tmp") for target in targets}
    try:
        for target, part in parts.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            # A link of that name must not lead what is written elsewhere.
            part.unlink(missing_ok=True)
            part.open("x").close()
        yield parts
        for target, part in parts.items():
            part.replace(target)
    except OSError as error:
        # One that names a file was met while reading the run, unless it is of what is written.
        if error.filename is None or _is_below(error.filename, targets):
            raise _unwritable(targets[0], error) from error
        raise
    finally:
        for part in parts.values():
            if part.parent.is_dir():
                part.unlink(missing_ok=True)


def _refuse_taken(targets: Sequence[Path], *, force: bool) -> None:
    taken = [target for target in targets if os.path.lexists(target)]
    for target in taken:
        if not stat.S_ISREG(target.lstat().st_mode):
            raise UsageError(
                f"{target} is no plain file, and is not replaced",
                where=str(target),
                allowed="the name of a file, or - for standard output",
            )
    if taken and not force:
        raise UsageError(
            f"{taken[0]} exists" + (f", and {len(taken) - 1} more" if len(taken) > 1 else ""),
            where=", ".join(map(str, taken)),
            next_command="--force to replace, or another place to write to",
        )


@contextmanager
def _text_file(path: Path, *, is_packed: bool) -> Iterator[TextIO]:
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(path.open("wb"))
        if is_packed:
            # Neither name nor time in it: the same run gives the same bytes.
            packed = gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0)
            file = stack.enter_context(io.BufferedWriter(packed, 2**18))  # type: ignore[arg-type, unused-ignore]
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="\n"))


def _is_below(name: str, targets: Sequence[Path]) -> bool:
    """Whether *name* is a target's folder, one above it, or a temporary name in it."""
    return any(Path(name) in target.parents or Path(name).parent == target.parent for target in targets)


def _unwritable(target: Path, error: OSError) -> UsageError | ToolError:
    what = f"cannot write {target.name}: {error.strerror or error}"
    if error.errno == errno.ENOSPC:
        return ToolError(what, where=str(target), next_command=f"df -h {target.parent}, or another place to write to")
    return UsageError(what, where=str(target), next_command="another place to write to")
