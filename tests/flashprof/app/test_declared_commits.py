"""A declared trainer at each commit: one declaration, the commits' own files, and a whole search in virtual time."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from bisect_world import BisectWorld
from study_world import STEP_S, WINDOWS

from flashprof.app.commits import CommitSubject
from flashprof.app.declared_commits import (
    DECLARATION,
    at_commit,
    check_declared,
    refuse_changed_declaration,
    spec_of_every_commit,
)
from flashprof.app.foreign import DeclaredLauncher, declared_ports
from flashprof.app.search import bisect, status
from flashprof.app.search_plan import prepare
from flashprof.app.session import Ports
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.errors import UsageError
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import LaunchSpec
from flashprof.contracts.search import Cause, SearchKind, SearchRule
from flashprof.contracts.search_request import BisectRequest
from flashprof.decide.search_observations import Built
from flashprof.store.search_folder import search_id
from flashprof.store.subject_file import read_subject

FAST, SLOW = 1.0, 1.25
OLD_KEY = {"attention": "eager", "factor": FAST}
NEW_KEY = {"attn": "eager", "factor": FAST}
DECLARATION_TEXT = """
[subject]
command = ["trainer", "--config", "{file}"]
files = ["train.py"]
tok_per_s = 'tok/s=([\\d,.]+)'

[toggles.flash]
on = { args = ["--flash"], edit = { file = "conf.yaml", key = "attn", value = "flash" } }
"""


def git(repo: Path, *words: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**kept, **who, "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(("git", *words), cwd=repo, env=env, check=True, capture_output=True, text=True).stdout.strip()


def declare(folder: Path, text: str = DECLARATION_TEXT) -> ForeignSubject:
    """What *text* declares in *folder*, beside the script and config file of the user's tree."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text("print('tok/s=1')\n")
    # As somebody leaves it who works on: no commit has it.
    (folder / "conf.yaml").write_text("attn: eager\nfactor: 99\n")
    (folder / "flashprof.toml").write_text(text)
    return read_subject(folder / "flashprof.toml")


class DeclaredCommits(BisectWorld):
    """Eight commits in a folder of a repository; the declaration is in none of them."""

    def make(self) -> None:
        """Make the history and ask for its cause."""
        self.repo = self.root / "repo"
        self.place = self.repo / "trainer"
        self.place.mkdir(parents=True)
        git(self.repo, "init", "-q", "-b", "main")
        self.ids: list[str] = []
        for subject, conf in (
            ("start", NEW_KEY),
            ("first", NEW_KEY),
            ("second", NEW_KEY),
            ("rename the key", OLD_KEY),
            ("rename it back", NEW_KEY),
            ("feature", {**NEW_KEY, "factor": SLOW}),
            ("sixth", {**NEW_KEY, "factor": SLOW}),
            ("seventh", {**NEW_KEY, "factor": SLOW}),
        ):
            self.commit(subject, conf)
        self.subject: ForeignSubject = declare(self.place)
        self.specs: list[LaunchSpec] = []
        self.confs: list[dict[str, object]] = []
        self.script = lambda launch, script: replace(script, emits=False)
        self.step_s = self._step_s
        self.request = BisectRequest(
            kind=SearchKind.COMMITS,
            commits=f"{self.ids[0]}..main",
            repo=self.repo,
            subject=spec_of_every_commit(self.subject, "flash"),
            subject_file=str(self.subject.path),
            windows=replace(WINDOWS, num_measure=3),
            rule=SearchRule(budget_s=36000.0),
            explain=False,
            reports=self.reports,
        )

    @property
    def ports(self) -> Ports:
        return declared_ports(super().ports, self.subject)

    def commit(self, subject: str, conf: dict[str, object]) -> None:
        """One more commit."""
        (self.place / "conf.yaml").write_text(yaml.safe_dump(conf))
        (self.place / "train.py").write_text("print('tok/s=1')\n")
        (self.place / f"part{len(self.ids)}.py").touch()
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", subject)
        self.ids.append(git(self.repo, "rev-parse", "HEAD"))

    def _step_s(self, spec: LaunchSpec) -> float:
        conf = yaml.safe_load(Path(spec.command[spec.command.index("--config") + 1]).read_text())
        self.specs.append(spec)
        self.confs.append(conf)
        return STEP_S * float(conf["factor"])


@pytest.fixture
def world(tmp_path: Path) -> DeclaredCommits:
    made = DeclaredCommits(tmp_path)
    made.make()
    return made


