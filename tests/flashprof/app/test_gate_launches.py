"""Trees as arms: which commits they are, how they are started, and what is said of one that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bisect_world import REGISTRY
from gate_world import GateWorld, git

from flashprof.app.gate_launches import Trees, find_trees, make_starts
from flashprof.contracts.comparison import Arm
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.toggles import toggles_to_json


@pytest.fixture
def world(tmp_path: Path) -> GateWorld:
    made = GateWorld(tmp_path).make()
    package = made.repo / "pipeline"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"print({json.dumps(toggles_to_json(REGISTRY))!r})\n")
    made.commit("pipeline")
    git(made.repo, "branch", "-f", "main")
    made.want(command=(), subject=SubjectSpec(preset="tiny", toggles="swa"))
    return made


def trees_of(world: GateWorld) -> Trees:
    return find_trees(world.gated)


def test_our_pipeline_is_started_from_either_tree_at_the_same_toggles(world: GateWorld, tmp_path: Path) -> None:
    world.commit("change", readme="more\n")
    starts = make_starts(world.gated, trees_of(world), world.ports, tmp_path / "gate")
    notes = [starts.build(arm) for arm in Arm]
    base, head = (starts.start(arm) for arm in Arm)
    worktree = tmp_path / "gate" / "worktrees" / trees_of(world).base.commit[:12]

    assert ["", ""] == notes
    assert base.subject == head.subject
    assert "swa" == head.subject.command[head.subject.command.index("--toggles") + 1]
    assert base.ports.env["PYTHONPATH"].startswith(f"{worktree}:")
    assert head.ports.env["PYTHONPATH"].startswith(f"{world.repo}:")
    assert world.ports.cwd == base.ports.cwd == head.ports.cwd


def test_a_toggle_that_head_has_not_is_said_of_head(world: GateWorld, tmp_path: Path) -> None:
    (world.repo / "pipeline" / "__main__.py").write_text(f"print({json.dumps(toggles_to_json(REGISTRY[1:]))!r})\n")
    starts = make_starts(world.gated, trees_of(world), world.ports, tmp_path / "gate")
    starts.build(Arm.BASE)
    with pytest.raises(SubjectError) as error:
        starts.build(Arm.CANDIDATE)

    assert error.value.what.startswith("head does not run")
    assert "swa" in error.value.what


def test_a_head_without_commits_of_its_own_is_held_against_what_was_asked(world: GateWorld) -> None:
    git(world.repo, "checkout", "-q", "main")
    newer = world.commit("newer", readme="newer\n")
    git(world.repo, "checkout", "-q", "change")
    trees = trees_of(world)

    assert newer == trees.base.commit
    assert () == trees.notes


def test_the_reports_are_no_change_of_the_tree(world: GateWorld) -> None:
    inside = world.repo / "reports"
    inside.mkdir()
    (inside / "made.py").write_text("import os\n")
    world.want(reports=inside)

    assert "" == trees_of(world).head.changes


def test_submodules_are_refused(world: GateWorld) -> None:
    git(world.repo, "update-index", "--add", "--cacheinfo", f"160000,{world.head},library")
    git(world.repo, "commit", "-qm", "submodule")
    git(world.repo, "branch", "-f", "main")
    with pytest.raises(UsageError, match="submodules"):
        trees_of(world)
