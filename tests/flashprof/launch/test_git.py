"""Ranges of commits and the state of a tree, asked of small repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from flashprof.contracts.errors import ToolError, UnknownNameError, UsageError
from flashprof.launch.git import Range, ask_git, call_git, find_top, fork_point, resolve_range, tree_state


def git(repo: Path, *words: str, day: int = 1) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    date = f"2026-01-{day:02}T00:00:00+0000"
    env = {
        **kept,
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    command = ("git", "-c", "protocol.file.allow=always", *words)
    return subprocess.run(command, cwd=repo, env=env, check=True, capture_output=True, text=True).stdout.strip()


def commit(repo: Path, name: str, text: str, *, day: int = 1) -> str:
    (repo / name).parent.mkdir(parents=True, exist_ok=True)
    (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", f"{name}: {text}", day=day)
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits on `main`; the first one is tagged `v1`."""
    path = tmp_path / "a repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, "a.py", "1")
    git(path, "tag", "v1")
    commit(path, "b.py", "2", day=2)
    return path


def paths_of(found: Range) -> list[tuple[str, ...]]:
    return [each.paths for each in found.commits]


def test_a_range_is_told_with_what_each_commit_changes(repo: Path) -> None:
    middle = git(repo, "rev-parse", "HEAD")
    last = commit(repo, "dir/ü x.py", "3", day=3)
    found = resolve_range(repo / "dir", "v1..")

    assert (repo, git(repo, "rev-parse", "v1"), last) == (found.repo, found.good, found.bad)
    assert [middle, last] == [each.id for each in found.commits]
    assert [(found.good,), (middle,)] == [each.parents for each in found.commits]
    assert [("b.py",), ("dir/ü x.py",)] == paths_of(found)
    assert f"{last[:12]} dir/ü x.py: 3" == found.commits[1].label
    assert 86400 == found.commits[1].authored_s - found.commits[0].authored_s


def test_parents_come_before_children_whatever_the_dates_say(repo: Path) -> None:
    fork = commit(repo, "c.py", "3", day=20)
    git(repo, "checkout", "-qb", "side")
    early = commit(repo, "side.py", "s", day=3)
    git(repo, "checkout", "-q", "main")
    late = commit(repo, "d.py", "4", day=25)
    git(repo, "merge", "-q", "--no-ff", "--no-edit", "side", day=26)
    order = [each.id for each in resolve_range(repo, "v1..main").commits]

    assert 1 == order.index(fork)
    assert {early, late} == set(order[2:4])


def test_a_merge_brings_its_branch_to_the_first_parent(repo: Path) -> None:
    git(repo, "checkout", "-qb", "side", "v1")
    side = commit(repo, "side.py", "s", day=3)
    git(repo, "checkout", "-q", "main")
    main = commit(repo, "c.py", "3", day=4)
    git(repo, "merge", "-q", "--no-ff", "--no-edit", "side", day=5)
    found = resolve_range(repo, "v1..main")
    merge = found.commits[-1]

    assert [False, False, False, True] == [each.is_merge for each in found.commits]
    assert (main, side) == merge.parents
    assert ("side.py",) == merge.paths
    assert ("side.py",) == found.changed_to(side)
    assert ("b.py", "c.py") == found.changed_to(main)
    assert ("b.py", "c.py", "side.py") == found.changed_to(merge.id)
    assert () == found.changed_to(found.good)


