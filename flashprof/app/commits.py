"""From a commit's worktree to something that can be measured: its command, whether it starts at all, and its odds."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from flashprof.app.source import PACKAGE
from flashprof.app.subject import pipeline_command
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import parse_toggles, toggles_from_json
from flashprof.launch.environments import Environment
from flashprof.launch.git import Commit
from flashprof.launch.outcome import last_error

CHECK_TIMEOUT_S = 60.0
"""Listing toggles takes 0.3 s, on a cold network disk some seconds."""
SOURCE_FOLDER = "src"
"""Of a tree with its packages one folder down."""

NO_CHANGE_WEIGHT = 0.02
NEUTRAL_WEIGHT = 0.05
"""Documents, tests and CI: not 0, since a path says little about what a file is for."""
MERGE_WEIGHT = 0.3
"""Its branches' commits are in the range themselves; a merge brings only how they were joined."""
SOURCE_WEIGHT = 1.0

WORD = re.compile(r"[a-z]{3,}")

NEUTRAL_FOLDERS = frozenset(
    {"doc", "docs", "test", "tests", "testing", ".github", ".gitlab", ".circleci", ".buildkite", ".ci", ".vscode"}
)
NEUTRAL_ENDINGS = frozenset({".md", ".rst", ".adoc", ".ipynb", ".png", ".jpg", ".svg", ".gif", ".pdf", ".bib"})
NEUTRAL_NAMES = frozenset(
    {
        *("LICENSE", "LICENCE", "NOTICE", "AUTHORS", "CODEOWNERS", "CITATION.cff", "CHANGELOG", "README"),
        *(".gitignore", ".gitattributes", ".editorconfig", ".pre-commit-config.yaml", ".mailmap"),
        *(".gitlab-ci.yml", ".travis.yml", "azure-pipelines.yml", "Jenkinsfile", "conftest.py", "tox.ini"),
    }
)

COMPILE = """
import sys
for path in sys.stdin.read().split("\\0"):
    with open(path, "rb") as file:
        compile(file.read(), path, "exec", dont_inherit=True)
"""
"""Unlike `py_compile` it leaves no byte code in the worktree."""


class CommitSubject(NamedTuple):
    """How a commit is started."""

    spec: SubjectSpec
    env: dict[str, str]
    """Variables to add to FlashProf's own."""
    cwd: Path


def commit_subject(
    spec: SubjectSpec,
    worktree: Path,
    environment: Environment,
    command: Sequence[str] = (),
    *,
    repo: Path,
    cwd: Path,
    env: Mapping[str, str],
) -> CommitSubject:
    """
    The subject as this commit has it.

    The commit's tree stands first on `PYTHONPATH`, so that it wins over a package that is installed from the user's
    tree. The session puts today's emitter in front of it.

    Args:
        spec: What is asked of every commit: preset, toggles, seed.
        worktree: Top of the commit's tree.
        environment: Its interpreter and libraries.
        command: The user's command; none for our own pipeline.
        repo: Top of the user's tree.
        cwd: Where the user is. A command runs in the same folder of the worktree; our pipeline runs here, where the
            folders that its options name are meant.
        env: FlashProf's own environment.
    """
    folders = [str(path) for path in (worktree, worktree / SOURCE_FOLDER) if path == worktree or path.is_dir()]
    search_path = os.pathsep.join(part for part in (*folders, env.get("PYTHONPATH", "")) if part)
    added = {**environment.env, "PYTHONPATH": search_path}
    if not command:
        words = (environment.python, *pipeline_command(spec)[1:])
        return CommitSubject(replace(spec, kind=SubjectKind.PIPELINE, command=words), added, cwd)
    place = _same_folder(worktree, repo, cwd)
    words = (_program(command[0], place, cwd), *command[1:])
    return CommitSubject(replace(spec, kind=SubjectKind.FOREIGN, command=words), added, place)


