"""What a message says about a path that is not there, or is something else."""

from __future__ import annotations

import difflib
from pathlib import Path

from flashprof.contracts.errors import UsageError


def missing_path(path: Path, kind: str, *, allowed: str) -> UsageError:
    """The error to raise; offers the nearest name beside *path*."""
    if path.is_file():
        return UsageError(f"{path.name!r} is no {kind}", where=str(path), allowed=allowed)
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, names, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return UsageError(f"there is no {kind} {path.name!r}{hint}", where=str(path), allowed=allowed)
