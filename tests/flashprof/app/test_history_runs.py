"""Run folders go into the history once, and no trouble with it ever fails a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_folders import FACTS, edit, write_compare, write_run

from flashprof.app.history_runs import add_runs, read_run, remember
from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.history import HistoryLaunch
from flashprof.store.history import FILE, read_history


def kept(reports: Path) -> tuple[HistoryLaunch, ...]:
    return read_history(reports / FILE).launches


def test_a_run_is_remembered_as_it_is_added_later(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", hours=3, rate=1234.0)
    note = remember(folder, {})
    added = add_runs(tmp_path / FILE, [folder])
    (launch,) = kept(tmp_path)

    assert ("", 0, 1) == (note, added.num_new, added.num_known)
    assert ("run", "2026-11-01T15:00:00+00:00", "bench") == (launch.run_id, launch.started, launch.host)
    assert (FACTS["source.commit"], str(folder)) == (launch.commit, launch.folder)
    assert "source.commit" not in launch.facts


def test_a_folder_of_reports_is_added_run_by_run_and_what_is_none_is_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name)
    write_run(tmp_path / ".three.part")
    write_compare(tmp_path / "compare-1", num_launches=2)
    (write_run(tmp_path / "half") / "summary.json").unlink()
    edit(write_run(tmp_path / "old") / "manifest.json", version=99)
    added = add_runs(tmp_path / FILE, [tmp_path])

    assert (2, 0) == (added.num_new, added.num_known)
    assert ["half", "old"] == [Path(line.partition(":")[0]).name for line in added.left_out]
    assert {"one", "two"} == {launch.run_id for launch in kept(tmp_path)}


def test_a_run_in_a_folder_of_any_bytes_is_left_out_and_keeps_no_other_out(tmp_path: Path) -> None:
    odd = tmp_path / "t\udcff"
    for name in ("one", "two", "three"):
        write_run(tmp_path / name)
    (tmp_path / "three").rename(odd)
    added = add_runs(tmp_path / FILE, [tmp_path])

    assert 2 == added.num_new
    assert (f"{odd}: its folder is no UTF-8 text",) == added.left_out
    assert "its folder is no UTF-8 text" in remember(odd, {})


def test_what_holds_no_run_at_all_is_wrong_input_and_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none of these is a run"):
        add_runs(tmp_path / FILE, [tmp_path / "absent", tmp_path])

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "[]", '{"format": "flashprof-summary", "version": 1}', '{"version": 99}'])
def test_a_damaged_summary_is_no_run(tmp_path: Path, content: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "summary.json").write_text(content, encoding="utf-8")
    with pytest.raises(FormatError):
        read_run(folder)


@pytest.mark.parametrize("events", ["no JSON\n", "[" * 4000 + "\n"])
def test_a_trainer_without_events_began_no_later_than_its_manifest_says(tmp_path: Path, events: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "events" / "drafter-0.jsonl").write_text(events, encoding="utf-8")

    assert read_run(folder).started >= "2026-11"


def test_trouble_is_a_note_with_a_remedy(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    note = remember(folder, {"FLASHPROF_HISTORY": str(folder / "manifest.json" / "x.sqlite")})

    assert note.startswith("the run is not in the history: ")
    assert note.endswith(f"try: flashprof history add {folder}")
    assert "cut off before its cell was known" in remember(write_run(tmp_path / "cut", facts={}), {})


def test_a_history_that_is_off_is_not_written(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")

    assert "" == remember(folder, {"FLASHPROF_HISTORY": "off"})
    assert ["run"] == [path.name for path in tmp_path.iterdir()]


def in_tree(tmp_path: Path, head: str) -> Path:
    """A run in a worktree whose HEAD file says *head*."""
    git = tmp_path / "repository" / ".git" / "worktrees" / "w"
    git.mkdir(parents=True)
    (git / "HEAD").write_text(f"{head}\n", encoding="utf-8")
    tree = tmp_path / "tree" / "part"
    tree.mkdir(parents=True)
    (tree.parent / ".git").write_text(f"gitdir: {git}\n", encoding="utf-8")
    folder = write_run(tmp_path / "run")
    edit(folder / "manifest.json", machine={"source": {"tree": str(tree)}})
    return folder


@pytest.mark.parametrize(
    ("head", "env", "expected"),
    [
        ("ref: refs/heads/side/x", {}, "side/x"),
        ("3f9a1c0d5b7e2846a1c3d5e7f90214365870b1c2", {}, ""),
        ("3f9a1c0d5b7e2846a1c3d5e7f90214365870b1c2", {"GITHUB_REF_NAME": "main"}, "main"),
        ("ref: refs/heads/x", {"GITHUB_HEAD_REF": "topic", "GITHUB_REF_NAME": "7/merge"}, "topic"),
        ("ref: refs/heads/x", {"GITHUB_HEAD_REF": "", "CI_COMMIT_REF_NAME": "lab"}, "lab"),
    ],
)
def test_the_branch_is_what_ci_says_or_the_tree_has_checked_out(
    tmp_path: Path, head: str, env: dict[str, str], expected: str
) -> None:
    assert expected == read_run(in_tree(tmp_path, head), env=env).branch


def test_nobody_knows_the_branch_of_an_old_run(tmp_path: Path) -> None:
    assert "" == read_run(in_tree(tmp_path, "ref: refs/heads/now")).branch


def test_what_is_kept_is_json_that_anybody_reads(tmp_path: Path) -> None:
    """Another program reads the file with any SQLite."""
    import sqlite3
    from contextlib import closing

    remember(write_run(tmp_path / "run"), {})
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        ((phases, facts),) = connection.execute(
            "SELECT phases_ns_per_token, facts FROM launches JOIN cells USING (cell)"
        )

    assert "drafter mask" in json.loads(phases)
    assert "bench" == json.loads(facts)["machine.host"]
