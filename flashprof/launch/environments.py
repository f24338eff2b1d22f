"""
The interpreter and libraries that a commit is measured with.

Today's, with the commit's tree first on `PYTHONPATH`; or, with a set-up command, one virtual environment for all
commits whose dependency files are the same, made once. It lies beside the worktrees, not in one: those come and go.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import SubjectError, ToolError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import LaunchSpec
from flashprof.launch.process import ProcessLauncher, ProcessSubject

SETUP_TIMEOUT_S = 1800.0
"""A cold download of a CUDA torch takes some minutes."""
POLL_S = 0.05
LOG_LINES = 3
"""Last lines of a failed set-up that its reason holds; the log has them all."""
LOCK_FILES = (
    *("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile", "Pipfile.lock"),
    *("setup.py", "setup.cfg", "environment.yml", "environment.yaml", ".python-version"),
)
LOCK_PATTERNS = ("requirements*.txt", "requirements/*.txt", "constraints*.txt")
PROJECT_KEYS = ("dependencies", "optional-dependencies", "requires-python", "dynamic")
TOOL_KEYS = ("dependencies", "dev-dependencies", "group", "sources", "index", "extras")
"""Of `tool.uv` and its like."""
TOOLS = ("uv", "poetry", "pdm")
"""They install without the environment's own pip, which takes 3 s to put there."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What to start a commit's programs with."""

    key: str
    """Equal for trees that can share it."""
    python: str
    """Path of the interpreter."""
    env: Mapping[str, str]
    """Variables to add to the environment: those of the virtual environment, none for today's."""
    note: str = ""
    """What to know when reading the numbers; empty for nothing."""


