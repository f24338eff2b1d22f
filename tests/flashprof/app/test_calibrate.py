"""Calibrating in virtual time: launches come and go, and whatever was measured becomes a page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from calm_noise import z_judge
from fake_world import FakeClock, FakeLauncher, FakeProgress, Script
from filelock import FileLock

from flashprof.app.calibrate import Calibrated, CalibrateRequest, calibrate, plan
from flashprof.app.calibration_data import read_launches
from flashprof.app.hot import HotPlan
from flashprof.app.measure import Schedule, record
from flashprof.app.progress import Progress
from flashprof.app.session import Ports
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.experiment import Experiment, SubjectSpec, WindowPlan
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary
from flashprof.contracts.toggles import Toggle
from flashprof.store.calibration_file import read_calibration
from flashprof.store.run_folder import RunFolder, create_run_folder

REGISTRY = (
    Toggle(name="swa", help="", hot=True),
    Toggle(name="queue", help="", default=2, on=4, minimum=1, hot=True),
    Toggle(name="expandable", help=""),
)
NOISE = np.random.default_rng(1).normal(0, 0.01, 100_000)
STEADY = Script(step_s=lambda index: 0.1 * math.exp(NOISE[index]))


@dataclass
class Lab:
    """A place to calibrate in; its runner does what `app.run.run` does, without summarising."""

    reports: Path
    script: Script = STEADY
    clock: FakeClock = field(default_factory=FakeClock)
    progress: FakeProgress = field(default_factory=FakeProgress)
    before_publishing: Callable[[RunFolder], None] = lambda folder: None
    experiments: list[Experiment] = field(default_factory=list)

    @property
    def request(self) -> CalibrateRequest:
        return CalibrateRequest(
            subject=SubjectSpec(command=("trainer",), toggles="swa"),
            registry=REGISTRY,
            windows=WindowPlan(steady_timeout_s=20.0),
            hot=HotPlan(window_steps=10, max_settle_steps=4),
            minutes=2.5,
            num_launches=3,
            reports=self.reports,
        )

    @property
    def ports(self) -> Ports:
        return Ports(
            clock=self.clock,
            launcher=FakeLauncher(self.script, self.clock, []),
            samplers=[],
            find_targets=lambda watch, pid: [],
            env={"PATH": "/bin"},
            cwd=self.reports,
        )

    @property
    def folder(self) -> Path:
        [folder] = [path for path in self.reports.glob("calibration-*") if ".old-" not in path.name]
        return folder

    def calibrate(self, **changes: object) -> Calibrated:
        request = replace(self.request, **changes)
        return calibrate(request, self.ports, self.progress, runner=self.run, judge=z_judge)

    def run(self, experiment: Experiment, ports: Ports, progress: Progress, *, schedule: Schedule) -> RunSummary:
        self.experiments.append(experiment)
        output = experiment.output
        folder = create_run_folder(output.reports, output.run_id)
        recording = record(experiment, folder, ports, progress, schedule)
        folder.write_manifest({"outcome": recording.outcome})
        folder.write_text("summary.json", json.dumps({"startup_s": 2.1}))
        self.before_publishing(folder)
        folder.publish()
        return RunSummary(run_id=output.run_id, cell={}, outcome=recording.outcome, reason=recording.reason)

    def interrupt_launch(self, number: int, *, after_s: float) -> None:
        """Press Ctrl-C once, in a later launch."""
        begun: list[int] = []

        def press() -> None:
            if len(self.experiments) == number and not begun:
                begun.append(self.clock.now_ns)
            if begun and begun[0] and self.clock.now_ns > begun[0] + after_s * 1e9:
                begun[0] = 0
                raise KeyboardInterrupt

        self.clock.on_sleep.append(press)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(reports=tmp_path / "reports")


def test_launches_become_a_page_a_picture_and_a_file(lab: Lab) -> None:
    done = lab.calibrate()

    noise = done.calibration.noise
    assert not done.is_interrupted
    assert 3 == noise.num_launches
    assert noise.num_blocks > 3 * 4
    # Windows of 10 steps of 1 %: 0.32 % each, and a block's difference has as much; few blocks, so roughly.
    assert noise.window.sd == pytest.approx(0.01 / math.sqrt(10), rel=0.25)
    assert noise.block.sd == pytest.approx(0.01 / math.sqrt(10), rel=0.5)
    assert done.calibration == read_calibration(lab.folder / "calibration.json")
    assert "keep their word" in (lab.folder / "calibration.md").read_text()
    assert "</svg>" in (lab.folder / "calibration.svg").read_text()
    assert ["launch-01", "launch-02", "launch-03"] == sorted(path.name for path in (lab.folder / "launches").iterdir())


def test_a_launch_lives_for_its_share_of_the_minutes(lab: Lab) -> None:
    done = lab.calibrate()

    assert done.calibration.measured_min == pytest.approx(2.5, rel=0.1)
    assert done.calibration.startup_s == 2.1
    assert done.calibration.overhead_s > 2.1


def test_both_arms_are_the_cell_itself_and_only_hot_toggles_are_sent(lab: Lab) -> None:
    lab.calibrate(num_launches=1)
    commands = [json.loads(path.read_text()) for path in (lab.folder / "launches").glob("*/control/*.json")]
    switches = [command["detail"] for command in commands if command["name"] == "set_toggles"]

    assert [{"swa": True, "queue": 2}] == list(
        {str(detail["values"]): detail["values"] for detail in switches}.values()
    )
    assert {"ABBA", "BAAB"} == {detail["order"] for detail in switches if detail["block"]}


def test_a_second_call_adds_launches_with_coins_of_their_own(lab: Lab) -> None:
    lab.calibrate(num_launches=2)
    done = lab.calibrate(num_launches=2)
    runs = [experiment.output.run_id for experiment in lab.experiments]
    orders = [
        launch.blocks[index].order for launch in read_launches(lab.folder / "launches").launches for index in range(4)
    ]

    assert ["launch-01", "launch-02", "launch-03", "launch-04"] == runs
    assert 4 == done.calibration.noise.num_launches
    assert len(set(map(tuple, (orders[:4], orders[4:8], orders[8:12], orders[12:])))) > 1


def test_no_launches_make_the_same_page_again(lab: Lab) -> None:
    first = lab.calibrate(num_launches=2).calibration
    again = lab.calibrate(num_launches=0).calibration

    assert 2 == len(lab.experiments)
    assert first == replace(again, date=first.date)


def test_fresh_puts_the_old_ones_aside(lab: Lab) -> None:
    lab.calibrate(num_launches=2)
    done = lab.calibrate(num_launches=1, fresh=True)

    assert 1 == done.calibration.noise.num_launches
    assert done.calibration.launch_sd is None
    assert 2 == len(list(lab.reports.glob("calibration-*.old-1/launches/*")))


def test_ctrl_c_keeps_what_there_is(lab: Lab) -> None:
    lab.interrupt_launch(3, after_s=40.0)

    done = lab.calibrate()

    assert done.is_interrupted
    assert 3 == done.calibration.noise.num_launches
    # The third was not to its end: its blocks count, as a launch it does not.
    assert done.calibration.launch_sd is not None
    assert 1 == done.calibration.launch_sd.freedom
    assert any("launch-03: interrupted" in note for note in done.calibration.notes)
    assert (lab.folder / "calibration.md").exists()


def test_ctrl_c_in_the_first_launch_gives_no_page(lab: Lab) -> None:
    lab.interrupt_launch(1, after_s=40.0)

    with pytest.raises(KeyboardInterrupt):
        lab.calibrate()

    assert not (lab.folder / "calibration.json").exists()
    assert 2 == lab.calibrate(num_launches=1).calibration.noise.num_launches


def test_what_fails_twice_is_not_tried_again(lab: Lab) -> None:
    lab.script = replace(STEADY, exits=(1.0, 1), last_words="no such file")

    with pytest.raises(SubjectError) as caught:
        lab.calibrate()

    assert 2 == len(lab.experiments)
    assert caught.value.outcome is Outcome.LOAD_FAILED
    assert "launch-02: failed while loading" in str(caught.value.where)
    assert caught.value.next_command


def test_a_launch_that_was_cut_off_gives_its_blocks(lab: Lab) -> None:
    lab.calibrate(num_launches=2)
    launches = lab.folder / "launches"
    (launches / "launch-02" / "manifest.json").unlink()
    (launches / "launch-02" / "summary.json").unlink()
    (launches / "launch-02").rename(launches / ".launch-02.part")
    (launches / "notes of mine").mkdir()

    done = lab.calibrate(num_launches=1)

    assert "launch-03" == lab.experiments[-1].output.run_id
    assert 3 == done.calibration.noise.num_launches
    assert any(note.startswith("launch-02: cut off; ") for note in done.calibration.notes)


def test_two_at_once_are_refused(lab: Lab) -> None:
    lab.calibrate(num_launches=1)

    with FileLock(lab.reports / f".{lab.folder.name}.lock"), pytest.raises(UsageError, match="another flashprof"):
        lab.calibrate()


def test_the_plan_says_what_it_costs_and_starts_nothing(lab: Lab) -> None:
    ports = lab.ports
    lines = plan(lab.request, ports.env, ports.cwd)

    assert "3 launches of tiny 1+1 with swa in both arms" == lines[0]
    assert "50 s" in lines[1]
    assert "about 2.5 min" in lines[2]
    assert not lab.reports.exists()

    lab.calibrate(num_launches=1)

    assert (
        "1 launches of earlier calls are used too (--fresh puts them aside)"
        == plan(lab.request, ports.env, ports.cwd)[2]
    )


def test_the_cell_decides_where_it_lives(lab: Lab) -> None:
    def place(**changes: object) -> str:
        request = replace(lab.request, subject=replace(lab.request.subject, **changes))
        env: Mapping[str, str] = {"PATH": "/bin"}
        return plan(request, env, lab.reports)[-1]

    assert place() == place()
    assert place() != place(toggles="none")
    assert place() != place(preset="small")
