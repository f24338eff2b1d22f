"""Lanes of real gates: kinds in turn, numbers of their own, going on after a stop, giving up on what always fails."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import gate_results
import pytest
from click.testing import CliRunner

from benchmarks.gate_real import MAX_FAILED, Lane, line, main, run_lane
from benchmarks.gate_trials import read_lane
from flashprof.report.gate_json import gate_to_json

FAKE = """
import pathlib, signal, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--reports") + 1])
folder.mkdir(exist_ok=True)
(folder / "calls").open("a").write("called\\n")
here = pathlib.Path(sys.argv[1])
if (here / "hangs").exists():
    signal.pause()
print((here / "printed").read_text())
status, *later = (here / "statuses").read_text().split()
(here / "statuses").write_text(" ".join(later or [status]))
sys.exit(int(status))
"""


class World:
    """A gate that answers at once, as it is told to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "fake.py").write_text(FAKE)
        ticks = itertools.count()
        self.lane = Lane(
            out=root / "out",
            kinds=("aa-docs", "planted-5"),
            lane=0,
            num_lanes=1,
            seed=0,
            budget_s=60.0,
            settings=("windows.num_measure=3",),
            cli=(sys.executable, str(root / "fake.py"), str(root)),
            clock=lambda: float(next(ticks)),
        )
        self.answer("0", gate_to_json(gate_results.passed()))

    def answer(self, statuses: str, printed: str) -> None:
        """Of the next gates, and the last one's of all that follow."""
        (self.root / "statuses").write_text(statuses)
        (self.root / "printed").write_text(printed)

    def run(self, num: int, **changes: Any) -> None:
        """As many trials: the clock goes on by a second whenever it is asked."""
        lane = replace(self.lane, **changes)
        run_lane(lane, until_s=lane.clock() + num + 0.5, stop_s=None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_kinds_take_turns_and_answers_are_kept(world: World) -> None:
    world.run(3)
    trials = read_lane(world.lane.path)

    assert ["aa-docs", "planted-5", "aa-docs"] == [trial.kind for trial in trials]
    assert [0, 1, 2] == [trial.number for trial in trials]
    assert all(("no regression", 0) == (trial.verdict, trial.status) for trial in trials)
    assert all(trial.pairs and trial.wall_s > 0 for trial in trials)
    assert ("windows.num_measure=3",) == trials[0].settings
    assert [world.lane.path.name] == [path.name for path in world.lane.out.iterdir() if path.is_file()]
    assert [] == list((world.lane.out / "lane-0").iterdir())


def test_another_call_goes_on_behind_the_last_trial(world: World) -> None:
    world.run(1)
    world.run(1)

    assert [(0, "aa-docs"), (1, "planted-5")] == [(trial.number, trial.kind) for trial in read_lane(world.lane.path)]


def test_no_two_lanes_or_seeds_share_a_number_and_lanes_begin_with_other_kinds(world: World) -> None:
    lanes = [replace(world.lane, lane=lane, num_lanes=3, seed=seed) for lane in range(3) for seed in range(2)]
    numbers = [lane.number(done) for lane in lanes for done in range(20)]

    assert len(numbers) == len(set(numbers))
    assert ["aa-docs", "planted-5"] == [lanes[0].kind(0), lanes[2].kind(0)]


def test_a_trial_that_was_stopped_is_no_line_and_goes_on_where_it_was(world: World) -> None:
    (world.root / "hangs").touch()
    lane = replace(world.lane, clock=lambda: 0.0)
    run_lane(lane, until_s=1.0, stop_s=0.5)
    stopped, folder = read_lane(lane.path), lane.out / "lane-0" / "trial-0"
    (folder / "repo" / "mark").touch()
    (world.root / "hangs").unlink()
    # The folder of a trial that fails is kept, and shows whether it is the first one's.
    world.answer("4", "")
    world.run(1)

    assert [] == stopped
    assert [0] == [trial.number for trial in read_lane(lane.path)]
    assert (folder / "repo" / "mark").exists()
    assert (folder / "reports" / "calls").exists()


def test_what_fails_is_told_and_left_to_look_at_and_given_up_in_the_end(world: World) -> None:
    world.answer("4", json.dumps({"error": "boom"}))
    with pytest.raises(click.ClickException, match="trial-2"):
        world.run(10)
    trials = read_lane(world.lane.path)

    assert [4] * MAX_FAILED == [trial.status for trial in trials]
    assert all(not trial.verdict for trial in trials)
    assert MAX_FAILED == len(list((world.lane.out / "lane-0").iterdir()))


def test_failures_that_answers_part_are_not_given_up(world: World) -> None:
    world.answer("4 4 3 4", gate_to_json(gate_results.inconclusive()))
    world.run(4)

    assert [4, 4, 3, 4] == [trial.status for trial in read_lane(world.lane.path)]


def test_a_line_says_kind_answer_and_cost(world: World) -> None:
    world.run(1)
    (trial,) = read_lane(world.lane.path)

    assert "aa-docs    no regression" in line(trial)
    assert f"{len(trial.pairs)} pairs" in line(trial)
    assert "exit status 4" in line(replace(trial, verdict="", status=4, change=None))


@pytest.mark.parametrize("words", [("--kinds", "aa-docs,aa-dosc"), ("--lane", "2", "--lanes", "2")])
def test_kinds_and_lanes_that_are_none_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, ["record", "--out", str(tmp_path / "out"), *words])

    assert 2 == done.exit_code
    assert not (tmp_path / "out").exists()
