"""A whole search among commits: a real repository and its worktrees, a trainer in virtual time that reads its speed."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from bisect_world import BisectWorld, Killed
from study_world import STEP_S, WINDOWS

from flashprof.app.search import plan, skip, status
from flashprof.app.search_plan import prepare
from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.ports import LaunchSpec
from flashprof.contracts.search import Cause, SearchKind, SearchLook, SearchResult, SearchRule
from flashprof.contracts.search_request import BisectRequest
from flashprof.decide.search_observations import Built
from flashprof.store.search_folder import search_id

FAST, SLOW = "1.0", "1.25"


def git(repo: Path, *words: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env = {
        **kept,
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    done = subprocess.run(("git", *words), cwd=repo, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class CommitWorld(BisectWorld):
    """Eight commits, of which the sixth makes it slow and the fourth does not compile."""

    def make(self) -> None:
        """Make the history and ask for its cause."""
        self.repo = self.root / "repo"
        self.repo.mkdir()
        git(self.repo, "init", "-q", "-b", "main")
        self.ids: list[str] = []
        self.commit("start", speed=FAST, train="print('tok/s=1')\n")
        self.commit("docs", readme="how to\n")
        self.commit("refactor", train="print('tok/s=2')\n")
        self.commit("break", train="print(\n")
        self.commit("fix", train="print('tok/s=3')\n")
        self.commit("feature", speed=SLOW)
        self.commit("tests", tests="assert True\n")
        self.commit("rename", train="print('tok/s=4')\n")
        self.cwd = self.repo
        self.num_trees: list[int] = []
        self.step_s = self._step_s
        self.request = BisectRequest(
            kind=SearchKind.COMMITS,
            commits=f"{self.ids[0]}..main",
            repo=self.repo,
            command=("trainer",),
            subject=SubjectSpec(kind=SubjectKind.FOREIGN, command=("trainer",), toggles="none"),
            windows=replace(WINDOWS, num_measure=3),
            rule=SearchRule(budget_s=36000.0),
            explain=False,
            reports=self.reports,
        )

    def _step_s(self, spec: LaunchSpec) -> float:
        self.num_trees.append(sum(path.is_dir() for path in (self.folder.path / "worktrees").iterdir()))
        return STEP_S * float((spec.cwd / "speed.cfg").read_text())

    def commit(self, subject: str, **files: str) -> None:
        """One more commit."""
        names = {"speed": "speed.cfg", "train": "train.py", "readme": "README.md", "tests": "tests/test_it.py"}
        for name, text in files.items():
            path = self.repo / names[name]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", subject)
        self.ids.append(git(self.repo, "rev-parse", "HEAD"))


@pytest.fixture
def world(tmp_path: Path) -> CommitWorld:
    made = CommitWorld(tmp_path)
    made.make()
    return made


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """A search from its first call to its answer; the user's tree has a change that is in no commit."""
    world = CommitWorld(tmp_path_factory.mktemp("found"))
    world.make()
    (world.repo / "speed.cfg").write_text("99")
    return Found(world, state_of(world.repo), world.bisect())


class Found(NamedTuple):
    """A search that came to its answer."""

    world: CommitWorld
    before: tuple[str, str, str]
    """The user's tree."""
    result: SearchResult


def state_of(repo: Path) -> tuple[str, str, str]:
    return git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain"), git(repo, "branch", "--all")


def test_the_slow_commit_is_found_and_proved_beside_a_broken_one(found: Found) -> None:
    world, before, result = found
    slow, broken = world.ids[5], world.ids[3]
    shown = {(proof.base, proof.candidate) for proof in result.proofs if proof.is_shown}

    assert (Verdict.REGRESSION, Standing.CONFIRMED, (Cause((slow,)),)) == (
        result.verdict,
        result.standing,
        result.culprits,
    )
    assert (f"bad-without:{slow}", world.ids[7]) in shown
    assert f"{slow[:12]} feature" == (result.labels or {})[slow]
    assert broken not in {reading.cell for reading in world.readings}
    assert before == state_of(world.repo)
    assert any("uncommitted changes" in note for note in result.notes)


def test_a_broken_commit_is_skipped_with_its_reason_and_is_not_tried_again(found: Found) -> None:
    world, _, result = found
    broken = world.ids[3]
    builds = [fact for fact in world.facts if isinstance(fact, Built)]
    (info,) = [info for info in result.cells if info.cell == broken]
    world.bisect()

    assert [broken] == [fact.group for fact in builds if not fact.outcome.is_measurement]
    assert (None, f"{broken[:12]} break") == (info.tok_per_s, info.label)
    assert any("train.py" in failure for failure in result.failures)
    assert builds == [fact for fact in world.facts if isinstance(fact, Built)]


def test_each_launch_holds_the_windows_of_its_plan_and_stands_in_its_own_tree(found: Found) -> None:
    world, _, result = found
    readings = world.readings
    per_launch = {
        run_id: [reading.cell for reading in readings if reading.launch == run_id] for run_id in world.run_ids
    }
    folder = world.folder.path.resolve() / "worktrees"

    assert all(3 == len(cells) and 1 == len(set(cells)) for cells in per_launch.values())
    assert all(f"{folder}" in launch.env["PYTHONPATH"] for launch in world.launches)
    assert len(per_launch) == result.num_launches


def test_a_search_that_has_ended_leaves_no_worktree(found: Found) -> None:
    world, _, _ = found

    # 128 trees would fill a disk: eight are kept at a time.
    assert 1 < max(world.num_trees) <= 8
    assert not (world.folder.path / "worktrees").exists()
    assert 1 == len(git(world.repo, "worktree", "list").splitlines())


