"""
Folders that appear whole or not at all, and survive a kill or a power cut at any moment.

A folder is written under a hidden name, synced to the disk and renamed. One that goes is renamed before it is deleted,
so that what a kill leaves half deleted has a hidden name too. A folder that is replaced waits as `.NAME.replaced` until
the new one is in place: there is no moment without a whole one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PART = ".part"
REPLACED = ".replaced"
TRASH = ".trash"


@contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """An empty folder to write files into; it becomes *final* at the end, and vanishes on an error."""
    final.parent.mkdir(parents=True, exist_ok=True)
    restore_replaced(final)
    part = _hidden(final, PART)
    remove(part)
    part.mkdir()
    try:
        yield part
        _publish(part, final)
    except BaseException:
        # The disk may be full: what is left of the failed try would stand in the way of the next.
        shutil.rmtree(part, ignore_errors=True)
        restore_replaced(final)
        raise


def standing(final: Path) -> Path:
    """Where the whole folder lies just now: a kill between two renames leaves it under the hidden name."""
    replaced = _hidden(final, REPLACED)
    return replaced if replaced.exists() and not final.exists() else final


def remove(folder: Path) -> None:
    """Delete a folder; what a kill leaves of it cannot be taken for a whole one."""
    if not folder.exists():
        return
    trash = _hidden(folder, TRASH)
    shutil.rmtree(trash, ignore_errors=True)
    folder.rename(trash)
    shutil.rmtree(trash)


def sweep(root: Path, name: str) -> None:
    """Finish what a killed process began in *root* with folders of this name pattern, such as `step-*`."""
    for path in root.glob(f".{name}{REPLACED}"):
        restore_replaced(final_of_replaced(path))
    for path in root.glob(f".{name}{PART}"):
        remove(path)
    for path in root.glob(f".{name}{TRASH}"):
        shutil.rmtree(path)


def restore_replaced(final: Path) -> None:
    """Put back what was being replaced, unless the new one is in place."""
    replaced = _hidden(final, REPLACED)
    if final.exists():
        remove(replaced)
    elif replaced.exists():
        replaced.rename(final)


def final_of_replaced(path: Path) -> Path:
    """The name that a `.NAME.replaced` folder had."""
    return path.with_name(path.name.removeprefix(".").removesuffix(REPLACED))


def _publish(part: Path, final: Path) -> None:
    for path in part.iterdir():
        _sync(path)
    _sync(part)
    if final.exists():
        final.rename(_hidden(final, REPLACED))
    part.rename(final)
    _sync(final.parent)
    remove(_hidden(final, REPLACED))


def _hidden(folder: Path, ending: str) -> Path:
    return folder.with_name(f".{folder.name.removeprefix('.')}{ending}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