class Environments:
    """The environments of one search. Two processes must not use one folder at a time."""

    def __init__(
        self,
        folder: Path,
        repo: Path,
        env: Mapping[str, str],
        *,
        setup: Sequence[str] = (),
        timeout_s: float = SETUP_TIMEOUT_S,
    ) -> None:
        """
        Nothing is made yet.

        Args:
            folder: Where they are kept; made when it is needed.
            repo: Top of the user's tree, whose libraries today's interpreter is taken to have.
            env: The environment of FlashProf itself.
            setup: Command that installs a tree's libraries, run in the tree; none for today's interpreter.
            timeout_s: Longest that it may take.
        """
        self._folder = folder.resolve()
        self._repo = repo
        self._env = env
        self._setup = tuple(setup)
        self._timeout_s = timeout_s
        self._failed: dict[str, SubjectError] = {}

    def prepare(self, worktree: Path) -> Environment:
        """
        The environment of a tree, made where there is none yet for its dependency files.

        Raises:
            SubjectError: The set-up fails or takes too long; within one call of FlashProf it is not tried again.
            UsageError: There is no such command.
            ToolError: A virtual environment cannot be made, or the log not be written.
        """
        files = dependency_files(worktree)
        if not self._setup:
            return self._current(files)
        key = _key(files, self._setup)
        if key in self._failed:
            raise self._failed[key]
        place = self._folder / key
        found = Environment(key=key, python=str(place / "bin" / "python"), env=self._activated(place))
        if not self._mark(key).exists():
            self._make(place, found, worktree)
        return found

    def is_ready(self, worktree: Path) -> bool:
        """Whether `prepare` would take no time."""
        return not self._setup or self._mark(_key(dependency_files(worktree), self._setup)).exists()

    def _current(self, files: Mapping[str, str]) -> Environment:
        today = dependency_files(self._repo)
        changed = sorted(name for name in {*files, *today} if files.get(name) != today.get(name))
        note = (
            f"dependencies are not those of your working tree ({', '.join(changed)}): such commits were measured with "
            "the libraries that are installed now (--setup 'uv sync --frozen' installs each its own)"
        )
        return Environment(key=_key(files, ()), python=sys.executable, env={}, note=note if changed else "")

    def _activated(self, place: Path) -> dict[str, str]:
        path = self._env.get("PATH", os.defpath)
        return {"VIRTUAL_ENV": str(place), "PATH": f"{place / 'bin'}{os.pathsep}{path}"}

    def _mark(self, key: str) -> Path:
        return self._folder / f"{key}.ready"

    def _log(self, key: str) -> Path:
        return self._folder / f"{key}.log"

    def _make(self, place: Path, environment: Environment, worktree: Path) -> None:
        # What a killed set-up left half-made.
        shutil.rmtree(place, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        _make_venv(place, with_pip=Path(self._setup[0]).name not in TOOLS)
        try:
            self._install(place, environment, worktree)
        except SubjectError as error:
            self._failed[environment.key] = error
            raise
        self._mark(environment.key).touch()

    def _install(self, place: Path, environment: Environment, worktree: Path) -> None:
        # uv's `sync` heeds no VIRTUAL_ENV.
        env = {**self._env, **environment.env, "UV_PROJECT_ENVIRONMENT": str(place)}
        log = self._log(environment.key)
        spec = LaunchSpec(command=self._setup, cwd=worktree, env=env, log_path=log)
        process = ProcessLauncher().launch(spec)
        try:
            status = _wait(process, self._timeout_s)
        finally:
            # Also what it has started and left behind, and at a Ctrl-C.
            process.kill_tree()
        if status is None:
            what = f"the set-up command had not ended after {self._timeout_s:g} s: {_tail(log)}"
            raise SubjectError(what, outcome=Outcome.TIMED_OUT, where=str(log))
        if status:
            what = f"the set-up command ended with status {status}: {_tail(log)}"
            raise SubjectError(what, outcome=Outcome.LOAD_FAILED, where=str(log))


def dependency_files(tree: Path) -> dict[str, str]:
    """
    The files that say which libraries a tree needs: path from its top → digest of what counts in it.

    Of `pyproject.toml` only dependencies and build system count: a new version or lint rule asks for no other library.
    """
    names = [name for name in LOCK_FILES if (tree / name).is_file()]
    found = chain.from_iterable(tree.glob(pattern) for pattern in LOCK_PATTERNS)
    names += [path.relative_to(tree).as_posix() for path in found if path.is_file()]
    digests = {name: _digest((tree / name).read_bytes()) for name in sorted(names)}
    project = tree / "pyproject.toml"
    if project.is_file():
        digests[project.name] = _digest(_dependencies(project.read_bytes()))
    return digests


def _dependencies(content: bytes) -> bytes:
    try:
        document = tomllib.loads(content.decode())
        tools = {name: _part(document.get("tool", {}).get(name, {}), TOOL_KEYS) for name in TOOLS}
        kept = {
            "project": _part(document.get("project", {}), PROJECT_KEYS),
            "tools": {name: part for name, part in tools.items() if part},
            **_part(document, ("build-system", "dependency-groups")),
        }
    except (ValueError, AttributeError, TypeError):
        # What cannot be read counts whole.
        return content
    return json.dumps(kept, sort_keys=True, default=str).encode()


def _part(table: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}


def _key(files: Mapping[str, str], setup: Sequence[str]) -> str:
    facts = [sorted(files.items()), list(setup), list(sys.version_info[:3]), sys.executable]
    return _digest(json.dumps(facts).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _make_venv(place: Path, *, with_pip: bool) -> None:
    # As a program: its pip is installed by a process of its own in any case, and Ctrl-C then ends both.
    command = (sys.executable, "-m", "venv", *(() if with_pip else ("--without-pip",)), str(place))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise ToolError(
            "a virtual environment cannot be made",
            where=str(place),
            offered=said[-1] if said else None,
            next_command="apt-get install python3-venv",
        )


def _wait(process: ProcessSubject, timeout_s: float) -> int | None:
    """Its exit status; None where it still runs after the time."""
    deadline_s = time.monotonic() + timeout_s
    while (status := process.returncode()) is None and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    return status


def _tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-LOG_LINES:]) or "it printed nothing"
