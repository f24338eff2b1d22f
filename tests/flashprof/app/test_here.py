"""Whether what is checked out is like the good runs or the bad ones, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bisect_world import BisectWorld
from declared import declare
from fake_world import FakeSubject
from launch_files import PHASES, Trainer, cold_launch
from study_world import STEP_S, WINDOWS

from flashprof.app.foreign import at_values, declared_ports, declared_spec
from flashprof.app.here import MAX_LAUNCHES, here
from flashprof.app.run import run
from flashprof.app.session import Ports
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.errors import FormatError, SubjectError, ToolError, UsageError
from flashprof.contracts.experiment import Experiment, Output, SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.ports import LaunchSpec
from flashprof.contracts.search_request import HereRequest, HereResult, HereStatus

PIPELINE_SUBJECT = SubjectSpec(preset="tiny")
SLOW = 1.2
"""The bad runs' time of a step; the good ones take 0.1 s, which is 10,000 tok/s."""


class HereWorld(BisectWorld):
    """Three runs of each side, and a tree whose steps take `factor` times as long as the good ones."""

    factor = 1.0
    rule = DecisionRule(budget_s=600.0)

    def leave(self, name: str, trainer: Trainer) -> Path:
        """A run of an earlier day."""
        path = self.root / "runs" / name
        trainer.write(path)
        return path

    def runs(self, name: str, factor: float, num: int = 3) -> tuple[Path, ...]:
        """Runs at that speed."""
        phases = {phase: factor * length_ms for phase, length_ms in PHASES.items()}
        trainers = [cold_launch(phases, seed=seed) for seed in range(num)]
        return tuple(self.leave(f"{name}-{seed}", trainer) for seed, trainer in enumerate(trainers))

    def here(
        self, good: tuple[Path, ...], bad: tuple[Path, ...], *, subject: SubjectSpec = PIPELINE_SUBJECT
    ) -> HereResult:
        """Give the command."""
        self.step_s = lambda spec: 0.1 * self.factor
        request = HereRequest(
            good=good,
            bad=bad,
            subject=subject,
            windows=WINDOWS,
            rule=self.rule,
            reports=self.reports,
        )
        return here(request, self.ports, self.progress)


@pytest.fixture
def world(tmp_path: Path) -> HereWorld:
    return HereWorld(tmp_path)


@pytest.fixture
def ends(world: HereWorld) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    return world.runs("good", 1.0), world.runs("bad", SLOW)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, HereStatus.GOOD), (0.8, HereStatus.GOOD), (SLOW, HereStatus.BAD), (1.5, HereStatus.BAD)],
)
def test_a_tree_is_like_one_of_the_two(
    world: HereWorld, ends: tuple[tuple[Path, ...], tuple[Path, ...]], factor: float, expected: HereStatus
) -> None:
    world.factor = factor
    result = world.here(*ends)

    assert expected is result.status
    assert "tok/s in 1 launch; good 10," in result.reason or "tok/s in 1 launch; good 9,9" in result.reason
    assert 1 == len(world.launches)
    assert 1 == len(list(world.reports.iterdir()))


def test_a_tree_between_the_two_says_nothing(world: HereWorld, ends: tuple[tuple[Path, ...], tuple[Path, ...]]) -> None:
    world.factor = SLOW**0.5
    result = world.here(*ends)

    assert HereStatus.SKIP is result.status
    assert result.reason.startswith("it cannot be told: ")
    assert MAX_LAUNCHES == len(world.launches) == len(set(world.run_ids))


def test_a_spent_budget_says_nothing(world: HereWorld, ends: tuple[tuple[Path, ...], tuple[Path, ...]]) -> None:
    world.factor = SLOW**0.5
    world.rule = replace(world.rule, budget_s=1.0)

    assert HereStatus.SKIP is world.here(*ends).status
    assert 1 == len(world.launches)


