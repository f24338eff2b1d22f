"""
Reading a folder that anybody may have made: no link is followed, nothing outside is read, nothing is waited for.

A file is opened by one name after the other below the reports folder, each of them refused where it is a link, and
with O_NONBLOCK, since opening a FIFO without a writer waits for ever.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from flashprof.contracts.errors import FormatError

MAX_DOCUMENT_BYTES = 8 * 2**20
"""A summary of the tiny preset takes 0.04 MB, a comparison of 100 blocks 0.1 MB."""
MAX_DEPTH = 40
"""Of nested lists and objects; ours have at most 9."""
MAX_ENTRIES = 20_000
"""Of one list or object: a page with more rows than this opens in no browser."""
MAX_TREE_ENTRIES = 20_000
"""Files and folders of a run's samples: one a process and profile window."""
MAX_INTEGER = 2**63
"""A larger one is no count and no time, and is too large for arithmetic with floats."""
REMEDY = "measure again, or move it elsewhere"
"""It may be anybody's file, met by a wrong path: nobody is told to remove it."""
OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def printable(text: str, *, most: int = 120) -> str:
    """A name from a disk on one line, whatever it is made of."""
    whole = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return whole if len(whole) <= most else whole[: most - 1] + "…"


def read_bytes(root: Path, *names: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """
    A plain file below *root*.

    Args:
        root: A folder that is trusted to be where it is.
        names: From there to the file, one folder after the other.
        max_bytes: A larger file is refused.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It cannot be read, is no plain file, is reached by a link, or is too large.
    """
    content = read_head(root, *names, num_bytes=max_bytes + 1)
    if len(content) > max_bytes:
        raise FormatError(
            f"{_where(names)} is larger than the {max_bytes / 2**20:.0f} MiB that a report reads",
            next_command=REMEDY,
        )
    return content


def read_head(root: Path, *names: str, num_bytes: int) -> bytes:
    """
    The first bytes of a plain file below *root*, as `read_bytes` reads it.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It cannot be read, is no plain file, or is reached by a link.
    """
    with _opened(root, names) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FormatError(f"{_where(names)} is no plain file", next_command=REMEDY)
        return _read_at_most(descriptor, num_bytes)


def names_in(root: Path, *names: str) -> list[str]:
    """
    What a folder below *root* holds, by name, at most `MAX_ENTRIES`.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It cannot be read, is no folder, or is reached by a link.
    """
    with _opened(root, names, last_flags=os.O_DIRECTORY) as descriptor, os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in islice(entries, MAX_ENTRIES))


def read_document(root: Path, *names: str) -> dict[str, Any]:
    """
    A JSON object in a plain file, with bounds on all that it holds.

    Raises:
        FileNotFoundError: There is no such file.
        FormatError: It cannot be read, or is no such document.
    """
    where = _where(names)
    content = read_bytes(root, *names)
    try:
        document = json.loads(content.decode("utf-8"), parse_constant=_no_number)
        if not isinstance(document, dict):
            raise TypeError("it is no object")
        _check_value(document, MAX_DEPTH)
    except RecursionError as error:
        raise FormatError(f"{where} is damaged: nested too deep", next_command="measure again") from error
    except (ValueError, TypeError) as error:
        what = printable(str(error), most=160)
        raise FormatError(f"{where} is damaged: {what}", next_command=REMEDY) from error
    return document


def has_file(root: Path, *names: str) -> bool:
    """Whether something of that name is there, even a link that leads nowhere."""
    return os.path.lexists(root.joinpath(*names))


def check_tree(root: Path, *, max_bytes: int) -> None:
    """
    Make sure that a whole folder may be read by code that knows nothing of hostile folders; one that is absent may.

    Raises:
        FormatError: It holds something other than plain files and folders, or too much of it.
    """
    num_bytes = 0
    for num_entries, entry in enumerate(_walk(root, MAX_DEPTH), start=1):
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            where = f"{root.name}/{printable(os.path.relpath(entry.path, root))}"
            raise FormatError(f"{where} is no plain file", next_command=REMEDY)
        num_bytes += status.st_size if stat.S_ISREG(status.st_mode) else 0
        if num_bytes > max_bytes or num_entries > MAX_TREE_ENTRIES:
            most = f"{max_bytes / 2**20:.0f} MiB or {MAX_TREE_ENTRIES:,} files"
            raise FormatError(f"{root.name} holds more than {most}", next_command=REMEDY)


def _walk(folder: Path, depth: int) -> Iterator[os.DirEntry[str]]:
    if folder.is_symlink():
        raise FormatError(f"{printable(folder.name)} is a link, and a report follows none", next_command=REMEDY)
    if not depth:
        raise FormatError(f"{printable(folder.name)} is nested too deep", next_command=REMEDY)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(Path(entry.path), depth - 1)
    except FileNotFoundError:
        return
    except OSError as error:
        what = f"{printable(folder.name)} cannot be read: {_reason(error)}"
        raise FormatError(what, next_command=_remedy(error)) from error


@contextmanager
def _opened(root: Path, names: Sequence[str], *, last_flags: int = 0) -> Iterator[int]:
    """A descriptor; each folder on the way is opened by the one above it, so that none is swapped for a link."""
    try:
        descriptor = _open_root(root)
        try:
            for place, name in enumerate(names, start=1):
                flags = OPEN_FLAGS | (last_flags if place == len(names) else os.O_DIRECTORY)
                inner = os.open(name, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FormatError(f"{_where(names)} cannot be read: {_reason(error)}", next_command=_remedy(error)) from error


def _open_root(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise FormatError(
            f"{printable(root.name)} is no folder",
            where=str(root),
            allowed="a folder that flashprof wrote, reports/RUN",
            next_command="flashprof run, for one",
        ) from error


def _where(names: Sequence[str]) -> str:
    return "/".join(map(printable, names)) or "the folder"


def _read_at_most(descriptor: int, num_bytes: int) -> bytes:
    parts, left = [], num_bytes
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _check_value(value: Any, depth: int) -> None:
    """Raise ValueError for what no document of ours holds, and what code behind this would stumble over."""
    match value:
        case str():
            # A lone surrogate is no text: it cannot be written as UTF-8 again.
            value.encode("utf-8")
        case bool() | None:
            pass
        case int() if abs(value) >= MAX_INTEGER:
            raise ValueError("a whole number is too large")
        case float() if not math.isfinite(value):
            raise ValueError("a number is too large")
        case dict() | list():
            if not depth:
                raise ValueError("nested too deep")
            if len(value) > MAX_ENTRIES:
                raise ValueError(f"a list has {len(value):,} entries, more than {MAX_ENTRIES:,}")
            for item in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
                _check_value(item, depth - 1)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _reason(error: OSError) -> str:
    # O_NOFOLLOW says ELOOP of a link; with O_DIRECTORY it says ENOTDIR, and of a plain file, too.
    texts = {errno.ELOOP: "it is a link, and a report follows none", errno.ENOTDIR: "it is a link, or no folder"}
    # A socket cannot be opened.
    texts |= {errno.ENXIO: "it is no plain file"}
    return texts.get(error.errno or 0, (error.strerror or str(error)).lower())


def _remedy(error: OSError) -> str:
    return "chmod u+r" if isinstance(error, PermissionError) else REMEDY
