"""A whole search among toggles in virtual time: what it finds, what fails, what the user says between calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from bisect_world import CULPRIT, BisectWorld, Killed, toggle_request

from flashprof.app.search import plan, skip, status, undo
from flashprof.cli.bisect_engine import exit_status
from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.errors import ToolError, UnknownNameError, UsageError
from flashprof.contracts.search import Cause, SearchResult, SearchRule, Stage
from flashprof.decide.search_observations import LaunchEnded
from flashprof.report.bisect_console import render_search
from flashprof.store.search_result import search_from_json

SWA = (Cause(("swa",)),)


@pytest.fixture
def world(tmp_path: Path) -> BisectWorld:
    """Screening only, which takes a launch."""
    made = BisectWorld(tmp_path, slower={"swa": CULPRIT})
    made.ask(confirm=False)
    return made


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """A search from its first call to its answer."""
    world = BisectWorld(tmp_path_factory.mktemp("found"), slower={"swa": CULPRIT})
    world.ask(confirm=False)
    return Found(world, plan(world.request, world.ports), world.reports.exists(), world.bisect())


class Found(NamedTuple):
    """A search that came to its answer."""

    world: BisectWorld
    plan: Sequence[str]
    """Before it."""
    was_there: bool
    """Whether the plan left anything."""
    result: SearchResult


def speed_of(result: SearchResult, cell: str) -> float:
    (found,) = [info.tok_per_s for info in result.cells if info.cell == cell]
    assert found is not None
    return found


def test_the_planted_culprit_is_found_in_one_launch_and_proved(found: Found) -> None:
    world, _, _, result = found

    assert (Verdict.REGRESSION, Standing.SCREENED, SWA, ()) == (
        result.verdict,
        result.standing,
        result.culprits,
        result.gains,
    )
    assert ["hot-1"] == world.run_ids
    assert [(False, "good", "swa"), (True, "pin+fuse", "bad")] == [
        (proof.is_back, proof.base, proof.candidate) for proof in result.proofs if proof.is_shown
    ]
    assert result.drop is not None
    assert 1 / CULPRIT - 1 == pytest.approx(result.drop.estimate, abs=0.01)
    assert 1 / CULPRIT == pytest.approx(speed_of(result, "swa") / speed_of(result, "good"), abs=0.01)
    assert (len(world.readings), 0, 1) == (result.num_readings, result.num_reused, result.num_launches)
    assert 1 == exit_status(result, None)


def test_launches_of_one_cell_each_confirm_it(world: BisectWorld) -> None:
    world.ask(confirm=True)
    result = world.bisect()
    confirming = [reading for reading in world.readings if reading.stage is Stage.CONFIRM]

    assert (Verdict.REGRESSION, Standing.CONFIRMED, SWA) == (result.verdict, result.standing, result.culprits)
    assert 4 == sum(proof.is_shown for proof in result.proofs)
    assert {"hot-1", *(reading.launch for reading in confirming)} == set(world.run_ids)
    # Two windows of one cell in each, as the plan of windows says.
    assert all(2 == sum(reading.launch == run_id for reading in confirming) for run_id in world.run_ids[1:])
    assert all(1 == len({reading.cell for reading in confirming if reading.launch == run}) for run in world.run_ids[1:])


def test_a_launch_is_started_as_the_first_cell_that_it_is_for(found: Found) -> None:
    world = found.world
    first = world.readings[0].cell

    assert [{"good": "all,-graphs", "bad": "none"}[first]] == [launch.toggles for launch in world.launches]


def test_good_and_bad_that_are_alike_are_no_regression(world: BisectWorld) -> None:
    world.slower = {}
    result = world.bisect()

    assert (Verdict.NO_REGRESSION, ()) == (result.verdict, result.culprits)
    assert 0 == exit_status(result, None)


def test_a_gain_does_not_hide_the_loss(world: BisectWorld) -> None:
    world.slower = {"swa": CULPRIT, "pin": 0.88}
    result = world.bisect()

    assert (Verdict.REGRESSION, SWA, (Cause(("pin",)),)) == (result.verdict, result.culprits, result.gains)


def test_the_answer_is_left_in_the_folder(found: Found) -> None:
    world, _, _, result = found
    path = world.folder.path

    assert result == search_from_json((path / "result.json").read_text())
    assert {"search.json", "journal.jsonl", "report.md", "report.txt"} <= {found.name for found in path.iterdir()}
    assert render_search(result, color=False, width=100) == (path / "report.txt").read_text()
    assert str(path) == dict(result.paths)["search"]
    assert ["hot-1"] == [found.name for found in world.folder.launches.iterdir()]


def test_each_reading_is_shown_with_what_comes_next(found: Found) -> None:
    world, _, _, result = found
    looks = world.progress.looks

    assert {*range(result.num_readings + 1)} == {look.num_readings for look in looks}
    assert "" == looks[-1].next_cell
    assert {"all,-graphs", "none", "swa", "pin,fuse", ""} == {look.next_cell for look in looks}
    assert all(look.why for look in looks)


def test_a_spent_budget_is_inconclusive_and_a_larger_one_goes_on(world: BisectWorld) -> None:
    world.ask(rule=SearchRule(budget_s=60.0))
    first = world.bisect()
    found = world.readings
    world.ask(rule=SearchRule(budget_s=3600.0))
    second = world.bisect()

    assert Verdict.INCONCLUSIVE is first.verdict
    assert "budget of 1 min is spent" in first.reason
    assert found
    assert (Verdict.REGRESSION, SWA) == (second.verdict, second.culprits)
    assert (len(found), found) == (second.num_reused, world.readings[: len(found)])
    assert 3 == exit_status(first, None)


def test_the_same_command_says_the_same_and_measures_nothing(world: BisectWorld) -> None:
    first = world.bisect()
    second = world.bisect()

    assert ["hot-1"] == world.run_ids
    assert replace(first, num_reused=first.num_readings) == second


def test_fresh_puts_aside_what_was_measured(stopped: BisectWorld) -> None:
    stopped.ask(fresh=True)
    result = stopped.bisect()

    assert (0, ["hot-1", "hot-1"]) == (result.num_reused, stopped.run_ids)


# Failures


def test_a_cell_that_crashes_is_left_out_and_never_bad(world: BisectWorld) -> None:
    # The cell that would prove it best.
    world.crashes = lambda values: (values["swa"], values["pin"], values["fuse"]) == (False, True, True)
    result = world.bisect()
    ends = [fact for fact in world.facts if isinstance(fact, LaunchEnded)]
    (info,) = [info for info in result.cells if info.cell == "swa"]

    assert SWA == result.culprits
    assert [True] == [proof.is_back for proof in result.proofs if proof.is_shown]
    assert not any(reading.cell == "swa" for reading in world.readings)
    assert (None, 0, "crashed") == (info.tok_per_s, info.num_readings, info.outcome)
    assert ["swa", "swa", ""] == [end.cell for end in ends]
    assert all("crashed in swa" in failure and "boom" in failure for failure in result.failures)
    assert 2 == len(result.failures)


def test_without_an_end_nothing_is_explained(world: BisectWorld) -> None:
    world.crashes = lambda values: not any(values.values())
    result = world.bisect()

    assert (Verdict.INCONCLUSIVE, (), None) == (result.verdict, result.culprits, result.drop)
    assert "the bad end cannot be measured (crashed)" in result.reason
    assert 4 == exit_status(result, "pass")


def test_wrong_numbers_are_no_evidence(world: BisectWorld) -> None:
    world.script = lambda launch, script: replace(script, loss=lambda index: math.nan if index > 150 else 5.0)
    result = world.bisect()

    assert (Verdict.INCONCLUSIVE, (), 0) == (result.verdict, result.culprits, result.num_readings)
    assert any("wrong numbers" in failure for failure in result.failures)


def test_a_journal_that_cannot_be_written_is_an_error_with_a_way_out(world: BisectWorld) -> None:
    def block_the_way(look: object) -> None:
        if len(world.progress.looks) == 5:
            world.folder.journal.rename(world.folder.path / "journal.old")
            world.folder.journal.mkdir()

    world.progress.on_look = block_the_way
    with pytest.raises(ToolError, match="cannot write to the search folder") as caught:
        world.bisect()

    assert "goes on" in str(caught.value.next_command)


# Toggles


def test_a_toggle_that_the_machine_cannot_honour_is_left_out_and_told(world: BisectWorld) -> None:
    world.request = replace(toggle_request(world.reports, "all", "none"), confirm=False)
    result = world.bisect()

    assert (Verdict.REGRESSION, SWA) == (result.verdict, result.culprits)
    assert {"swa", "pin", "fuse"} == set(result.labels or {})
    assert "graphs is left out: it needs a CUDA device" in result.notes
    assert "all,-graphs" == result.good


def test_ends_that_are_one_cell_here_are_wrong_input(world: BisectWorld) -> None:
    world.request = toggle_request(world.reports, "graphs", "none")
    with pytest.raises(UsageError, match="one cell on this machine") as caught:
        world.bisect()

    assert "graphs needs a CUDA device" == caught.value.allowed
    assert not world.reports.exists()


def test_a_toggle_that_cannot_be_switched_is_wrong_input(world: BisectWorld) -> None:
    world.script = lambda launch, script: replace(script, refuses={"swa": "cold: it needs a new start"})
    with pytest.raises(UsageError, match="refuses to switch"):
        world.bisect()

    assert [] == list(world.folder.launches.iterdir())


def test_a_cell_that_is_not_what_was_asked_for_is_no_evidence(world: BisectWorld) -> None:
    world.ask(cold_toggles=("swa", "pin", "fuse", "graphs"))
    world.applied = {"swa": False, "pin": True, "fuse": True}
    for _ in range(2):
        with pytest.raises(UsageError, match="does not honour toggle"):
            world.bisect()

    assert [] == world.readings
    assert [] == list(world.folder.launches.iterdir())


def test_cold_toggles_have_launches_of_their_own(world: BisectWorld) -> None:
    world.ask(cold_toggles=("swa", "pin", "fuse", "graphs"))
    result = world.bisect()
    toggles = {launch.run_id: launch.toggles for launch in world.launches}
    labels = {info.cell: info.label for info in result.cells}

    assert (Verdict.REGRESSION, Standing.CONFIRMED, SWA) == (result.verdict, result.standing, result.culprits)
    assert all(run_id.startswith("cold-") for run_id in world.run_ids)
    assert all(labels[reading.cell] == toggles[reading.launch] for reading in world.readings)


# What the user says between two calls


@pytest.fixture
def stopped(world: BisectWorld, monkeypatch: pytest.MonkeyPatch) -> BisectWorld:
    """A search that was killed behind its sixth reading."""
    world.enter(monkeypatch)
    world.stop_at(6, Killed())
    with pytest.raises(Killed):
        world.bisect()
    return world


def test_a_stored_search_tells_what_it_knows(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    world = found.world
    world.enter(monkeypatch)
    facts = world.facts

    assert found.result == status(world.reports, world.folder.name)
    assert (facts, ["hot-1"]) == (world.facts, world.run_ids)


def test_a_search_under_way_tells_what_it_would_answer_now(stopped: BisectWorld) -> None:
    result = status(stopped.reports, stopped.folder.name)

    assert (Verdict.INCONCLUSIVE, 6, False) == (result.verdict, result.num_readings, result.is_interrupted)
    assert result.reason.startswith("not at its end yet; next: ")


def test_what_is_taken_back_is_measured_again(stopped: BisectWorld) -> None:
    found = stopped.readings
    result = undo(stopped.reports, stopped.folder.name, 3)
    last = stopped.bisect()

    assert (len(found) - 3, found) == (result.num_readings, stopped.readings[: len(found)])
    assert (len(found) - 3, Verdict.REGRESSION) == (last.num_reused, last.verdict)


def test_no_more_is_taken_back_than_there_is(stopped: BisectWorld) -> None:
    """It cannot be taken back in its turn: a digit too many must not cost a search."""
    num = len(stopped.readings)
    with pytest.raises(UsageError, match="fewer readings") as caught:
        undo(stopped.reports, stopped.folder.name, num + 1)

    assert (str(num + 1), f"1 to {num}") == (caught.value.offered, caught.value.allowed)
    assert num == len(stopped.readings)


@pytest.mark.parametrize("words", ["swa", "pin,fuse", "all,-swa,-graphs"])
def test_a_cell_is_left_out_by_its_id_or_by_its_toggles(stopped: BisectWorld, words: str) -> None:
    result = skip(stopped.reports, stopped.folder.name, words)

    assert ["swa"] == [info.cell for info in result.cells if info.outcome == "skipped by the user"]


def test_a_cell_that_the_user_leaves_out_is_not_measured(stopped: BisectWorld) -> None:
    num = len(stopped.readings)
    skip(stopped.reports, stopped.folder.name, "swa")
    result = stopped.bisect()

    assert "swa" not in {reading.cell for reading in stopped.readings[num:]}
    assert ["skipped by the user"] == [info.outcome for info in result.cells if info.cell == "swa"]
    assert SWA == result.culprits


@pytest.mark.parametrize(
    ("cell", "error"),
    [("good", UsageError), ("none", UsageError), ("swe", UnknownNameError), ("swa,pin,graphs", UnknownNameError)],
)
def test_ends_and_unknown_cells_cannot_be_left_out(stopped: BisectWorld, cell: str, error: type[Exception]) -> None:
    facts = stopped.facts
    with pytest.raises(error):
        skip(stopped.reports, stopped.folder.name, cell)

    assert facts == stopped.facts


def test_there_is_no_such_search(stopped: BisectWorld) -> None:
    with pytest.raises(UnknownNameError, match="bisect-000000000000"):
        status(stopped.reports, "bisect-000000000000")


# The plan


def test_a_dry_run_starts_nothing_and_counts_what_is_there(found: Found) -> None:
    world, lines, was_there, result = found
    before = dict(line.split(maxsplit=1) for line in lines)
    after = dict(line.split(maxsplit=1) for line in plan(world.request, world.ports))

    assert not was_there
    assert ["hot-1"] == world.run_ids
    assert ("all,-graphs", "none") == (before["good"], before["bad"])
    assert "swa: on → off, pin: on → off, fuse: on → off; and 3 pairs of them" == before["causes"]
    assert "0 windows of earlier calls" == before["have"]
    assert f"{result.num_readings} windows of earlier calls" == after["have"]
    assert before["first"].startswith(("all,-graphs (", "none ("))
    assert after["first"].startswith("nothing: swa slows it down")
    assert str(world.folder.path) == before["folder"] == after["folder"]
