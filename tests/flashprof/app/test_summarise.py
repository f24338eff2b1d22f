"""What py-spy left of a run becomes hot frames and a flamegraph, under the phases that the run emitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_world import FakeSampler, World

from flashprof.app.run import run
from flashprof.contracts.ports import SampleTarget
from flashprof.contracts.results import RunSummary
from flashprof.sample.phase_lines import read_phase_lines
from flashprof.sample.stack_files import write_looks

SOURCE = "def step():\n    with span('forward'):\n        attend()\n    with span('unknown'):\n        rest()\n"


class StackSampler(FakeSampler):
    """Leaves the stacks of one process, in the views that it is made for."""

    source: Path
    has_gil_view: bool = True

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        super().start(targets, folder)
        folder.mkdir(parents=True, exist_ok=True)
        hot = f"thread (7): MainThread;step ({self.source}:3);attend (model.py:9)"
        rest = f"thread (7): MainThread;step ({self.source}:5);rest (x.py:1)"
        logger = "thread (8): log;write (l.py:1)"
        (folder / "trainer-0.folded").write_text(f"{hot} 30\n{rest} 10\n{logger} 5\n")
        if self.has_gil_view:
            (folder / "trainer-0.gil.folded").write_text(f"{hot};holder (model.py:11) 9\n")
            write_looks(folder, 100)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "reports")
    sampler = StackSampler(world.journal)
    sampler.source = tmp_path / "loop.py"
    sampler.source.write_text(SOURCE)
    world.samplers = [sampler]
    return world


def measure(world: World) -> RunSummary:
    return run(world.experiment, world.ports, world.progress)


def test_hot_frames_are_those_of_wall_time_only(world: World) -> None:
    shown = {frame.name: frame.self_share for frame in measure(world).frames}

    assert {"attend", "rest", "write"} <= set(shown)
    assert "holder" not in shown
    assert 30 / 45 == pytest.approx(shown["attend"])


def test_the_lines_of_emitted_phases_are_kept_in_the_folder(world: World) -> None:
    measure(world)
    lines = read_phase_lines(world.reports / "run" / "samples")

    assert ["forward", ""] == [lines.phase_of("loop.py", line) for line in (3, 5)]


def test_the_flamegraph_is_written_with_paths_of_no_machine(world: World) -> None:
    summary = measure(world)
    folder = world.reports / "run"
    stacks = (folder / "samples" / "profile-1" / "trainer-0.folded").read_text()

    assert str(folder / "flamegraph.html") == summary.paths["flamegraph"]
    assert "run" in (folder / "flamegraph.html").read_text()
    assert "step (loop.py:3)" in stacks
    assert str(world.reports.parent) not in stacks


@pytest.mark.parametrize("has_gil_view", [True, False])
def test_the_flamegraph_has_a_view_of_the_gil_where_one_was_recorded(world: World, has_gil_view: bool) -> None:
    [sampler] = world.samplers
    assert isinstance(sampler, StackSampler)
    sampler.has_gil_view = has_gil_view
    measure(world)
    page = (world.reports / "run" / "flamegraph.html").read_text()

    assert has_gil_view == ("holding the GIL" in page)
