"""Launches that explain a verdict: made once, beside the others, and what they cannot do costs no answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bisect_world import CULPRIT, BisectWorld
from fake_world import Script
from study_world import Launch, StudyWorld

from flashprof.app.explain import explain_id, is_explained
from flashprof.contracts.comparison import Arm, Verdict
from flashprof.contracts.localisation import Localisation
from flashprof.contracts.search import SearchResult, SearchRule

BASE, CANDIDATE = explain_id("good", Arm.BASE), explain_id("swa", Arm.CANDIDATE)


@pytest.fixture
def world(tmp_path: Path) -> BisectWorld:
    """Screening only, and an explanation."""
    made = BisectWorld(tmp_path, slower={"swa": CULPRIT})
    made.ask(confirm=False, explain=True)
    return made


def localised(result: SearchResult) -> Localisation:
    assert result.localisation is not None
    return result.localisation


def test_the_culprits_cells_are_launched_once_more_and_no_verdict_is_read_from_them(world: BisectWorld) -> None:
    result = world.bisect()
    folder = world.folder.path / "explained"

    assert ["hot-1", BASE, CANDIDATE] == world.run_ids
    assert {BASE, CANDIDATE} == {path.name for path in folder.iterdir()}
    assert is_explained(folder / BASE)
    assert result.num_launches == 1
    # Phases come from the launch that holds both cells: another one would bring its own speed.
    assert (1, 1) == localised(result).num_launches
    assert localised(result).difference.estimate > 0


def test_a_second_call_explains_nothing_again(world: BisectWorld) -> None:
    first = world.bisect()
    num_launches = len(world.run_ids)
    second = world.bisect()

    assert num_launches == len(world.run_ids)
    assert localised(first) == localised(second)


def test_where_nobody_is_named_yet_the_ends_tell_where_the_drop_lies(world: BisectWorld) -> None:
    world.slower = dict.fromkeys(("swa", "pin", "fuse"), 1.12)
    world.ask(confirm=False, explain=True, rule=SearchRule(certainty=0.999999, budget_s=26.0))
    result = world.bisect()
    ends = [explain_id(cell, arm) for cell, arm in zip(("good", "bad"), Arm, strict=True)]

    assert (Verdict.INCONCLUSIVE, ()) == (result.verdict, result.culprits)
    assert ends == world.run_ids[-2:]
    assert localised(result).difference.estimate > 0


def test_who_wants_no_explanation_gets_phases_all_the_same(world: BisectWorld) -> None:
    world.ask(explain=False)
    result = world.bisect()

    assert ["hot-1"] == world.run_ids
    assert 1 == localised(result).num_launches[0]


def test_a_launch_that_fails_is_a_note_and_is_tried_again_by_the_next_call(world: BisectWorld) -> None:
    fails = True

    def script(launch: Launch, made: Script) -> Script:
        return replace(made, exits=(5.0, 1)) if fails and launch.run_id == CANDIDATE else made

    world.script = script
    first = world.bisect()
    fails = False
    second = world.bisect()

    assert (Verdict.REGRESSION, Verdict.REGRESSION) == (first.verdict, second.verdict)
    assert any("could not be explained: crashed" in note for note in first.notes)
    assert not any("could not be explained" in note for note in second.notes)
    assert is_explained(world.folder.path / "explained" / CANDIDATE)


def test_a_comparison_that_shows_a_regression_is_explained(tmp_path: Path) -> None:
    world = StudyWorld(tmp_path, factor=1.2)
    world.ask(confirm=False, explain=True)
    result = world.compare()

    assert Verdict.REGRESSION is result.verdict
    assert [explain_id(arm, arm) for arm in Arm] == [launch.run_id for launch in world.launches[-2:]]
    assert result.localisation is not None
    assert (result.base, result.candidate) == (result.localisation.base, result.localisation.candidate)


def test_arms_that_are_alike_are_not(tmp_path: Path) -> None:
    world = StudyWorld(tmp_path, factor=1.0)
    world.ask(confirm=False, explain=True)
    result = world.compare()

    assert result.localisation is None
    assert not any(launch.run_id.startswith("base-") for launch in world.launches)