@pytest.mark.parametrize("factor", [1.0, 1.005, 0.8])
def test_runs_that_are_alike_are_wrong_input(world: HereWorld, factor: float) -> None:
    with pytest.raises(UsageError, match="no faster than the bad ones") as caught:
        world.here(world.runs("good", 1.0), world.runs("bad", factor))

    assert "more than 1 %" in str(caught.value.allowed)
    assert [] == world.launches


def test_a_run_without_windows_is_wrong_input(world: HereWorld) -> None:
    empty = world.leave("empty", cold_launch(num_windows=0))
    with pytest.raises(UsageError, match="no measure window") as caught:
        world.here((empty,), world.runs("bad", SLOW))

    assert str(empty) == caught.value.where


class PrintingWorld(HereWorld):
    """A trainer that only prints its throughput, before as now; a declaration says how it is started."""

    def make(self) -> None:
        """Declare it; its runs are measured in `run`."""
        self.script = lambda launch, script: replace(script, emits=False)
        (self.root / "trainer").mkdir()
        self.subject: ForeignSubject = declare(self.root / "trainer")
        self.spec = declared_spec(self.subject, "flash")
        self.specs: list[LaunchSpec] = []

    @property
    def ports(self) -> Ports:
        return declared_ports(super().ports, self.subject)

    def measured(self, name: str, factor: float) -> tuple[Path, ...]:
        """A run as `flashprof run` leaves it."""
        self.step_s = lambda spec: STEP_S * factor
        output = Output(reports=self.root / "runs", run_id=name)
        experiment = Experiment(subject=self.spec, windows=WINDOWS, output=output)
        run(experiment, at_values(self.ports, self.subject.parse("flash")), self.progress)
        return (self.root / "runs" / name,)

    def launch(self, spec: LaunchSpec) -> FakeSubject:
        self.specs.append(spec)
        return super().launch(spec)


@pytest.mark.parametrize(("factor", "expected"), [(1.0, HereStatus.GOOD), (SLOW, HereStatus.BAD)])
def test_a_declared_trainer_that_only_prints_is_measured_with_the_toggles_of_its_runs(
    tmp_path: Path, factor: float, expected: HereStatus
) -> None:
    world = PrintingWorld(tmp_path)
    world.make()
    ends = world.measured("monday", 1.0), world.measured("tuesday", SLOW)
    world.factor = factor
    result = world.here(*ends, subject=world.spec)

    assert expected is result.status
    assert 3 == len(world.specs)
    assert all(("flash", world.subject.cwd) == (spec.command[5], spec.cwd) for spec in world.specs)


def test_a_run_that_left_neither_steps_nor_a_summary_is_damaged(world: HereWorld) -> None:
    damaged = world.leave("damaged", Trainer())
    with pytest.raises(FormatError, match="no summary that can be read"):
        world.here((damaged,), world.runs("bad", SLOW))


def test_runs_that_disagree_need_more_than_a_glance(world: HereWorld) -> None:
    good = (*world.runs("fast", 0.95, 1), *world.runs("slow", 1.1, 1))
    world.factor = 1.05
    result = world.here(good, world.runs("bad", SLOW))

    assert HereStatus.SKIP is result.status


def test_a_tree_that_does_not_train_is_no_answer(
    world: HereWorld, ends: tuple[tuple[Path, ...], tuple[Path, ...]]
) -> None:
    world.script = lambda launch, script: replace(script, exits=(5.0, 1))
    with pytest.raises(SubjectError, match="boom") as caught:
        world.here(*ends)

    assert Outcome.CRASHED is caught.value.outcome


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "No space left on device"), ToolError)],
)
def test_what_says_nothing_of_the_tree_ends_it(
    world: HereWorld,
    ends: tuple[tuple[Path, ...], tuple[Path, ...]],
    trouble: BaseException,
    expected: type[BaseException],
) -> None:
    def happen() -> None:
        if len(world.launches) == 1:
            world.clock.on_sleep.remove(happen)
            raise trouble

    world.clock.on_sleep.append(happen)
    with pytest.raises(expected):
        world.here(*ends)
