"""What a user is told of a repository that git does not show as it is needed."""

from __future__ import annotations

import shlex
from pathlib import Path

from flashprof.contracts.errors import UsageError


def foreign_repository(folder: Path, said: bytes) -> UsageError:
    """
    Somebody else's, in which git does nothing before it is told to.

    Args:
        folder: In it.
        said: What git printed.
    """
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    # Git spells the path as its configuration wants it.
    told = next((line for line in lines if line.startswith("git config ")), None)
    trust = told or f"git config --global --add safe.directory {shlex.quote(str(folder.resolve()))}"
    return UsageError(
        "the repository belongs to another user, and git does not trust it",
        where=str(folder),
        offered=lines[0],
        allowed=f"a repository of one's own, or one that git was told to trust: {trust}",
        next_command=trust,
    )


def no_commit(top: Path, name: str) -> UsageError:
    """A new one, whatever the revision *name* was to be."""
    return UsageError(
        "the repository has no commit yet",
        where=str(top),
        offered=name,
        allowed="a repository with commits",
        next_command=f"git -C {top} commit",
    )


def shallow_clone(top: Path, text: str) -> UsageError:
    """One whose clone left the past behind; *text* is what was asked for."""
    return UsageError(
        "this clone is shallow and does not reach so far back",
        where=str(top),
        offered=text,
        allowed="a clone that holds every commit of the range; in CI fetch-depth: 0",
        next_command=f"git -C {top} fetch --unshallow",
    )
