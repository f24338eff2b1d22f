"""
Commits as folders: git worktrees in a folder of the search's own.

The user's files, index, HEAD and branches are never touched; git keeps a record of each worktree in the repository's
`.git/worktrees` until it is removed. A worktree counts from the moment its `.ready` file is there, so one that a
`kill -9` left half-made is made again.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from flashprof.contracts.errors import ToolError, UsageError
from flashprof.launch.git import ask_git, call_git, last_line

KEEP = 8
"""128 commits of a tree of 100 MB would fill 13 GB; a search goes back and forth between a few."""
READY = ".ready"
SHORT = 12
"""Hexadecimal digits of an id in a folder's name."""


class Worktrees:
    """The worktrees of one search. Two processes must not use one folder at a time."""

    def __init__(self, repo: Path, folder: Path, *, keep: int = KEEP) -> None:
        if keep < 2:
            raise UsageError("a search needs two worktrees at a time", offered=str(keep), allowed=">= 2")
        self._repo = repo
        self._folder = folder.resolve()
        self._keep = keep

    def add(self, commit: str) -> Path:
        """
        The tree of a commit: as it was left, if nothing tracked has changed in it, else made anew.

        Args:
            commit: Full id.

        Raises:
            ToolError: Git cannot make it: no room, or objects are missing.
        """
        return self._have(commit[:SHORT], commit, reverted=None)[0]

    def without(self, bad: str, commit: str) -> Path | None:
        """
        The tree of *bad* with *commit* reverted; of a merge, what it brought to its first parent.

        Returns:
            None where the revert conflicts with what came after, or changes nothing.

        Raises:
            ToolError: Git cannot make the tree of *bad*.
        """
        path, is_reverted = self._have(f"{bad[:SHORT]}-without-{commit[:SHORT]}", bad, reverted=commit)
        return path if is_reverted else None

    def remove_all(self) -> None:
        """Remove every worktree of this search, and git's record of it, also of one whose folder is gone."""
        for path in sorted({*self._existing(), *self._recorded()}):
            self._remove(path)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _have(self, name: str, commit: str, *, reverted: str | None) -> tuple[Path, bool]:
        """The worktree, and whether the revert applied (True without one)."""
        path = self._folder / name
        if not self._is_as_left(path, commit):
            self._remove(path)
            self._make_room()
            self._make(path, commit)
            if reverted is not None and not _revert(path, commit, reverted):
                self._remove(path)
                return path, False
            _ready(path).write_text(_tree_id(path), encoding="ascii")
        now_ns = time.time_ns()
        os.utime(_ready(path), ns=(now_ns, now_ns))
        return path, True

    def _make(self, path: Path, commit: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = call_git(self._repo, "worktree", "add", "--detach", str(path), commit)
        if done.returncode:
            self._remove(path)
            raise ToolError(
                f"git cannot check out {commit[:SHORT]}: {last_line(done.stderr)}",
                where=str(path),
                next_command=f"df -h {self._folder}; git -C {self._repo} fsck",
            )

    def _is_as_left(self, path: Path, commit: str) -> bool:
        try:
            tree = _ready(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return False
        # Without its .git file, git would answer for the repository that the folder lies in.
        if not (path / ".git").is_file():
            return False
        head = call_git(path, "rev-parse", "HEAD")
        is_there = head.returncode == 0 and head.stdout.decode().strip() == commit
        return is_there and call_git(path, "diff", "--quiet").returncode == 0 and _tree_id(path) == tree

    def _make_room(self) -> None:
        """Leave one place free: the one used longest ago goes."""
        by_use = sorted(self._existing(), key=_used_ns)
        for path in by_use[: max(0, len(by_use) - self._keep + 1)]:
            self._remove(path)

    def _existing(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        made = [entry for entry in self._folder.iterdir() if entry.is_dir() or entry.name.endswith(READY)]
        names = {entry.name.removesuffix(READY) for entry in made}
        return [self._folder / name for name in sorted(names)]

    def _recorded(self) -> list[Path]:
        """As git knows them: of a search that was put aside the folders have gone, and their records have stayed."""
        lines = os.fsdecode(ask_git(self._repo, "worktree", "list", "--porcelain")).splitlines()
        paths = [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")]
        return [path for path in paths if path.parent == self._folder]

    def _remove(self, path: Path) -> None:
        _ready(path).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        # Git forgets a worktree whose folder is gone; forced twice, also one that was locked when its git was killed
        # while making it. Not `prune`, which forgets the user's as well.
        call_git(self._repo, "worktree", "remove", "--force", "--force", str(path))
        if path.exists():
            raise ToolError("a worktree cannot be removed", where=str(path), next_command=f"rm -r {path}")


def _ready(path: Path) -> Path:
    return path.with_name(path.name + READY)


def _used_ns(path: Path) -> int:
    return _ready(path).stat().st_mtime_ns if _ready(path).exists() else 0


def _tree_id(path: Path) -> str:
    """Id of all tracked content, as git's index has it."""
    return ask_git(path, "write-tree").decode().strip()


def _revert(path: Path, bad: str, commit: str) -> bool:
    """Undo a commit in the worktree, uncommitted; whether that could be done and changed something."""
    parents = ask_git(path, "rev-list", "--parents", "-n", "1", commit).split()[1:]
    mainline = ("-m", "1") if len(parents) > 1 else ()
    if call_git(path, "revert", "--no-commit", *mainline, commit).returncode:
        return False
    return _tree_id(path) != ask_git(path, "rev-parse", f"{bad}^{{tree}}").decode().strip()