def check_builds(
    worktree: Path,
    environment: Environment,
    subject: CommitSubject,
    *,
    changed: Collection[str],
    env: Mapping[str, str],
) -> tuple[Outcome, str]:
    """
    Whether a commit can be started at all, told in a second instead of after a start.

    Args:
        worktree: Top of the commit's tree.
        environment: Its interpreter and libraries.
        subject: How it will be started.
        changed: Paths that may differ from the good commit (`Range.changed_to`); the Python files among them must
            compile, tests and documents aside.
        env: FlashProf's own environment.

    Returns:
        `COMPLETED` and an empty reason; or how it fails, and why.
    """
    whole = {**env, **subject.env}
    files = [path for path in sorted(changed) if path.endswith(".py") and not is_neutral(path)]
    files = [path for path in files if (worktree / path).is_file()]
    compile_command = (environment.python, "-I", "-W", "ignore", "-c", COMPILE)
    outcome, said = _check(compile_command, whole, worktree, stdin="\0".join(files)) if files else _FINE
    if outcome is not Outcome.COMPLETED or subject.spec.kind is SubjectKind.FOREIGN:
        return outcome, said
    outcome, said = _check((environment.python, "-P", "-m", PACKAGE, "toggles", "--json"), whole, worktree)
    return _check_toggles(said, subject.spec.toggles) if outcome is Outcome.COMPLETED else (outcome, said)


def path_weights(commits: Sequence[Commit]) -> dict[str, float]:
    """
    How likely each commit is to have changed the speed, relative to a usual one, told from the paths that it changes.

    Args:
        commits: Of the range.

    Returns:
        Weight by id, all above 0.
    """
    return {commit.id: _weight(commit) for commit in commits}


def commit_words(commit: Commit) -> frozenset[str]:
    """What a commit is about: the words of its subject and of the paths that it changes, documents and tests aside."""
    texts = [commit.subject, *(path for path in commit.paths if not is_neutral(path))]
    return frozenset(word for text in texts for word in WORD.findall(text.lower()))


def is_neutral(path: str) -> bool:
    """Whether a path is of a document, a test, or CI."""
    pure = PurePosixPath(path)
    return (
        not NEUTRAL_FOLDERS.isdisjoint(pure.parts[:-1])
        or pure.suffix.lower() in NEUTRAL_ENDINGS
        or pure.name in NEUTRAL_NAMES
        or pure.match("test_*.py")
        or pure.match("*_test.py")
    )


_FINE = (Outcome.COMPLETED, "")


def _weight(commit: Commit) -> float:
    if commit.is_merge:
        return MERGE_WEIGHT
    if not commit.paths:
        return NO_CHANGE_WEIGHT
    return NEUTRAL_WEIGHT if all(is_neutral(path) for path in commit.paths) else SOURCE_WEIGHT


def _same_folder(worktree: Path, repo: Path, cwd: Path) -> Path:
    """The user's folder in the worktree; its top where the user is elsewhere, or the commit has no such folder."""
    here, top = cwd.resolve(), repo.resolve()
    place = worktree / here.relative_to(top) if here.is_relative_to(top) else worktree
    return place if place.is_dir() else worktree


def _program(word: str, place: Path, cwd: Path) -> str:
    """`.venv/bin/python` is in the user's tree, and in no commit."""
    is_path = os.sep in word and not Path(word).is_absolute()
    # Not resolved: a virtual environment's python is a link, and knows its environment by where the link is.
    return os.path.abspath(cwd / word) if is_path and not (place / word).exists() else word  # noqa: PTH100


def _check(command: Sequence[str], env: Mapping[str, str], cwd: Path, *, stdin: str = "") -> tuple[Outcome, str]:
    """How a short program ended, and its reason, or what it printed where it ended well."""
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome.TIMED_OUT, f"{command[-1]!r} had not ended after {CHECK_TIMEOUT_S:.0f} s"
    except OSError as error:
        return Outcome.LOAD_FAILED, f"{command[0]} cannot be started: {error.strerror}"
    if done.returncode:
        return Outcome.LOAD_FAILED, f"it does not build: {_place(done.stderr)}{last_error(done.stderr.splitlines())}"
    return Outcome.COMPLETED, done.stdout


def _place(said: str) -> str:
    """File and line that a traceback names last."""
    lines = [line.strip() for line in said.splitlines() if line.strip().startswith('File "')]
    return f"{lines[-1].removeprefix('File ')}: " if lines else ""


def _check_toggles(listed: str, expression: str) -> tuple[Outcome, str]:
    try:
        parse_toggles(expression, toggles_from_json(json.loads(listed)))
    except (ValueError, FlashProfError) as error:
        what = error.what if isinstance(error, FlashProfError) else "it lists no toggles"
        return Outcome.LOAD_FAILED, f"it does not build: {what}"
    return _FINE
