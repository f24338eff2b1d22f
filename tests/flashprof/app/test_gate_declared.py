"""A gate of a declared trainer, in virtual time: one declaration for both trees, either tree's own files, no events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from gate_world import GateWorld, git
from study_world import STEP_S

from flashprof.app.declared_commits import spec_of_every_commit
from flashprof.app.foreign import declared_ports
from flashprof.app.gate import plan
from flashprof.app.history import name_baseline
from flashprof.app.session import Ports
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.ports import LaunchSpec
from flashprof.store.subject_file import read_subject

FAST, SLOW = 1.0, 1.4
DECLARATION = """
[subject]
command = ["trainer", "--config", "{file}"]
files = ["train.py"]
tok_per_s = 'tok/s=([\\d,.]+)'
env = { MODE = "quiet" }

[toggles.flash]
on = { args = ["--flash"], edit = { file = "conf.yaml", key = "attn", value = "flash" } }
"""


class DeclaredGate(GateWorld):
    """A trainer in a folder of its repository; the declaration is in no commit."""

    def make(self) -> DeclaredGate:
        """A base and a head that differ in a document."""
        super().make()
        self.trainer = self.repo / "trainer"
        self.trainer.mkdir()
        git(self.repo, "checkout", "-q", "main")
        self.configure(FAST)
        git(self.repo, "checkout", "-q", "-B", "change")
        self.head = self.commit("document", readme="how\n")
        self.declare(DECLARATION)
        self.specs: list[LaunchSpec] = []
        self.confs: list[dict[str, object]] = []
        self.script = lambda launch, script: replace(script, emits=False)
        return self

    def declare(self, text: str) -> None:
        """What the user has written, and what is asked of it."""
        path = self.trainer / "flashprof.toml"
        path.write_text(text)
        self.subject: ForeignSubject = read_subject(path)
        self.want(command=(), subject=spec_of_every_commit(self.subject, "flash"), subject_file=str(path))

    def configure(self, factor: float, **keys: str) -> str:
        """One more commit: how long a step takes, and other keys of the trainer's config."""
        (self.trainer / "conf.yaml").write_text(yaml.safe_dump({"attn": "eager", "factor": factor, **keys}))
        (self.trainer / "train.py").write_text("print('tok/s=1')\n")
        return self.commit(f"factor {factor}")

    @property
    def ports(self) -> Ports:
        return declared_ports(super().ports, self.subject)

    def _step_s(self, spec: LaunchSpec) -> float:
        conf = yaml.safe_load(Path(spec.command[spec.command.index("--config") + 1]).read_text())
        self.specs.append(spec)
        self.confs.append(conf)
        return STEP_S * float(conf["factor"])


@pytest.fixture
def world(tmp_path: Path) -> DeclaredGate:
    return DeclaredGate(tmp_path).make()


def test_a_slow_head_of_a_declared_trainer_fails_the_gate(world: DeclaredGate) -> None:
    world.configure(SLOW)
    found = world.gate()
    (metric,) = found.metrics
    here = [spec.cwd == world.trainer for spec in world.specs]

    assert Verdict.REGRESSION is found.verdict
    assert metric.change is not None
    assert pytest.approx(1 / SLOW - 1, abs=0.02) == metric.change.estimate
    assert pytest.approx(10_000, rel=0.02) == metric.base
    # In turn: one of each pair is head, which lies here; base is in its worktree.
    assert all(1 == sum(pair) for pair in zip(here[::2], here[1::2], strict=True))
    assert {"trainer"} == {spec.cwd.name for spec in world.specs}
    assert {FAST, SLOW} == {conf["factor"] for conf in world.confs}


def test_both_trees_get_the_toggles_and_variables_of_the_one_declaration(world: DeclaredGate) -> None:
    found = world.gate()

    assert Verdict.NO_REGRESSION is found.verdict
    assert {"flash"} == {conf["attn"] for conf in world.confs}
    assert {"--flash"} == {spec.command[-1] for spec in world.specs}
    assert {"quiet"} == {spec.env["MODE"] for spec in world.specs}
    assert not any("differ in more" in note for note in found.notes)
    assert not git(world.repo, "status", "--porcelain", "--", "trainer/conf.yaml")


def test_another_declaration_is_another_gate(world: DeclaredGate) -> None:
    first = plan(world.gated, world.ports)[-1]
    world.declare(DECLARATION.replace('"--flash"', '"--flash=2"'))

    assert first != plan(world.gated, world.ports)[-1]


def test_a_base_without_what_the_declaration_names_is_said_of_base_and_nothing_is_launched(
    world: DeclaredGate,
) -> None:
    git(world.repo, "checkout", "-q", "main")
    (world.trainer / "conf.yaml").write_text("attention: eager\nfactor: 1.0\n")
    world.commit("another key")
    git(world.repo, "checkout", "-q", "-B", "change")
    world.configure(FAST)
    found = world.gate()

    assert (Verdict.INCONCLUSIVE, True, 0) == (found.verdict, found.is_failed, len(world.specs))
    assert found.reason.startswith("base does not run")
    assert "attn" in found.reason


def test_a_stored_baseline_of_a_declared_trainer_is_held_against_head_alone(world: DeclaredGate) -> None:
    world.gate()
    name_baseline(world.reports / "history.sqlite", "nightly", who="me", at="2099-01-01T00:00:00+00:00")
    world.configure(SLOW)
    num_before = len(world.specs)
    world.want(base_ref="", baseline="nightly")
    found = world.gate()

    assert Verdict.REGRESSION is found.verdict
    assert {world.trainer} == {spec.cwd for spec in world.specs[num_before:]}


def test_a_failed_gate_of_a_declared_trainer_goes_on_to_the_commit(world: DeclaredGate) -> None:
    slow = world.configure(SLOW)
    world.commit("another document", readme="more\n")
    world.want(bisect=True, bisect_budget_s=36000.0)
    found = world.gate()

    assert (Verdict.REGRESSION, slow) == (found.verdict, found.culprit)


def test_the_declaration_is_no_change_of_the_tree_and_other_work_is(world: DeclaredGate) -> None:
    heads = [world.gate().head]
    (world.trainer / "conf.yaml").write_text(yaml.safe_dump({"attn": "eager", "factor": SLOW}))
    heads.append(world.gate().head)

    assert [False, True] == [head.endswith("that are in no commit") for head in heads]
