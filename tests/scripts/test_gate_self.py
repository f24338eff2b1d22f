"""`scripts/gate-self`: which base it takes, when it is skipped, and what it makes of each status of a gate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from gate_world import git

SCRIPT = Path(__file__).parents[2] / "scripts" / "gate-self"
FAKE = """#!/bin/sh
printf '%s\\n' "$@" >asked.txt
echo "the answer"
echo "launching base, pair 1" >&2
cat reason.json >reports/gate-self.json 2>/dev/null
exit "$(cat status.txt)"
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits, the script, and a FlashProf that remembers what it was asked."""
    place = tmp_path / "repo"
    (place / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPT, place / "scripts")
    (place / ".gitignore").write_text(".venv/\nreports/\nasked.txt\nstatus.txt\nreason.json\n")
    git(place, "init", "-q", "-b", "main")
    for number in (1, 2):
        commit(place, str(number))
    install(place)
    return place


def install(repo: Path) -> None:
    program = repo / ".venv" / "bin" / "flashprof"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE)
    program.chmod(0o755)
    answers(repo, 0)


def commit(repo: Path, text: str) -> str:
    (repo / "file.txt").write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", text)
    return git(repo, "rev-parse", "HEAD")


def answers(repo: Path, status: int, reason: str = "") -> None:
    """What the gate ends with."""
    (repo / "status.txt").write_text(str(status))
    answer = {"reason": reason, "metrics": [{"reason": "base does not run"}]}
    (repo / "reason.json").write_text(json.dumps(answer, indent=2))


def run(repo: Path) -> subprocess.CompletedProcess[str]:
    # Folders above are no repository of these tests.
    env = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(repo.parent)}
    script = repo / "scripts" / "gate-self"
    return subprocess.run([script], cwd="/", env=env, capture_output=True, text=True, check=False, timeout=30)


def base_of(repo: Path) -> str:
    """What the gate was asked to compare with."""
    words = (repo / "asked.txt").read_text().splitlines()
    return words[words.index("--base-ref") + 1]


def test_head_is_gated_against_the_commit_before_and_nothing_is_left_in_the_tree(repo: Path) -> None:
    done = run(repo)
    words = (repo / "asked.txt").read_text().splitlines()
    said = dict(pairwise(words))

    assert 0 == done.returncode
    assert git(repo, "rev-parse", "HEAD~1") == base_of(repo)
    assert ("gate", "150s", "pass", "5%") == (
        words[0],
        said["--budget"],
        said["--inconclusive"],
        said["--max-regression"],
    )
    assert "--no-explain" in words
    assert ["gate: HEAD against", "the answer"] == [line[:18].strip() for line in done.stdout.splitlines()]
    # What CI would print by the hundred.
    assert "" == done.stderr
    assert "launching base, pair 1\n" == (repo / "reports" / "gate-self.log").read_text()
    assert "" == git(repo, "status", "--porcelain")


def test_a_branch_is_gated_against_where_it_left_origins(repo: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    install(clone)
    fork = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "-q", "-b", "change")
    for text in ("3", "4"):
        commit(clone, text)
    run(clone)
    of_branch = base_of(clone)
    git(clone, "checkout", "-q", "main")
    run(clone)

    assert fork == of_branch
    assert git(clone, "rev-parse", "HEAD~1") == base_of(clone)


def test_a_shallow_clone_is_skipped_in_one_line(repo: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", str(clone))
    install(clone)
    done = run(clone)

    assert 0 == done.returncode
    assert done.stdout.startswith("gate: skipped: there is no previous commit")
    assert 1 == len(done.stdout.splitlines())
    assert not (clone / "asked.txt").exists()


def test_a_folder_without_git_is_skipped(repo: Path) -> None:
    shutil.rmtree(repo / ".git")
    done = run(repo)

    assert 0 == done.returncode
    assert done.stdout.startswith("gate: skipped: there is no git repository")


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (0, "", 0),
        (1, "slower by 9 %", 1),
        (2, "", 2),
        (3, "", 3),
        (4, "head does not run, while base does: crash", 4),
        (4, "head does not run (1a2b base does not run)", 4),
        (4, "base does not run (1a2b start): it does not build", 0),
        (4, "the disk is full", 4),
        # The time limit of all of CI, as `timeout` tells it.
        (124, "", 0),
        (130, "", 130),
    ],
)
def test_what_fails_ci_and_what_does_not(repo: Path, status: int, reason: str, expected: int) -> None:
    answers(repo, status, reason)
    done = run(repo)

    assert expected == done.returncode
    assert (expected != status) == ("gate: skipped: " in done.stdout)
    # The end of the log is shown where somebody has to look.
    assert (status not in (0, 124)) == ("launching base, pair 1" in done.stderr)


def test_a_gate_that_left_no_answer_is_no_pass(repo: Path) -> None:
    answers(repo, 4, "base does not run (1a2b start)")
    run(repo)
    (repo / "reason.json").unlink()

    assert 4 == run(repo).returncode


def test_without_an_installation_it_says_what_to_do(repo: Path) -> None:
    shutil.rmtree(repo / ".venv")
    done = run(repo)

    assert 2 == done.returncode
    assert "make gate" in done.stderr
