"""A commit's subject, its odds by its paths, and whether it starts: in trees made for the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flashprof.app.commits import (
    CommitSubject,
    check_builds,
    commit_subject,
    commit_words,
    is_neutral,
    path_weights,
)
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.outcome import Outcome
from flashprof.launch.environments import Environment
from flashprof.launch.git import Commit
from flashprof.store.run_folder import create_run_folder

TODAY = Environment(key="today", python=sys.executable, env={})
CLEAN = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
ROOT = Path(__file__).parents[3]


def write(tree: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return tree


def pipeline_tree(tree: Path, **toggles: str) -> Path:
    """A commit whose pipeline does nothing but list toggles."""
    listed = json.dumps([{"name": name, "help": text} for name, text in toggles.items()])
    return write(tree, {"pipeline/__init__.py": "", "pipeline/__main__.py": f"print({listed!r})\n"})


def subject_of(
    tree: Path, *command: str, spec: SubjectSpec | None = None, cwd: Path | None = None, **env: str
) -> CommitSubject:
    repo = tree.parent / "repo"
    where = cwd or repo
    return commit_subject(
        spec or SubjectSpec(toggles="swa"), tree, TODAY, command, repo=repo, cwd=where, env={**CLEAN, **env}
    )


def check(tree: Path, *command: str, changed: tuple[str, ...] = ()) -> tuple[Outcome, str]:
    return check_builds(tree, TODAY, subject_of(tree, *command), changed=changed, env=CLEAN)


def test_our_pipeline_is_the_commits(tmp_path: Path) -> None:
    spec = SubjectSpec(toggles="swa", train_options=("--cache", "mine"))
    subject = subject_of(tmp_path / "tree", spec=spec, cwd=tmp_path, PYTHONPATH="users")

    assert (sys.executable, "-P", "-m", "pipeline", "train") == subject.spec.command[:5]
    assert ("--cache", "mine") == subject.spec.command[-2:]
    assert f"{tmp_path / 'tree'}{os.pathsep}users" == subject.env["PYTHONPATH"]
    assert tmp_path == subject.cwd


def test_a_commits_own_environment_is_used(tmp_path: Path) -> None:
    own = Environment(key="own", python="/envs/own/bin/python", env={"VIRTUAL_ENV": "/envs/own"})
    subject = commit_subject(SubjectSpec(), tmp_path, own, repo=tmp_path, cwd=tmp_path, env=CLEAN)

    assert "/envs/own/bin/python" == subject.spec.command[0]
    assert {"VIRTUAL_ENV": "/envs/own", "PYTHONPATH": str(tmp_path)} == subject.env


def test_a_command_runs_in_the_users_folder_of_the_worktree(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {"train/train.py": "", "src/package/__init__.py": ""})
    write(tmp_path / "repo", {"train/.venv/bin/python": "", "gone/x": ""})
    subject = subject_of(tree, ".venv/bin/python", "train.py", cwd=tmp_path / "repo" / "train")

    assert SubjectKind.FOREIGN is subject.spec.kind
    assert (str(tmp_path / "repo/train/.venv/bin/python"), "train.py") == subject.spec.command
    assert f"{tree}{os.pathsep}{tree / 'src'}" == subject.env["PYTHONPATH"]
    assert tree / "train" == subject.cwd
    assert tree == subject_of(tree, "make", cwd=tmp_path / "repo" / "gone").cwd
    assert tree == subject_of(tree, "make", cwd=tmp_path).cwd


def test_a_program_in_the_worktree_is_the_commits(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {"train.sh": ""})
    write(tmp_path / "repo", {"train.sh": ""})

    assert "./train.sh" == subject_of(tree, "./train.sh").spec.command[0]
    assert "torchrun" == subject_of(tree, "torchrun", "train.py").spec.command[0]


def test_the_emitter_is_todays_in_every_commit(tmp_path: Path) -> None:
    tree = pipeline_tree(tmp_path / "tree")
    shutil.copytree(ROOT / "flashprof" / "contracts", tree / "flashprof" / "contracts")
    write(tree, {"flashprof/__init__.py": "", "flashprof/emit.py": "raise SystemExit('the old emitter')\n"})

    assert ["emitter", "tree"] == places_of(tmp_path, tree, "flashprof.emit", "pipeline")


def test_other_contracts_are_the_commits_own(tmp_path: Path) -> None:
    tree = pipeline_tree(tmp_path / "tree")
    shutil.copytree(ROOT / "flashprof" / "contracts", tree / "flashprof" / "contracts")
    broken = {f"flashprof/contracts/{name}.py": "raise SystemExit('old')\n" for name in ("control", "events")}
    write(tree, {"flashprof/__init__.py": "", "flashprof/contracts/only_then.py": "", **broken})
    modules = [f"flashprof.contracts.{name}" for name in ("control", "events", "toggles", "errors", "only_then")]

    assert ["emitter", "emitter", "tree", "tree", "tree"] == places_of(tmp_path, tree, *modules)


def test_a_commit_without_flashprof_finds_all_of_it_beside_the_emitter(tmp_path: Path) -> None:
    modules = [f"flashprof.contracts.{name}" for name in ("control", "errors", "toggles")]

    assert ["emitter"] * 3 == places_of(tmp_path, pipeline_tree(tmp_path / "tree"), *modules)


def places_of(tmp_path: Path, tree: Path, *modules: str) -> list[str]:
    """Where a commit's process finds modules: the emitter folder of the run, or the commit's tree."""
    folder = create_run_folder(tmp_path / "reports", "run")
    subject = subject_of(tree)
    search_path = f"{folder.emitter.resolve()}{os.pathsep}{subject.env['PYTHONPATH']}"
    env = {**CLEAN, **subject.env, "PYTHONPATH": search_path, "FLASHPROF_RUN_DIR": str(folder.part)}
    code = f"import importlib\nfor name in {modules!r}: print(importlib.import_module(name).__file__)\n"
    words = (subject.spec.command[0], "-P", "-c", f"{code}from flashprof import emit; emit.connect('t').close()")
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    names = {folder.emitter: "emitter", tree: "tree"}
    found = [Path(line) for line in done.stdout.splitlines()]
    return [name for path in found for root, name in names.items() if path.is_relative_to(root)]


def test_a_commit_that_starts_builds(tmp_path: Path) -> None:
    tree = pipeline_tree(tmp_path / "tree", swa="…")
    write(tree, {"pipeline/x.py": "A = 1\n"})

    assert (Outcome.COMPLETED, "") == check(tree, changed=("pipeline/x.py", "pipeline/removed.py"))
    assert (Outcome.COMPLETED, "") == check(tree)
    assert not list(tree.rglob("__pycache__"))


def test_a_commit_that_does_not_compile_does_not_build(tmp_path: Path) -> None:
    tree = write(pipeline_tree(tmp_path / "tree", swa="…"), {"pipeline/x y.py": "A = 1\ndef f(:\n"})
    outcome, reason = check(tree, changed=("pipeline/__main__.py", "pipeline/x y.py"))

    assert Outcome.LOAD_FAILED is outcome
    assert reason.startswith('it does not build: "pipeline/x y.py", line 2: SyntaxError')


@pytest.mark.parametrize("path", ["tests/test_x.py", "docs/conf.py", "old.txt"])
def test_what_no_run_needs_may_be_broken(tmp_path: Path, path: str) -> None:
    tree = write(pipeline_tree(tmp_path / "tree", swa="…"), {path: "def f(:\n"})

    assert (Outcome.COMPLETED, "") == check(tree, changed=(path,))


@pytest.mark.parametrize(
    ("main", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("print([])", "unknown toggle 'swa'"),
        ("print('hello')", "it lists no toggles"),
        ("print('[1]')", "not a registry of toggles"),
        ("raise SystemExit(2)", "it printed nothing"),
    ],
)
def test_a_pipeline_without_the_toggles_does_not_build(tmp_path: Path, main: str, why: str) -> None:
    tree = write(pipeline_tree(tmp_path / "tree"), {"pipeline/__main__.py": main})
    outcome, reason = check(tree)

    assert Outcome.LOAD_FAILED is outcome
    assert why in reason


def test_todays_own_tree_builds(tmp_path: Path) -> None:
    outcome, reason = check_builds(
        ROOT, TODAY, subject_of(ROOT, cwd=tmp_path), changed=("pipeline/toggles.py",), env=CLEAN
    )

    assert (Outcome.COMPLETED, "") == (outcome, reason)


def test_a_command_needs_no_pipeline(tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", {"train.py": "def f(:\n"})

    assert Outcome.COMPLETED is check(tree, "python", "train.py")[0]
    assert Outcome.LOAD_FAILED is check(tree, "python", "train.py", changed=("train.py",))[0]


def test_an_interpreter_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = Environment(key="gone", python=str(tmp_path / "python"), env={})
    outcome, reason = check_builds(tmp_path, gone, subject_of(tmp_path), changed=(), env=CLEAN)

    assert Outcome.LOAD_FAILED is outcome
    assert "cannot be started" in reason


def commit(*paths: str, parents: int = 1) -> Commit:
    name = "+".join(paths) or "empty"
    return Commit(id=name, parents=("p",) * parents, subject="", authored_s=0, paths=paths)


@pytest.mark.parametrize(
    ("weight", "made"),
    [
        (1.0, commit("pipeline/model/mask.py", "docs/x.md")),
        (1.0, commit("uv.lock")),
        (0.05, commit("README.md", "docs/conf.py", "tests/pipeline/test_x.py", ".github/workflows/ci.yml")),
        (0.02, commit()),
        (0.3, commit("pipeline/data/x.py", parents=2)),
        (1.0, commit("README.md", "pipeline/data/x.py")),
    ],
)
def test_weight_by_what_a_commit_changes(weight: float, made: Commit) -> None:
    assert {made.id: weight} == path_weights([made])


def test_a_commit_is_about_its_subject_and_its_sources() -> None:
    made = replace(commit("pipeline/model/mask_rule.py", "docs/queue.md", "tests/test_loss.py"), subject="Clip later")

    assert {"clip", "later", "pipeline", "model", "mask", "rule"} == commit_words(made)


@pytest.mark.parametrize(
    "path", ["docs.py", "pipeline/testing.py", "requirements.txt", "contest_results.py", "Makefile"]
)
def test_names_that_only_look_neutral_are_source(path: str) -> None:
    assert not is_neutral(path)


@pytest.mark.parametrize(
    "path", ["a/README", "x/test_a.py", "x/a_test.py", "conftest.py", "a.MD", "LICENSE", "a/tests/b/c.py"]
)
def test_documents_tests_and_ci_are_neutral(path: str) -> None:
    assert is_neutral(path)
