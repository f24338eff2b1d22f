"""Which source the subject runs: its tree, the commit, what is changed in it, and the versions of its libraries."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

from flashprof.app.machine import PACKAGES
from flashprof.contracts.experiment import SubjectKind, SubjectSpec

PACKAGE = "pipeline"
COMMIT_FILE = "COMMIT"
"""At the root of a tree that was exported without git, as `git archive` leaves it to a machine of a cluster."""
GIT_TIMEOUT_S = 10.0
CODE = frozenset({".py", ".pyx", ".sh", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h"})
"""Endings of what may be part of a program, of the files that git does not know."""
EMITTER_COPY = b"/emitter/flashprof/"
"""In each run folder, for the subject's Python to find."""


def find_source(subject: SubjectSpec, env: Mapping[str, str], cwd: Path) -> dict[str, Any]:
    """
    What the subject is made of, by looking at files: nothing of it is started or imported.

    Args:
        subject: Its kind and command.
        env: The environment in which it will run.
        cwd: Where it will be started.

    Returns:
        `tree`, and where they can be known `commit`, `dirty` (12 hexadecimal digits; absent for a clean tree) and,
        for a foreign trainer, `versions` by package.
    """
    if subject.kind is SubjectKind.FOREIGN:
        script = _script(subject.command, cwd)
        folder = script.parent if script else cwd
        versions = _foreign_versions(subject.command, env, cwd)
        return {"tree": str(folder), **describe_tree(folder, "."), "versions": versions}
    tree = _pipeline_tree(env, cwd)
    return {} if tree is None else {"tree": str(tree), **describe_tree(tree)}


def describe_tree(tree: Path, part: str = PACKAGE) -> dict[str, str]:
    """
    Commit and changes of a source tree, `{}` outside git.

    Args:
        tree: A folder in the tree.
        part: What of it is run, relative to the folder: changes elsewhere, as in documents, are none.
    """
    commit = _git(tree, "rev-parse", "HEAD")
    # A package in a virtual environment inside somebody's repository is not of that repository's commit.
    if commit is None or not _git(tree, "ls-files", "--", part):
        return _exported(tree)
    changes = _git(tree, "diff", "HEAD", "--", part) or b""
    listed = (_git(tree, "ls-files", "--others", "--exclude-standard", "-z", "--", part) or b"").split(b"\0")
    others = [tree / os.fsdecode(name) for name in sorted(listed) if _is_source(name)]
    found = {"commit": commit.decode().strip()}
    if changes or others:
        found["dirty"] = _fingerprint(changes, others)
    return found


def _exported(tree: Path) -> dict[str, str]:
    try:
        commit = (tree / COMMIT_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return {}
    return {"commit": commit} if commit else {}


def _is_source(name: bytes) -> bool:
    """
    Of an untracked file that git does not ignore: whether it may be what runs.

    Logs, caches, weights, and FlashProf's own reports with their copies of the emitter come with every run: with them
    among the changes, no command would go on with what its first call has measured.
    """
    return PurePath(os.fsdecode(name)).suffix in CODE and EMITTER_COPY not in b"/" + name


def _fingerprint(changes: bytes, others: list[Path]) -> str:
    digest = hashlib.sha256(changes)
    for path in others:
        digest.update(os.fsencode(path.name))
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _git(tree: Path, *words: str) -> bytes | None:
    """Git's answer; None where it has none. Its own variables are left out: in a hook they mean another tree."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ("git", "--no-optional-locks", "-C", str(tree), *words),
            env=env,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _pipeline_tree(env: Mapping[str, str], cwd: Path) -> Path | None:
    """Where the subject's Python will find the package: PYTHONPATH first, then where it is installed."""
    for entry in env.get("PYTHONPATH", "").split(os.pathsep):
        if entry and (cwd / entry / PACKAGE / "__init__.py").is_file():
            return (cwd / entry).resolve()
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.origin).resolve().parents[1] if spec and spec.origin else None


def _script(command: tuple[str, ...], cwd: Path) -> Path | None:
    return next((cwd / word for word in command if word.endswith((".py", ".sh")) and (cwd / word).is_file()), None)


def _foreign_versions(command: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Of the environment that the program lies in: `.venv/bin/torchrun` has its libraries in `.venv/lib`."""
    found = shutil.which(command[0], path=env.get("PATH")) if command else None
    if found is None:
        return {}
    prefix = (cwd / found).parent.parent
    if prefix.samefile(sys.prefix):
        return {"python": sys.version.split()[0], **_versions(sys.path)}
    folders = sorted(prefix.glob("lib/python3*/site-packages"))
    if not folders:
        return {}
    return {"python": folders[-1].parent.name.removeprefix("python"), **_versions([str(folders[-1])])}


def _versions(path: list[str]) -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        distribution = next(iter(metadata.distributions(name=name, path=path)), None)
        if distribution is not None:
            found[name] = distribution.version
    return found
