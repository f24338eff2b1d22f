"""Worktrees: a commit as a folder, made again where it was left half-made, and nothing of the user's touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from flashprof.contracts.errors import ToolError, UsageError
from flashprof.launch.worktrees import Worktrees


def git(repo: Path, *words: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env = {
        **kept,
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    return subprocess.run(("git", *words), cwd=repo, env=env, check=True, capture_output=True, text=True).stdout.strip()


def commit(repo: Path, **files: str) -> str:
    for name, text in files.items():
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", " ".join(files))
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, a="1\n", b="1\n")
    return path


@pytest.fixture
def trees(repo: Path, tmp_path: Path) -> Worktrees:
    return Worktrees(repo, tmp_path / "search" / "trees")


def head(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


def records(repo: Path) -> int:
    return git(repo, "worktree", "list", "--porcelain").count("worktree ") - 1


def test_a_commit_becomes_a_folder_and_stays_as_it_is(repo: Path, trees: Worktrees) -> None:
    first = head(repo)
    commit(repo, a="2\n")
    path = trees.add(first)
    (path / "made by a build").write_text("kept")
    again = trees.add(first)

    assert "1\n" == (path / "a").read_text()
    assert path == again
    assert (path / "made by a build").exists()


def test_the_users_tree_is_not_touched(repo: Path, trees: Worktrees) -> None:
    first, second = head(repo), commit(repo, a="2\n")
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch '{repo}/hook ran'\n")
    hook.chmod(0o755)
    (repo / "a").write_text("not committed\n")
    (repo / "b").write_text("staged\n")
    git(repo, "add", "b")
    (repo / "new").write_text("not known\n")
    before = [git(repo, *words.split()) for words in ("status --porcelain", "branch -a", "stash list", "write-tree")]
    trees.add(first)
    trees.without(second, second)
    trees.remove_all()

    after = [git(repo, *words.split()) for words in ("status --porcelain", "branch -a", "stash list", "write-tree")]
    assert before == after
    assert (second, "main") == (head(repo), git(repo, "symbolic-ref", "--short", "HEAD"))
    assert "not committed\n" == (repo / "a").read_text()
    assert 0 == records(repo)


def test_a_worktree_that_was_changed_is_made_again(repo: Path, trees: Worktrees) -> None:
    path = trees.add(head(repo))
    (path / "a").write_text("changed\n")
    trees.add(head(repo))
    changed = (path / "a").read_text()
    (path / "a").write_text("staged\n")
    git(path, "add", "a")
    trees.add(head(repo))

    assert ("1\n", "1\n") == (changed, (path / "a").read_text())


@pytest.mark.parametrize("left", ["no mark", "no files", "no link", "no folder", "locked", "empty mark"])
def test_what_a_kill_left_half_made_is_made_again(repo: Path, left: str) -> None:
    # In the user's repository, where git would answer for that one.
    folder = repo / "reports" / "trees"
    path = Worktrees(repo, folder).add(head(repo))
    mark = path.with_name(f"{path.name}.ready")
    if left in ("no mark", "locked"):
        mark.unlink()
    if left == "empty mark":
        mark.write_text("")
    if left == "no files":
        (path / "a").unlink()
    if left == "no link":
        (path / ".git").unlink()
    if left == "no folder":
        shutil.rmtree(path)
    if left == "locked":
        git(repo, "worktree", "lock", "--reason", "initializing", str(path))
    (path.parent / "a").write_text("a stray file beside them")
    trees = Worktrees(repo, folder)
    again = trees.add(head(repo))

    assert (path, "1\n") == (again, (again / "a").read_text())
    assert (again, head(repo)) == (Path(git(again, "rev-parse", "--show-toplevel")), git(again, "rev-parse", "HEAD"))
    assert 1 == records(repo)
    trees.remove_all()
    assert ["a"] == [entry.name for entry in folder.iterdir()]


def test_the_one_used_longest_ago_goes(repo: Path, tmp_path: Path) -> None:
    ids = [head(repo), commit(repo, a="2\n"), commit(repo, a="3\n")]
    trees = Worktrees(repo, tmp_path / "trees", keep=2)
    paths = [trees.add(ids[0]), trees.add(ids[1])]
    trees.add(ids[0])
    paths.append(trees.add(ids[2]))

    assert [True, False, True] == [path.exists() for path in paths]
    assert 2 == records(repo)
    with pytest.raises(UsageError, match="two worktrees at a time"):
        Worktrees(repo, tmp_path, keep=1)


def test_the_users_own_worktrees_stay_known_even_where_they_are_away(repo: Path, trees: Worktrees) -> None:
    git(repo, "worktree", "add", "-q", "--detach", str(repo.parent / "mine"))
    (repo.parent / "mine").rename(repo.parent / "away")
    trees.add(head(repo))
    trees.remove_all()

    assert 1 == records(repo)


def test_what_git_remembers_of_a_folder_that_was_put_aside_is_forgotten(repo: Path, tmp_path: Path) -> None:
    folder = tmp_path / "search" / "trees"
    path = Worktrees(repo, folder).add(head(repo))
    Worktrees(repo, tmp_path / "other" / "trees").add(head(repo))
    path.parent.parent.rename(tmp_path / "search.old-1")
    Worktrees(repo, folder).remove_all()

    assert 1 == records(repo)
    assert (tmp_path / "search.old-1" / "trees" / path.name / "a").exists()


def test_a_commit_is_taken_out_of_the_bad_one(repo: Path, trees: Worktrees, tmp_path: Path) -> None:
    slow = commit(repo, a="slow\n")
    bad = commit(repo, b="later\n")
    path = trees.without(bad, slow)
    assert path is not None
    (path / "build").write_text("kept")
    again = Worktrees(repo, tmp_path / "search" / "trees").without(bad, slow)

    assert ("1\n", "later\n") == ((path / "a").read_text(), (path / "b").read_text())
    assert (path, True) == (again, (path / "build").exists())
    assert path != trees.add(bad)
    assert (bad, 2) == (head(repo), records(repo))


def test_a_merge_is_taken_out_as_what_it_brought(repo: Path, trees: Worktrees) -> None:
    git(repo, "checkout", "-qb", "side")
    commit(repo, side="slow\n")
    git(repo, "checkout", "-q", "main")
    commit(repo, b="main\n")
    git(repo, "merge", "-q", "--no-ff", "--no-edit", "side")
    path = trees.without(head(repo), head(repo))
    assert path is not None

    assert (False, "main\n") == ((path / "side").exists(), (path / "b").read_text())


def test_a_revert_that_conflicts_or_changes_nothing_is_none(repo: Path, trees: Worktrees) -> None:
    slow = commit(repo, a="slow\n")
    conflict = commit(repo, a="slower\n")
    commit(repo, a="slow\n")
    undone = commit(repo, a="1\n")
    empty = git(repo, "commit-tree", "-p", undone, "-m", "empty", f"{undone}^{{tree}}")

    assert [None, None, None] == [
        trees.without(conflict, slow),
        trees.without(empty, empty),
        trees.without(undone, slow),
    ]
    assert 0 == records(repo)


def test_remove_all_leaves_neither_folders_nor_records(repo: Path, trees: Worktrees) -> None:
    path = trees.add(head(repo))
    trees.remove_all()
    trees.remove_all()

    assert (False, 0) == (path.parent.exists(), records(repo))


def test_a_commit_that_git_does_not_have_is_an_error_of_ours(repo: Path, trees: Worktrees) -> None:
    with pytest.raises(ToolError, match="git cannot check out 000000000000"):
        trees.add("0" * 40)