def test_the_slow_commit_of_a_declared_trainer_is_found(
    world: DeclaredCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.enter(monkeypatch)
    result = world.bisect()

    assert (Verdict.REGRESSION, (Cause((world.ids[5],)),)) == (result.verdict, result.culprits)
    assert {"flash"} == {conf["attn"] for conf in world.confs}
    assert {FAST, SLOW} == {conf["factor"] for conf in world.confs}
    assert all("--flash" == spec.command[-1] and "trainer" == spec.cwd.name for spec in world.specs)
    assert all(spec.cwd.parent.parent == world.folder.path.resolve() / "worktrees" for spec in world.specs)
    assert result.culprits == status(world.reports, result.search).culprits


def test_a_commit_without_what_is_declared_is_skipped_with_its_reason(world: DeclaredCommits) -> None:
    world.bisect()
    (failed,) = [fact for fact in world.facts if isinstance(fact, Built) and not fact.outcome.is_measurement]

    assert (world.ids[3], Outcome.LOAD_FAILED) == (failed.group, failed.outcome)
    assert failed.reason.startswith("it does not build: ")
    assert "attn" in failed.reason


def test_another_declaration_or_other_toggles_are_another_question_and_work_on_files_is_none(
    world: DeclaredCommits,
) -> None:
    def name() -> str:
        return search_id(prepare(world.request, world.ports).question)

    first = name()
    (world.place / "train.py").write_text("print('tok/s=2')\n")
    world.ask(subject=spec_of_every_commit(world.subject, "flash"))
    edited = name()
    world.ask(subject=spec_of_every_commit(world.subject, "none"))
    other_toggles = name()
    world.subject = declare(world.place, DECLARATION_TEXT.replace('"--flash"', '"--flash=2"'))
    world.ask(subject=spec_of_every_commit(world.subject, "flash"))

    assert first == edited
    assert 3 == len({first, other_toggles, name()})


def test_a_search_does_not_go_on_with_a_declaration_that_has_changed(world: DeclaredCommits) -> None:
    world.ask(rule=SearchRule(budget_s=5.0))
    world.bisect()
    before = len(world.launches)
    world.subject = declare(world.place, DECLARATION_TEXT.replace('"--flash"', '"--flash=2"'))
    with pytest.raises(UsageError, match="the declaration has changed") as caught:
        bisect(world.request, world.ports, world.progress)

    assert str(world.subject.path) == caught.value.where
    assert before == len(world.launches)


def test_a_help_text_may_change_and_others_have_no_declaration(world: DeclaredCommits) -> None:
    world.subject = declare(world.place, DECLARATION_TEXT.replace("[toggles.flash]", '[toggles.flash]\nhelp = "x"'))

    refuse_changed_declaration(world.request.subject, world.ports)
    refuse_changed_declaration(world.request.subject, BisectWorld.ports.fget(world))  # type: ignore[attr-defined]


@pytest.fixture
def subject(tmp_path: Path) -> ForeignSubject:
    return declare(tmp_path / "users")


@pytest.fixture
def commit(tmp_path: Path, subject: ForeignSubject) -> CommitSubject:
    place = declare(tmp_path / "tree" / "trainer").cwd
    spec = replace(spec_of_every_commit(subject, "none"), command=("/users/trainer", *subject.command[1:]))
    return CommitSubject(spec, {}, place)


def test_all_commits_share_the_declaration_but_no_file(subject: ForeignSubject) -> None:
    spec = spec_of_every_commit(subject, "flash", pattern="x=(.)")

    assert ((DECLARATION, subject.fingerprint),) == spec.facts
    assert ("all", "x=(.)") == (spec.toggles, spec.tok_per_s_pattern)


def test_a_launch_sees_the_commits_folder_and_program(
    tmp_path: Path, subject: ForeignSubject, commit: CommitSubject
) -> None:
    ports = declared_ports(BisectWorld(tmp_path).ports, subject)
    launcher = at_commit(ports, commit, {"flash": True}).launcher

    assert isinstance(launcher, DeclaredLauncher)
    assert (commit.cwd, "/users/trainer", {"flash": True}) == (
        launcher.subject.cwd,
        launcher.subject.command[0],
        launcher.values,
    )


@pytest.mark.parametrize(
    ("name", "text", "flash", "said"),
    [
        ("conf.yaml", "attn: eager\n", True, ""),
        ("conf.yaml", "attention: eager\n", False, ""),
        ("conf.yaml", "attention: eager\n", True, "unknown key"),
        ("conf.yaml", None, False, "conf.yaml is not in this commit"),
        (
            "train.py",
            None,
            False,
            "train.py is not in this commit (what git does not keep is declared by its full path)",
        ),
    ],
)
def test_what_a_commit_lacks_is_said_before_it_is_started(
    subject: ForeignSubject, commit: CommitSubject, *, name: str, text: str | None, flash: bool, said: str
) -> None:
    if text is None:
        (commit.cwd / name).unlink()
    else:
        (commit.cwd / name).write_text(text)
    outcome, reason = check_declared(subject, commit, {"flash": flash})

    assert (Outcome.LOAD_FAILED if said else Outcome.COMPLETED) is outcome
    assert said in reason
    assert bool(said) == bool(reason)
