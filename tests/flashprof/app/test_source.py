"""The subject's source: its commit, what is changed in it, and its libraries, in trees made for the test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from flashprof.app.source import describe_tree, find_source
from flashprof.contracts.experiment import SubjectKind, SubjectSpec

PIPELINE = SubjectSpec()
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a package, a document, and one commit."""
    root = tmp_path / "tree"
    (root / "pipeline").mkdir(parents=True)
    (root / "pipeline" / "__init__.py").write_text("A = 1\n")
    (root / "README.md").write_text("words\n")
    (root / ".gitignore").write_text("*.pyc\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


def git(tree: Path, *words: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run((*GIT, *words), cwd=tree, check=True, capture_output=True, text=True, env=env).stdout.strip()


def foreign(*command: str) -> SubjectSpec:
    return SubjectSpec(kind=SubjectKind.FOREIGN, command=command)


def test_a_clean_tree_is_its_commit(tree: Path) -> None:
    assert {"commit": git(tree, "rev-parse", "HEAD")} == describe_tree(tree)


def test_the_pipeline_is_looked_for_where_the_subject_will_find_it(tree: Path, tmp_path: Path) -> None:
    from_path = find_source(PIPELINE, {"PYTHONPATH": f"nowhere{os.pathsep}tree"}, tmp_path)
    installed = find_source(PIPELINE, {}, tmp_path)

    assert (str(tree), git(tree, "rev-parse", "HEAD")) == (from_path["tree"], from_path["commit"])
    assert (Path(installed["tree"]) / "pipeline" / "supervise.py").is_file()


def test_changes_are_told_apart_and_those_of_documents_are_none(tree: Path) -> None:
    (tree / "README.md").write_text("other words\n")
    (tree / "pipeline" / "x.pyc").write_text("byte code")
    clean = describe_tree(tree)
    seen = []
    for text in ("A = 2\n", "A = 3\n", "A = 2\n"):
        (tree / "pipeline" / "__init__.py").write_text(text)
        seen.append(describe_tree(tree)["dirty"])

    assert {"commit"} == set(clean)
    assert (2, seen[0]) == (len(set(seen)), seen[2])


def test_staged_and_new_files_are_changes(tree: Path) -> None:
    (tree / "pipeline" / "new.py").write_text("B = 1\n")
    new = describe_tree(tree)["dirty"]
    (tree / "pipeline" / "new.py").write_text("B = 2\n")
    rewritten = describe_tree(tree)["dirty"]
    git(tree, "add", ".")
    staged = describe_tree(tree)["dirty"]

    assert 3 == len({new, rewritten, staged})


def test_what_every_run_leaves_behind_is_no_change(tree: Path) -> None:
    """Else no command would go on with what its first call has measured, where `reports/` is not ignored."""
    left = ("reports/run-1/report.md", "reports/run-1/emitter/flashprof/emit.py", "wandb/run.log", "Dur\udce9e.txt")
    for name in left:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("")

    assert {"commit"} == set(describe_tree(tree, "."))


def test_a_new_file_may_have_any_name(tree: Path) -> None:
    (tree / "pipeline" / "Dur\udce9e.py").write_text("A = 1\n")

    assert 12 == len(describe_tree(tree)["dirty"])


def test_an_exported_tree_says_its_commit_in_a_file(tmp_path: Path) -> None:
    before = describe_tree(tmp_path)
    (tmp_path / "COMMIT").write_text("abc123\n")

    assert ({}, {"commit": "abc123"}) == (before, describe_tree(tmp_path))


def test_a_package_that_a_repository_ignores_is_not_of_its_commit(tree: Path) -> None:
    (tree / ".gitignore").write_text(".venv/\n")
    packages = tree / ".venv" / "lib" / "python3.11" / "site-packages"
    (packages / "pipeline").mkdir(parents=True)
    (packages / "pipeline" / "__init__.py").write_text("")

    assert {} == describe_tree(packages)


def test_variables_of_a_git_hook_do_not_point_elsewhere(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")

    assert "commit" in describe_tree(tree)


def test_a_foreign_trainers_commit_is_that_of_its_script(tree: Path, tmp_path: Path) -> None:
    (tree / "train.py").write_text("")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "two")
    by_script = find_source(foreign("python", "tree/train.py", "--lr", "1"), {}, tmp_path)
    by_folder = find_source(foreign("no-such-trainer"), {}, tree)
    nowhere = find_source(foreign("no-such-trainer"), {}, tmp_path)

    assert git(tree, "rev-parse", "HEAD") == by_script["commit"] == by_folder["commit"]
    assert {"tree": str(tmp_path), "versions": {}} == nowhere


def test_a_foreign_trainers_libraries_are_those_beside_its_program(tmp_path: Path) -> None:
    program = tmp_path / "venv" / "bin" / "torchrun"
    info = tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "torch-2.11.0.dist-info" / "METADATA"
    for path, text in ((program, "#!/bin/sh\n"), (info, "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    program.chmod(0o755)
    by_path = find_source(foreign("torchrun", "a.py"), {"PATH": str(program.parent)}, tmp_path)
    by_name = find_source(foreign(str(program)), {}, tmp_path)

    assert {"python": "3.12", "torch": "2.11.0"} == by_path["versions"] == by_name["versions"]
