"""A search that Ctrl-C or kill -9 stopped, at any moment: no window is measured twice, and the answer is the same."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from bisect_world import CULPRIT, BisectWorld, Killed
from fake_world import press_ctrl_c

from flashprof.app.search import undo
from flashprof.app.visits import visit_results
from flashprof.cli.bisect_engine import exit_status
from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.events import Mark, encode
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Cause, Reading, SearchResult, SearchRule
from flashprof.decide.search_observations import LaunchEnded
from flashprof.store.tail import read_event_logs

SWA = (Cause(("swa",)),)


@pytest.fixture
def world(tmp_path: Path) -> BisectWorld:
    """Screening only, which takes a launch."""
    made = BisectWorld(tmp_path, slower={"swa": CULPRIT})
    made.ask(confirm=False)
    return made


def places(readings: Sequence[Reading]) -> Counter[tuple[object, ...]]:
    """Where each window stands; windows of the search itself by their launch and when they were."""
    return Counter(
        (reading.stage, reading.proof, reading.block, reading.position, reading.launch, reading.at_s)
        for reading in readings
    )


def without_time(readings: Sequence[Reading]) -> list[Reading]:
    """Live, the world's own clock is added to the virtual one."""
    return [replace(reading, at_s=0.0) for reading in readings]


def assert_found(result: SearchResult, world: BisectWorld) -> None:
    assert (Verdict.REGRESSION, SWA) == (result.verdict, result.culprits)
    assert {1} == set(places(world.readings).values())
    assert {fact.run_id for fact in world.facts if isinstance(fact, LaunchEnded)} >= {
        reading.launch for reading in world.readings
    }


@pytest.mark.parametrize("num", [1, 9])
def test_killed_behind_any_reading_it_goes_on(world: BisectWorld, num: int) -> None:
    world.stop_at(num, Killed())
    with pytest.raises(Killed):
        world.bisect()
    before = world.readings
    result = world.bisect()

    assert (num, before) == (len(before), world.readings[:num])
    assert num == result.num_reused
    assert ["hot-1", "hot-2"] == world.run_ids
    assert (False, ()) == (result.is_interrupted, result.failures)
    assert_found(result, world)


def test_killed_again_and_again_it_gets_to_the_same_answer(world: BisectWorld) -> None:
    for num in (3, 11, 27):
        world.stop_at(num, Killed())
        with pytest.raises(Killed):
            world.bisect()
    result = world.bisect()

    assert 27 == result.num_reused
    assert_found(result, world)


def test_killed_at_any_moment_complete_windows_of_the_launch_count(world: BisectWorld, tmp_path: Path) -> None:
    taken: list[Path] = []
    num_sleeps = 0

    def look() -> None:
        nonlocal num_sleeps
        num_sleeps += 1
        if num_sleeps % 340 == 60:
            taken.append(tmp_path / "taken" / str(len(taken)))
            shutil.copytree(world.reports, taken[-1])

    world.clock.on_sleep.append(look)
    world.bisect()
    nums_reused = []
    for place, reports in enumerate(taken):
        later = world.copied(tmp_path / f"later-{place}", reports)
        complete = visit_results(read_event_logs(later.folder.launches / ".hot-1.part" / "events"))
        result = later.bisect()
        nums_reused.append(result.num_reused)

        assert len(complete) == result.num_reused
        assert [found.log_tok_per_s for found in complete] == [
            reading.log_tok_per_s for reading in later.readings if reading.launch == "hot-1"
        ]
        assert ["hot-2"] == later.run_ids
        assert_found(result, later)

    assert 3 <= len(nums_reused)
    assert nums_reused == sorted(nums_reused)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> BisectWorld:
    """A search that came to its end."""
    made = BisectWorld(tmp_path_factory.mktemp("whole"), slower={"swa": CULPRIT})
    made.ask(confirm=False)
    made.bisect()
    return made


