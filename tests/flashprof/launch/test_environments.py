"""Environments: the same one while the dependency files are the same, and a set-up that is run once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.outcome import Outcome
from flashprof.launch.environments import Environments, dependency_files

PROJECT = """
[project]
name = "x"
version = "{version}"
dependencies = ["{dependency}"]
[tool.ruff]
line-length = {width}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Makes a source tree of files."""

    def make(name: str, **files: str) -> Path:
        folder = tmp_path / name
        for file, text in files.items():
            path = folder / file.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folder.mkdir(exist_ok=True)
        return folder

    return make


def project(version: str = "1", dependency: str = "numpy", width: int = 80) -> str:
    return PROJECT.format(version=version, dependency=dependency, width=width)


def test_a_new_version_or_lint_rule_needs_no_other_library(tree: Callable[..., Path]) -> None:
    first = dependency_files(tree("1", pyproject_toml=project()))
    same = dependency_files(tree("2", pyproject_toml=project(version="2", width=120), README_md="words"))
    other = dependency_files(tree("3", pyproject_toml=project(dependency="torch")))

    assert first == same
    assert first != other


@pytest.mark.parametrize("name", ["uv_lock", "requirements_txt", "requirements__gpu_txt", "setup_py", "setup_cfg"])
def test_other_dependency_files_count_whole(tree: Callable[..., Path], name: str) -> None:
    none, one, two = (dependency_files(tree(str(n), **files)) for n, files in enumerate(({}, {name: "1"}, {name: "2"})))

    assert {} == none
    assert one.keys() == two.keys()
    assert one != two


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("[dependency-groups]\ndev = ['a']", "[dependency-groups]\ndev = ['b']"),
        ("[tool.uv.sources]\na = {path = 'a'}", "[tool.uv.sources]\na = {path = 'b'}"),
        ("[tool.poetry.dependencies]\na = '1'", "[tool.poetry.dependencies]\na = '2'"),
        ("[build-system]\nrequires = ['a']", "[build-system]\nrequires = ['b']"),
        ("not toml 1", "not toml 2"),
        ("project = 1", "project = 2"),
        ("tool = 1", "tool = 2"),
    ],
)
def test_each_way_to_name_dependencies_counts(tree: Callable[..., Path], one: str, two: str) -> None:
    assert dependency_files(tree("1", pyproject_toml=one)) != dependency_files(tree("2", pyproject_toml=two))


def test_todays_interpreter_serves_all_and_says_where_it_may_not(tree: Callable[..., Path], tmp_path: Path) -> None:
    repo, same = tree("repo", pyproject_toml=project()), tree("same", pyproject_toml=project(version="0"))
    environments = Environments(tmp_path / "envs", repo, {})
    fit = environments.prepare(same)
    other = environments.prepare(tree("other", pyproject_toml=project(dependency="torch"), uv_lock="x"))

    assert (sys.executable, {}, "") == (fit.python, fit.env, fit.note)
    assert sys.executable == other.python
    assert "(pyproject.toml, uv.lock)" in other.note
    assert fit.key != other.key
    assert environments.is_ready(same)
    assert not (tmp_path / "envs").exists()


def counting(tmp_path: Path) -> tuple[str, ...]:
    """A set-up command that notes in which folder and environment it runs, by whichever `python` is first on PATH."""
    code = f"import os, sys; open({str(tmp_path / 'count')!r}, 'a').write(os.getcwd() + ' ' + sys.prefix + '\\n')"
    return ("python", "-c", code)


def test_a_set_up_runs_once_for_the_same_files_even_over_calls(tree: Callable[..., Path], tmp_path: Path) -> None:
    trees = [tree(name, uv_lock="1") for name in ("a", "b")]
    setup = counting(tmp_path)
    env = {"PATH": os.environ["PATH"]}
    before = Environments(tmp_path / "envs", trees[0], env, setup=setup).is_ready(trees[0])
    made = [Environments(tmp_path / "envs", trees[0], env, setup=setup).prepare(tree) for tree in trees]
    after = Environments(tmp_path / "envs", trees[0], env, setup=setup).is_ready(trees[1])
    other = Environments(tmp_path / "envs", trees[0], env, setup=setup).is_ready(tree("c", uv_lock="2"))

    prefix = tmp_path / "envs" / made[0].key
    assert [f"{trees[0]} {prefix}"] == (tmp_path / "count").read_text().splitlines()
    assert made[0] == made[1]
    assert Path(made[0].python).is_relative_to(prefix)
    assert made[0].env["PATH"].startswith(f"{prefix / 'bin'}{os.pathsep}")
    assert str(prefix) == made[0].env["VIRTUAL_ENV"]
    assert (False, True, False) == (before, after, other)


def fake_uv(tmp_path: Path, script: str) -> dict[str, str]:
    """An environment whose `uv` is a shell script; such an installer needs no pip, so the test is quick."""
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def test_a_failed_set_up_is_told_by_its_last_lines_and_not_tried_again(
    tree: Callable[..., Path], tmp_path: Path
) -> None:
    lines = ("start", "first", "no wheel for", "torch 0.1")
    script = "; ".join(("echo once >> ../count", *(f"echo {line}" for line in lines), "exit 3"))
    environments = Environments(tmp_path / "envs", tmp_path, fake_uv(tmp_path, script), setup=("uv", "sync"))
    for name in ("a", "b"):
        with pytest.raises(SubjectError, match=r"status 3: first \| no wheel for \| torch 0.1") as caught:
            environments.prepare(tree(name, uv_lock="1"))

    assert Outcome.LOAD_FAILED is caught.value.outcome
    assert 1 == len((tmp_path / "count").read_text().splitlines())
    assert "torch 0.1" in Path(caught.value.where or "").read_text()
    assert not environments.is_ready(tree("a"))


def test_uv_is_told_where_and_needs_no_pip(tree: Callable[..., Path], tmp_path: Path) -> None:
    env = fake_uv(tmp_path, 'echo "$UV_PROJECT_ENVIRONMENT $1" > told')
    made = Environments(tmp_path / "envs", tmp_path, env, setup=("uv", "sync")).prepare(tree("a"))
    place = Path(made.python).parents[1]

    assert f"{place} sync\n" == (tmp_path / "a" / "told").read_text()
    assert not list((place / "bin").glob("pip*"))


def test_a_set_up_that_was_killed_half_way_begins_anew(tree: Callable[..., Path], tmp_path: Path) -> None:
    env = fake_uv(tmp_path, 'touch "$VIRTUAL_ENV/half"; exit 1')
    with pytest.raises(SubjectError):
        Environments(tmp_path / "envs", tmp_path, env, setup=("uv", "sync")).prepare(tree("a"))
    (tmp_path / "bin" / "uv").write_text("#!/bin/sh\n")
    made = Environments(tmp_path / "envs", tmp_path, env, setup=("uv", "sync")).prepare(tree("a"))

    assert not (Path(made.python).parents[1] / "half").exists()


def test_a_set_up_that_hangs_is_ended_with_what_it_started(tree: Callable[..., Path], tmp_path: Path) -> None:
    env = fake_uv(tmp_path, "echo waiting; sleep 60 & echo $! > child; sleep 60")
    environments = Environments(tmp_path / "envs", tmp_path, env, setup=("uv", "sync"), timeout_s=2.5)
    with pytest.raises(SubjectError, match=r"had not ended after 2\.5 s: waiting") as caught:
        environments.prepare(tree("a"))

    assert Outcome.TIMED_OUT is caught.value.outcome
    assert not is_running(int((tmp_path / "a" / "child").read_text()))


def is_running(pid: int) -> bool:
    """An orphan that nobody waits for, as in a container, stays as a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_set_up_that_is_no_program_is_the_users_error(tree: Callable[..., Path], tmp_path: Path) -> None:
    environments = Environments(tmp_path / "envs", tmp_path, {"PATH": "/nowhere"}, setup=("uv", "sync"))
    with pytest.raises(UsageError, match="command not found: uv"):
        environments.prepare(tree("a"))