def test_renames_empty_commits_and_files_named_like_commits_are_told_apart(repo: Path) -> None:
    git(repo, "mv", "b.py", "e.py")
    git(repo, "commit", "-qm", "rename", day=3)
    named = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "", day=4)
    commit(repo, named, "a file that bears the name of a commit", day=5)

    assert [("b.py",), ("b.py", "e.py"), (), (named,)] == paths_of(resolve_range(repo, "v1..main"))


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("v1...main", "three dots", "--commits v1..main"),
        ("v1", "is no range", "--commits v1.0..HEAD"),
        ("..main", "is no range", "--commits v1.0..HEAD"),
        ("a..b..c", "is no range", "--commits v1.0..HEAD"),
        ("main..HEAD", "no commit between", "--commits v1.0..HEAD"),
        ("main..v1", "the older one stands first", "--commits v1..main"),
    ],
)
def test_what_is_no_range_is_refused_with_what_to_write(repo: Path, text: str, what: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        resolve_range(repo, text)

    assert remedy == caught.value.next_command


def test_a_revision_that_is_not_there_is_answered_with_the_nearest(repo: Path) -> None:
    git(repo, "branch", "feature/queue-depth")
    with pytest.raises(UnknownNameError, match="did you mean 'feature/queue-depth'") as caught:
        resolve_range(repo, "v1..feature/queue-dept")

    assert {"HEAD", "main", "v1", "feature/queue-depth"} == set(caught.value.known)


@pytest.mark.parametrize("text", ["HEAD..main", "v1.."])
def test_a_repository_without_a_commit_has_no_revision_to_offer(tmp_path: Path, text: str) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    with pytest.raises(UsageError, match="has no commit yet") as caught:
        resolve_range(tmp_path, text)

    assert not isinstance(caught.value, UnknownNameError)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_repository_of_somebody_else_is_told_with_what_makes_git_trust_it(
    repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    os.chown(repo, 65534, -1)
    os.chown(repo / ".git", 65534, -1)
    with pytest.raises(UsageError, match="belongs to another user") as caught:
        find_top(repo)
    subprocess.run(caught.value.next_command or "", shell=True, check=True, env={**os.environ, "HOME": str(tmp_path)})

    assert repo == find_top(repo)


def test_a_revision_is_never_an_option(repo: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown revision '--all'"):
        resolve_range(repo, "--all..main")


def test_branches_that_parted_are_refused_with_where(repo: Path) -> None:
    base = git(repo, "rev-parse", "v1")
    git(repo, "checkout", "-qb", "side", "v1")
    commit(repo, "side.py", "s")
    with pytest.raises(UsageError, match=f"they part at {base[:12]}") as caught:
        resolve_range(repo, "side..main")

    assert f"--commits {base[:12]}..main" == caught.value.next_command


def test_histories_that_share_nothing_are_refused(repo: Path) -> None:
    git(repo, "checkout", "-q", "--orphan", "other")
    git(repo, "commit", "-qm", "another root")
    with pytest.raises(UsageError, match="they share no commit"):
        resolve_range(repo, "other..main")


@pytest.mark.parametrize("text", ["v1..HEAD", "HEAD~1..HEAD"])
def test_a_clone_that_does_not_reach_back_is_refused(repo: Path, tmp_path: Path, text: str) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", "shallow")
    with pytest.raises(UsageError, match="this clone is shallow") as caught:
        resolve_range(tmp_path / "shallow", text)

    assert "fetch --unshallow" in str(caught.value)


def test_a_clone_whose_side_branch_is_cut_off_is_refused(repo: Path, tmp_path: Path) -> None:
    git(repo, "checkout", "-qb", "side", "v1")
    commit(repo, "side 1.py", "s", day=3)
    commit(repo, "side 2.py", "s", day=3)
    git(repo, "checkout", "-q", "main")
    git(repo, "merge", "-q", "--no-ff", "--no-edit", "side", day=5)
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{repo}", "shallow")
    with pytest.raises(UsageError, match="this clone is shallow"):
        resolve_range(tmp_path / "shallow", "HEAD^1..HEAD")


def test_a_shallow_clone_that_holds_the_range_will_do(repo: Path, tmp_path: Path) -> None:
    commit(repo, "c.py", "3", day=3)
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{repo}", "shallow")

    assert [("c.py",)] == paths_of(resolve_range(tmp_path / "shallow", "HEAD~1..HEAD"))


def test_where_head_left_base_is_the_fork_not_the_tip(repo: Path) -> None:
    fork = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-qb", "change")
    head = commit(repo, "c.py", "3", day=3)
    git(repo, "checkout", "-q", "main")
    tip = commit(repo, "d.py", "4", day=4)

    assert (fork, fork) == (fork_point(repo, tip, head), fork_point(repo, fork, fork))
    # On the base branch itself there is nothing of its own: what was asked for is the base.
    assert tip == fork_point(repo, tip, fork)


def test_a_clone_that_does_not_hold_the_fork_has_no_base(repo: Path, tmp_path: Path) -> None:
    git(repo, "checkout", "-qb", "change")
    commit(repo, "c.py", "3", day=3)
    commit(repo, "c.py", "4", day=3)
    git(repo, "checkout", "-q", "main")
    commit(repo, "d.py", "4", day=4)
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-single-branch", f"file://{repo}", "shallow")
    base, head = (git(tmp_path / "shallow", "rev-parse", f"origin/{name}") for name in ("main", "change"))
    with pytest.raises(UsageError, match="this clone is shallow") as caught:
        fork_point(tmp_path / "shallow", base, head)

    assert "fetch-depth: 0" in str(caught.value)


def test_submodules_are_refused_by_name(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repo), "library")
    git(repo, "submodule", "--quiet", "add", str(tmp_path / "library"), "libs/fast")
    git(repo, "commit", "-qm", "submodule")
    with pytest.raises(UsageError, match="libs/fast"):
        resolve_range(repo, "v1..main")


def test_a_folder_outside_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository"):
        find_top(tmp_path)
    with pytest.raises(UsageError, match="not a git repository"):
        find_top(tmp_path / "nowhere")


def test_a_dirty_tree_is_no_obstacle_and_is_said(repo: Path) -> None:
    clean = tree_state(repo)
    (repo / "a.py").write_text("changed")
    git(repo, "rm", "-q", "b.py")
    for number in range(5):
        (repo / f"new {number}.py").write_text("new")
    state = tree_state(repo)

    assert () == clean.notes
    assert ("a.py", "b.py") == state.changed
    assert 5 == len(state.untracked)
    assert state.notes[0].startswith("2 files with uncommitted changes")
    assert state.notes[1].startswith("5 files not known to git")
    assert "new 0.py, new 1.py, new 2.py, and 2 more" in state.notes[1]
    assert 1 == len(resolve_range(repo, "v1..main").commits)


def test_a_hook_that_calls_us_does_not_name_the_repository(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))

    assert repo == find_top(repo)


def test_a_failing_git_is_an_error_of_ours(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolError, match="git cat-file failed: fatal"):
        ask_git(repo, "cat-file", "blob", "nothing")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolError, match="git is not installed"):
        call_git(repo, "status")
