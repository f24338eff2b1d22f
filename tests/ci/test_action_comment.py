"""The comment on a pull request: one that is changed, and never the reason for a red build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ci_world import FAKE_GH, Machine

MARKER = "<!-- flashprof gate h200 -->"
VIEW = ["pr", "view", "7", "--repo", "o/r", "--json", "comments"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path).make()
    machine.put("gh", FAKE_GH)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "comment.md").write_text(f"{MARKER}\n\n## fail\n")
    machine.env["FAKE_COMMENTS"] = ""
    return machine


def comment(machine: Machine) -> tuple[int, str, list[list[str]]]:
    """Status, output, and the calls of `gh` after the first."""
    event = {"github.event.pull_request.number": "7", "steps.gate.outputs.files": str(machine.root / "files")}
    done = machine.step("Comment", {"github-token": "secret"}, event)
    calls = [json.loads(line) for line in machine.log.read_text().splitlines()] if machine.log.exists() else []

    assert all(VIEW == call[: len(VIEW)] for call in calls[:1])
    return done.returncode, done.stdout, calls[1:]


@pytest.mark.parametrize(
    "others",
    [
        "",
        "https://github.com/o/r/pull/7#issuecomment-1\t<!-- flashprof gate -->\n",
        "https://x#issuecomment-2\tHello\n",
    ],
)
def test_the_first_gate_makes_a_comment(machine: Machine, others: str) -> None:
    machine.env["FAKE_COMMENTS"] = others
    body = str(machine.root / "files" / "comment.md")

    assert (0, "", [["pr", "comment", "7", "--repo", "o/r", "--body-file", body]]) == comment(machine)


def test_the_next_one_changes_it(machine: Machine) -> None:
    mine = f"https://github.com/o/r/pull/7#issuecomment-12\t{MARKER}\n"
    machine.env["FAKE_COMMENTS"] = f"https://github.com/o/r/pull/7#issuecomment-1\tHello\n{mine}"
    field = f"body=@{machine.root}/files/comment.md"
    call = ["api", "--silent", "--method", "PATCH", "repos/o/r/issues/comments/12", "--field", field]

    assert (0, "", [call]) == comment(machine)


def test_only_what_this_token_wrote_is_asked_for(machine: Machine) -> None:
    comment(machine)
    query = json.loads(machine.log.read_text().splitlines()[0])[-1]

    assert "select(.viewerDidAuthor)" in query


def test_what_cannot_be_written_is_a_warning(machine: Machine) -> None:
    machine.env["FAKE_STATUS"] = "1"
    status, said, calls = comment(machine)

    assert (0, []) == (status, calls)
    assert said.startswith("::warning title=flashprof gate::the comment is not written")
    assert "pull-requests: write" in said


def test_a_runner_without_gh_is_told_so(machine: Machine) -> None:
    (machine.root / "bin" / "gh").unlink()

    assert comment(machine)[1].startswith("::warning")


def test_a_gate_that_was_refused_leaves_none(machine: Machine) -> None:
    (machine.root / "files" / "comment.md").unlink()

    assert (0, "the gate left no comment\n", []) == comment(machine)