def test_libraries_that_are_not_a_commits_own_are_said_in_every_answer(
    world: CommitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.enter(monkeypatch)
    (world.repo / "requirements.txt").write_text("torch==2.11\n")
    first = world.bisect()
    again = world.bisect()
    texts = [first.notes, again.notes, status(world.reports, first.search).notes]
    said = [[note for note in notes if note.startswith("dependencies are not")] for notes in texts]

    assert [1, 1, 1] == [len(notes) for notes in said]
    assert "(requirements.txt)" in said[0][0]
    assert first.num_readings == again.num_reused
    assert said[0][0] in (world.folder.path / "report.md").read_text().replace("\n", " ")


def test_trees_of_a_stopped_search_go_with_the_first_call_that_ends(world: CommitWorld) -> None:
    world.stop_at(8, KeyboardInterrupt())
    stopped = world.bisect()
    path = world.folder.path
    left = sorted(tree.name for tree in (path / "worktrees").glob("*.ready"))
    world.ask(fresh=True, rule=SearchRule(budget_s=1.0))
    world.bisect()
    aside = path.with_name(f"{path.name}.old-1")

    assert stopped.is_interrupted
    assert left
    assert (aside / "journal.jsonl").is_file()
    assert not (aside / "worktrees").exists()
    assert not (path / "worktrees").exists()
    assert 1 == len(git(world.repo, "worktree", "list").splitlines())


def test_trees_that_cannot_be_removed_cost_no_answer(world: CommitWorld) -> None:
    def hide(look: SearchLook) -> None:
        # Behind the last reading: nothing needs the repository any more but the end.
        if not look.next_cell and (world.repo / ".git").exists():
            (world.repo / ".git").rename(world.repo / "hidden")

    world.progress.on_look = hide
    result = world.bisect()

    assert (Cause((world.ids[5],)),) == result.culprits
    assert any("git worktree failed" in note for note in world.progress.notes)


def test_toggles_of_all_commits_are_part_of_the_question(world: CommitWorld) -> None:
    names = {
        search_id(
            prepare(replace(world.request, subject=replace(world.request.subject, toggles=text)), world.ports).question
        )
        for text in ("none", "swa")
    }

    assert 2 == len(names)


def crash(world: CommitWorld, commit: str) -> None:
    world.script = lambda launch, script: (
        replace(script, exits=(4.0, 1)) if f"worktrees/{commit[:12]}:" in f"{launch.env['PYTHONPATH']}:" else script
    )


def test_a_commit_that_cannot_be_told_from_a_crashing_one_is_not_proved(world: CommitWorld) -> None:
    before_slow, slow = world.ids[4], world.ids[5]
    crash(world, before_slow)
    result = world.bisect()
    likely = {belief.causes for belief in result.beliefs if belief.probability > 0.3}

    assert Verdict.INCONCLUSIVE is result.verdict
    assert before_slow not in {reading.cell for reading in world.readings}
    assert (Cause((slow,)),) in likely
    assert not any(proof.is_shown for proof in result.proofs)
    assert any("crashed" in failure for failure in result.failures)


def test_a_change_that_cannot_be_taken_back_is_proved_by_its_parent_alone(world: CommitWorld) -> None:
    world.commit("on top", speed="1.250")
    result = world.bisect()

    assert (Cause((world.ids[5],)),) == result.culprits
    assert {False} == {proof.is_back for proof in result.proofs if proof.is_shown}
    assert any("cannot be taken back" in failure for failure in result.failures)


def test_a_killed_search_goes_on_in_the_trees_that_it_left(world: CommitWorld) -> None:
    world.stop_at(8, Killed())
    with pytest.raises(Killed):
        world.bisect()
    before, builds = world.readings, [fact for fact in world.facts if isinstance(fact, Built)]
    result = world.bisect()
    built = [fact.group for fact in world.facts if isinstance(fact, Built)]

    assert (8, before) == (result.num_reused, world.readings[:8])
    assert (Cause((world.ids[5],)),) == result.culprits
    assert [fact.group for fact in builds] == built[: len(builds)]
    assert len(set(built)) == len(built)


def test_ctrl_c_while_building_keeps_what_was_measured(world: CommitWorld) -> None:
    stage = world.progress.stage

    def interrupted(text: str, *, total_s: float | None = None) -> None:
        stage(text, total_s=total_s)
        if text.startswith("building") and world.readings:
            world.progress.stage = stage  # type: ignore[method-assign]
            raise KeyboardInterrupt

    world.progress.stage = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.bisect()
    found = world.readings
    world.ask(rule=SearchRule(budget_s=1.0))
    result = world.bisect()

    assert found
    assert (len(found), found) == (result.num_reused, world.readings)


def test_a_commit_is_left_out_by_any_name_that_git_knows(world: CommitWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.enter(monkeypatch)
    world.ask(rule=SearchRule(budget_s=5.0))
    world.bisect()
    name = world.folder.name
    for words in ("main~1", world.ids[1][:10]):
        skip(world.reports, name, words)
    left_out = {info.cell for info in status(world.reports, name).cells if info.outcome == "skipped by the user"}

    assert {world.ids[6], world.ids[1]} == left_out
    with pytest.raises(UsageError, match="an end"):
        skip(world.reports, name, "main")
    with pytest.raises(UnknownNameError):
        skip(world.reports, name, "feature")


def test_the_plan_counts_commits_and_makes_no_tree(world: CommitWorld) -> None:
    lines = dict(line.split(maxsplit=1) for line in plan(world.request, world.ports))

    assert "7 commits" == lines["causes"]
    assert lines["cells"].startswith("a launch each, ")
    assert not world.reports.exists()
    assert 1 == len(git(world.repo, "worktree", "list").splitlines())
