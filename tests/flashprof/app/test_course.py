"""A study's course: facts are written down before they count, and what a killed call left is taken up as it is."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from launch_files import PHASES, Trainer, cold_launch, write_counters
from study_facts import cold_pair, hot_block
from study_world import BASE, CANDIDATE, WINDOWS

from flashprof.app.course import Course
from flashprof.contracts.comparison import Arm, DecisionRule, Method
from flashprof.contracts.events import Mark
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import CompareRequest, MethodChoice
from flashprof.decide.actions import LaunchCold, MeasureHot
from flashprof.decide.observations import CallBegan, ColdFailed, ColdLaunch, HotBlock, HotEnded
from flashprof.decide.plan import StudyPlan
from flashprof.store.run_folder import FORMAT, VERSION
from flashprof.store.study_folder import StudyFolder


@dataclass
class Study:
    """A folder with whatever earlier calls left in it."""

    path: Path
    method: MethodChoice = MethodChoice.COLD

    def __post_init__(self) -> None:
        self.folder = StudyFolder(self.path)
        self.folder.launches.mkdir(parents=True)

    def leave(self, run_id: str, trainer: Trainer, **manifest: Any) -> Path:
        """A launch that the journal does not know; published if it has a manifest."""
        path = self.folder.launches / (run_id if manifest else f".{run_id}.part")
        trainer.write(path)
        if manifest:
            (path / "manifest.json").write_text(json.dumps({"format": FORMAT, "version": VERSION, **manifest}))
        return path

    def course(self) -> Course:
        return Course(self.folder, StudyPlan(base="none", candidate="swa", method=self.method))

    def begin(self) -> Course:
        """The next call."""
        course = self.course()
        course.begin_call(
            CompareRequest(
                base=BASE,
                candidate=CANDIDATE,
                subject=SubjectSpec(),
                windows=WINDOWS,
                rule=DecisionRule(),
                method=self.method,
                reports=self.path,
            )
        )
        return course


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def hot_trainer(num_blocks: int, **more: Any) -> Trainer:
    trainer = Trainer()
    trainer.train(20, **more)
    for number in range(1, num_blocks + 1):
        trainer.take_block(number, "ABBA" if number % 2 else "BAAB", dict.fromkeys(Arm, PHASES))
    trainer.train(3)
    return trainer


def test_what_is_learnt_is_on_the_disk_and_a_new_course_knows_it(study: Study) -> None:
    course = study.course()
    facts = [hot_block(1), *cold_pair(1)]
    for fact in facts:
        course.learn(fact)

    assert tuple(facts) == study.folder.observations()
    assert course.state == study.course().state
    assert [Method.HOT, Method.COLD] == [block.method for block in study.course().blocks]


def test_blocks_are_judged_with_what_they_cost(study: Study) -> None:
    course = study.course()
    for number in (1, 2, 3):
        for fact in cold_pair(number):
            course.learn(fact)
    comparison = course.judged(Method.COLD)

    assert (3, 300.0) == (comparison.num_blocks, comparison.spent_s)
    assert math.expm1(-0.2) == pytest.approx(comparison.effect.estimate)


def test_a_first_call_only_writes_down_that_it_began(study: Study) -> None:
    assert isinstance(study.begin().next(), LaunchCold)
    assert (CallBegan(),) == study.folder.observations()


def test_blocks_of_a_killed_launch_are_taken_up_once(study: Study) -> None:
    study.method = MethodChoice.AUTO
    study.leave("hot-1", hot_trainer(3))
    first = study.begin()
    second = study.begin()

    assert [1, 2, 3] == [block.number for block in first.blocks]
    assert first.blocks == second.blocks
    assert MeasureHot(launch=2, first_block=4, site="this machine") == second.next()
    assert 1 == sum(isinstance(fact, HotEnded) for fact in study.folder.observations())


def test_blocks_that_the_journal_knows_stay_as_they_are(study: Study) -> None:
    study.method = MethodChoice.AUTO
    study.course().learn(hot_block(1, -0.123))
    study.leave("hot-1", hot_trainer(2))
    course = study.begin()

    assert [1, 2] == [block.number for block in course.blocks]
    assert -0.123 == course.blocks[0].difference
    assert 2 == sum(isinstance(fact, HotBlock) for fact in study.folder.observations())


@pytest.mark.parametrize("num_windows", [0, 1, 2, 3])
def test_a_killed_launch_of_one_arm_counts_if_it_has_all_its_windows(study: Study, num_windows: int) -> None:
    study.leave("cold-1-base-1", cold_launch(num_windows=num_windows))
    study.begin()
    end, _ = study.folder.observations()

    assert (ColdLaunch if num_windows >= 2 else ColdFailed) is type(end)
    if isinstance(end, ColdLaunch):
        assert (num_windows, math.log(10_000)) == (end.num_windows, pytest.approx(end.log_tok_per_s, abs=0.01))


def test_a_killed_launch_without_an_event_is_an_interruption(study: Study) -> None:
    (study.folder.launches / ".cold-1-base-1.part").mkdir()
    course = study.begin()
    end, _ = study.folder.observations()

    assert isinstance(end, ColdFailed)
    assert (Outcome.INTERRUPTED, 0.0) == (end.outcome, end.length_s)
    assert 2 == getattr(course.next(), "attempt", 0)


def test_a_published_launch_that_failed_keeps_its_outcome_and_reason(study: Study) -> None:
    study.leave("cold-1-base-1", cold_launch(), outcome="crashed", reason="RuntimeError: boom")
    study.begin()
    end, _ = study.folder.observations()

    assert isinstance(end, ColdFailed)
    assert (Outcome.CRASHED, "RuntimeError: boom") == (end.outcome, end.reason)


def test_a_published_hot_launch_with_wrong_numbers_spoils_the_study(study: Study) -> None:
    study.method = MethodChoice.AUTO
    study.leave("hot-1", hot_trainer(2), outcome="wrong numbers", reason="loss is nan")

    assert study.begin().state.is_wrong


@pytest.mark.parametrize("run_id", ["hot-1", "cold-1-base-1"])
def test_wrong_numbers_are_found_in_events_alone(study: Study, run_id: str) -> None:
    study.method = MethodChoice.AUTO
    trainer = hot_trainer(2, loss=math.nan) if run_id == "hot-1" else cold_launch()
    trainer.train(1, loss=math.inf)
    study.leave(run_id, trainer)

    assert study.begin().state.is_wrong


def test_an_interrupted_launch_that_has_all_its_windows_counts(study: Study) -> None:
    study.leave("cold-1-base-1", cold_launch(), outcome="interrupted", reason="stopped by the user")
    study.begin()

    assert isinstance(study.folder.observations()[0], ColdLaunch)


def test_a_manifest_that_cannot_be_read_leaves_the_events(study: Study) -> None:
    path = study.leave("cold-1-base-1", cold_launch(), outcome="completed", reason="")
    (path / "manifest.json").write_text("{")
    study.begin()

    assert isinstance(study.folder.observations()[0], ColdLaunch)


def test_a_launch_that_did_not_honour_its_toggle_is_launched_again(study: Study) -> None:
    trainer = cold_launch()
    trainer.records.insert(0, Mark("toggles", 0, {"values": BASE.values, "refused": {"swa": "needs cuda"}}))
    study.leave("cold-1-base-1", trainer, outcome="completed", reason="")
    study.leave("cold-1-candidate-1", trainer, outcome="completed", reason="")
    course = study.begin()

    assert [Arm.BASE] == [launch.arm for launch in course.state.cold_launches]
    assert "cold-1-candidate-1" == getattr(course.next(), "run_id", "")
    assert ["cold-1-base-1"] == [path.name for path in study.folder.launches.iterdir()]


def test_disturbed_windows_of_a_killed_launch_are_left_out(study: Study) -> None:
    path = study.leave("cold-1-base-1", cold_launch(num_windows=3))
    write_counters(path / "counters.jsonl", until_s=8, busy_s=[(3.5, 4.2)])
    study.begin()
    end = study.folder.observations()[0]

    assert isinstance(end, ColdLaunch)
    assert 2 == end.num_windows


def test_a_folder_of_somebody_else_is_left_alone(study: Study) -> None:
    (study.folder.launches / "my notes").mkdir()
    (study.folder.launches / "my notes" / "a.txt").write_text("x")
    study.begin()

    assert (CallBegan(),) == study.folder.observations()
    assert (study.folder.launches / "my notes" / "a.txt").exists()


def test_seconds_of_killed_launches_are_spent(study: Study) -> None:
    study.method = MethodChoice.AUTO
    trainer = hot_trainer(1)
    study.leave("hot-1", trainer)
    course = study.begin()
    (fact,) = [fact for fact in study.folder.observations() if isinstance(fact, HotBlock)]

    assert trainer.now_ns / 1e9 == pytest.approx(course.state.spent_s)
    assert fact.block.launches == ("hot-1",)