@pytest.mark.parametrize(("num_lines", "is_published"), [(0, False), (1, True), (8, True), (8, False)])
def test_live_and_salvaged_readings_are_alike(
    whole: BisectWorld, tmp_path: Path, num_lines: int, *, is_published: bool
) -> None:
    later = whole.copied(tmp_path / "later", whole.reports)
    lines = later.folder.journal.read_text().splitlines(keepends=True)
    # The kill may come while a line is written.
    later.folder.journal.write_text("".join([*lines[:num_lines], lines[num_lines][:20]]))
    if not is_published:
        (later.folder.launches / "hot-1").rename(later.folder.launches / ".hot-1.part")
    result = later.bisect()

    assert [] == later.run_ids
    assert without_time(whole.readings) == without_time(later.readings)
    assert_found(result, later)


def test_what_was_taken_back_is_not_salvaged(world: BisectWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.enter(monkeypatch)
    world.stop_at(9, Killed())
    with pytest.raises(Killed):
        world.bisect()
    undo(world.reports, world.folder.name, 4)
    result = world.bisect()

    assert 5 == result.num_reused
    assert_found(result, world)


def test_ctrl_c_keeps_everything_and_the_next_call_goes_on(world: BisectWorld) -> None:
    world.stop_at(7, KeyboardInterrupt())
    first = world.bisect()
    second = world.bisect()

    assert (True, Verdict.INCONCLUSIVE, 7) == (first.is_interrupted, first.verdict, first.num_readings)
    assert 130 == exit_status(first, "pass")
    assert any("interrupted" in failure for failure in first.failures)
    assert (False, (), 7) == (second.is_interrupted, second.failures, second.num_reused)
    assert ["hot-1", "hot-2"] == world.run_ids
    assert_found(second, world)


def test_ctrl_c_within_a_window_costs_that_window(world: BisectWorld) -> None:
    def press() -> None:
        if len(world.progress.looks) == 6:
            world.clock.on_sleep.remove(press)
            press_ctrl_c()

    world.clock.on_sleep.append(press)
    first = world.bisect()
    result = world.bisect()

    assert first.is_interrupted
    assert first.num_readings == result.num_reused >= 5
    assert_found(result, world)


def test_ctrl_c_while_summarising_loses_nothing(world: BisectWorld) -> None:
    stage = world.progress.stage

    def interrupted(text: str, *, total_s: float | None = None) -> None:
        stage(text, total_s=total_s)
        if text == "summarising":
            press_ctrl_c()

    world.progress.stage = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.bisect()
    found = world.readings
    result = world.bisect()
    (end,) = [fact for fact in world.facts if isinstance(fact, LaunchEnded)]

    assert (["hot-1"], found) == (world.run_ids, world.readings)
    assert Outcome.INTERRUPTED is end.outcome
    assert_found(result, world)


def test_a_killed_launch_of_another_cell_than_asked_for_is_thrown_away(world: BisectWorld) -> None:
    world.ask(cold_toggles=("swa", "pin", "fuse", "graphs"), rule=SearchRule(budget_s=50.0))
    world.bisect()
    lines = world.folder.journal.read_text().splitlines(keepends=True)
    first = world.readings[0]
    place = next(number for number, line in enumerate(lines) if json.loads(line)["kind"] == "measured")
    world.folder.journal.write_text("".join(lines[:place]))
    for path in world.folder.launches.iterdir():
        if path.name != first.launch:
            shutil.rmtree(path)
    say_other_toggles(world.folder.launches / first.launch)
    world.launches.clear()
    result = world.bisect()

    assert first.launch == world.run_ids[0]
    assert 0 == result.num_reused
    assert {first.launch} <= {reading.launch for reading in world.readings}


def say_other_toggles(launch: Path) -> None:
    (events,) = (launch / "events").iterdir()
    with events.open("a") as file:
        values = dict.fromkeys(("swa", "pin"), "neither")
        file.write(encode(Mark("toggles", 0, {"values": values, "refused": {}})) + "\n")


def test_a_killed_launch_that_confirms_is_not_made_again(world: BisectWorld) -> None:
    world.ask(confirm=True)
    # 37 readings of the hot launch, then two of each cell.
    world.stop_at(42, Killed())
    with pytest.raises(Killed):
        world.bisect()
    killed, before = world.run_ids[-1], world.readings
    world.ask(rule=SearchRule(budget_s=1.0))
    result = world.bisect()

    assert killed.startswith("cold-")
    assert 1 == world.run_ids.count(killed)
    assert before == world.readings[:42]
    assert Standing.SCREENED is result.standing
    assert_found(result, world)
