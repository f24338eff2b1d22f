"""
The stack files of a run folder: `samples/<window>/<role>-<rank>.folded`, and what is beside them.

`<role>-<rank>.gil.folded` holds the stacks of the threads that held the GIL, `gil.json` how often was looked for one:
a look that finds nobody leaves no line. Folders of before 2026-12 have neither.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.errors import FormatError
from flashprof.contracts.profiles import StackView

LOOKS_FILE = "gil.json"
LOOKS_FORMAT, LOOKS_VERSION = "flashprof-gil", 1
MAX_FILE_BYTES = 64_000_000
"""A window of the 8-process preset leaves 0.2 MB a process; what is larger is no profile window's."""
_NAME = re.compile(r"(?P<role>.+)-(?P<rank>\d{1,9})(?P<gil>\.gil)?\.folded")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class StackFile:
    """What one py-spy left of one process in one window."""

    path: Path
    window: str
    role: str
    rank: int
    view: StackView


def stack_file_name(name: str, view: StackView) -> str:
    """The file of a process `<role>-<rank>`; py-spy's own words go into the same with another suffix."""
    return f"{name}.gil.folded" if view is StackView.GIL else f"{name}.folded"


def find_stack_files(samples: Path) -> list[StackFile]:
    """
    All of a run folder, windows in order of their numbers.

    Left out: links, which may lead out of the folder, and what `is_plain` refuses.
    """
    found = []
    for path in samples.glob("*/*.folded"):
        name = _NAME.fullmatch(path.name)
        if name is not None and is_plain(path) and not path.parent.is_symlink():
            view = StackView.GIL if name["gil"] else StackView.ALL
            found.append(StackFile(path, path.parent.name, name["role"], int(name["rank"]), view))
    return sorted(found, key=lambda file: (_in_order(file.window), file.role, file.rank, file.view))


def is_plain(path: Path) -> bool:
    """Whether there is a file that can be read without harm: no link, no pipe, and not larger than a file of ours."""
    return not path.is_symlink() and path.is_file() and path.stat().st_size <= MAX_FILE_BYTES


def read_lines(file: StackFile) -> list[str]:
    """Its lines; bytes that are no UTF-8 become replacement characters."""
    return file.path.read_text(encoding="utf-8", errors="replace").splitlines()


def write_looks(window: Path, num_looks: int) -> None:
    """Keep how often each process was looked at for the GIL view."""
    document = {"format": LOOKS_FORMAT, "version": LOOKS_VERSION, "num_looks": num_looks}
    (window / LOOKS_FILE).write_text(json.dumps(document) + "\n", encoding="utf-8")


def read_looks(window: Path) -> int:
    """
    How often each process was looked at for the GIL view; 0 where there is no such view.

    Raises:
        FormatError: Not the file that `write_looks` writes.
    """
    path = window / LOOKS_FILE
    if not is_plain(path):
        return 0
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        read = (document["format"], document["version"])
        num_looks = document["num_looks"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise FormatError(f"not a GIL view: {type(error).__name__}", where=str(path)) from error
    if read != (LOOKS_FORMAT, LOOKS_VERSION) or type(num_looks) is not int or num_looks < 0:
        raise FormatError(
            "a GIL view of another version",
            where=str(path),
            offered=f"{read[0]} {read[1]}, looks: {num_looks}"[:200],
            allowed=f"{LOOKS_FORMAT} {LOOKS_VERSION}, looks: 0 or more",
        )
    return num_looks


def _in_order(label: str) -> list[tuple[int, str]]:
    """`profile-2` before `profile-10`."""
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(label)]
