"""Source trees of the pipeline: today's files, edited, as text in memory and as folders."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.regressions.case import Case, Files, Role

ROOT = Path(__file__).parents[2]
PARTS = ("flashprof", "pipeline", "pyproject.toml")
"""What a run needs; the subject's environment is judged by `pyproject.toml`."""
TEXT = frozenset({".py", ".toml", ".js", ".css", ".typed"})


def source_files(root: Path = ROOT) -> Files:
    """Today's source, with what is not committed: what git does not ignore, or all that there is without git."""
    command = ("git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--", *PARTS)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = done.stdout.splitlines() if done.returncode == 0 else []
    if not names:
        names = [path.relative_to(root).as_posix() for part in PARTS for path in _walk(root / part)]
    paths = ((name, root / name) for name in names)
    kept = ((name, path) for name, path in sorted(paths) if path.suffix in TEXT and path.is_file())
    return {name: path.read_text(encoding="utf-8") for name, path in kept}


def good_files(case: Case, source: Mapping[str, str]) -> Files:
    """The tree that the case's history begins with."""
    files = dict(source)
    for edit in case.before:
        edit.apply(files)
    return files


def bad_files(case: Case, source: Mapping[str, str], roles: frozenset[Role] = frozenset(Role)) -> Files:
    """The tree that it ends with, neutral fillers apart; of the planted commits, those with these *roles*."""
    files = good_files(case, source)
    for commit in case.commits:
        if commit.role in roles:
            for edit in commit.edits:
                edit.apply(files)
    return files


def write_tree(files: Mapping[str, str], folder: Path) -> Path:
    """Write *files* into *folder*, which is returned."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def _walk(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if "__pycache__" not in file.parts]
