"""What a search wants is launched as wanted: its cell, its GPUs, its windows; and each window is read as it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from bisect_world import REGISTRY, BisectWorld, toggle_request

from flashprof.app.search_launches import SearchLaunches, mark_of, reading_of
from flashprof.app.search_plan import prepare
from flashprof.app.search_subjects import Start, ToggleSubjects
from flashprof.app.session import Ports
from flashprof.app.visits import VisitReading
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search import Reading, Stage
from flashprof.contracts.toggles import Toggle
from flashprof.decide.search_actions import Visit
from flashprof.store.run_folder import read_manifest
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import find_switches

FIRST = Visit(cell="swa", group="", run_id="hot-1", stage=Stage.PROOF, proof=2, block=3, position=1, order="AB", why="")
QUEUE = Toggle(name="queue", help="Depth.", default=1, on=8, minimum=1, maximum=64, hot=True, is_upstream=True)


@pytest.fixture
def world(tmp_path: Path) -> BisectWorld:
    return BisectWorld(tmp_path)


def launches_of(world: BisectWorld) -> SearchLaunches:
    known = prepare(world.request, world.ports)
    return SearchLaunches(
        request=world.request,
        subjects=known.subjects,
        ports=world.ports,
        progress=world.progress,
        folder=world.reports,
    )


class Serving:
    """Takes readings and wants the visits that a test gives."""

    def __init__(self, visits: Iterable[Visit]) -> None:
        self.visits = iter(visits)
        self.readings: list[Reading] = []

    def take(self, reading: Reading) -> Visit | None:
        self.readings.append(reading)
        return next(self.visits, None)


def test_each_visit_is_read_as_it_was_wanted_until_nothing_more_is(world: BisectWorld) -> None:
    serving = Serving(
        [replace(FIRST, cell="good", position=2), replace(FIRST, cell="bad", stage=Stage.SEARCH, proof=0)]
    )
    end = launches_of(world).serve(FIRST, serving.take)

    assert [("swa", Stage.PROOF, 2, 3, 1), ("good", Stage.PROOF, 2, 3, 2), ("bad", Stage.SEARCH, 0, 3, 1)] == [
        (reading.cell, reading.stage, reading.proof, reading.block, reading.position) for reading in serving.readings
    ]
    assert {"hot-1"} == {reading.launch for reading in serving.readings}
    assert (Outcome.COMPLETED, "hot-1", "", "") == (end.outcome, end.run_id, end.group, end.cell)
    assert end.length_s > sum(reading.length_s for reading in serving.readings) > 0


@pytest.mark.parametrize("step_s", [3 * 3600.0, -3 * 3600.0])
def test_a_wall_clock_that_is_set_within_a_launch_moves_no_reading(world: BisectWorld, step_s: float) -> None:
    class Stepping(Serving):
        def take(self, reading: Reading) -> Visit | None:
            # Behind the second one.
            self.ahead_s = step_s if self.readings else 0.0
            return super().take(reading)

        ahead_s = 0.0

    serving = Stepping([replace(FIRST, position=position) for position in (2, 3)])
    launches = replace(launches_of(world), wall_s=lambda: 1.7e9 + world.clock.now_ns / 1e9 + serving.ahead_s)
    end = launches.serve(FIRST, serving.take)
    at_s = [reading.at_s for reading in serving.readings]

    assert 3 == len(at_s)
    assert at_s == sorted(at_s)
    assert at_s[-1] - at_s[0] < end.length_s
    assert 1.7e9 < at_s[0] < 1.7e9 + world.clock.now_ns / 1e9


def test_a_launch_holds_no_sampler_and_no_profile(world: BisectWorld) -> None:
    launches_of(world).serve(FIRST, Serving([]).take)
    experiment = read_manifest(world.reports / "hot-1")["experiment"]

    assert ("pin,fuse", 0, "off", "off") == (
        experiment["subject"]["toggles"],
        experiment["windows"]["num_profile"],
        experiment["sampling"]["stacks"],
        experiment["sampling"]["resources"],
    )


def test_only_what_differs_is_switched(world: BisectWorld) -> None:
    launches_of(world).serve(FIRST, Serving([]).take)
    (log,) = read_event_logs(world.reports / "hot-1" / "events")

    assert {"swa": False, "pin": True, "fuse": True} == log.acks[0].detail["values"]


def test_a_search_without_hot_toggles_takes_plain_windows(world: BisectWorld) -> None:
    world.ask(cold_toggles=("swa", "pin", "fuse", "graphs"))
    serving = Serving([replace(FIRST, position=2)])
    launches_of(world).serve(FIRST, serving.take)
    (log,) = read_event_logs(world.reports / "hot-1" / "events")

    assert [] == [ack for ack in log.acks if ack.name == "set_toggles"]
    assert [1.0, 1.0] == pytest.approx([reading.num_tokens / 10_000 for reading in serving.readings], abs=0.3)


def test_blocks_go_round_the_gpu_sets_and_stay_on_one(world: BisectWorld) -> None:
    world.ask(gpu_sets=((0, 1), (2, 3)))
    launches = launches_of(world)
    for block in (3, 3, 4):
        launches.serve(replace(FIRST, run_id=f"cold-{len(world.launches)}", block=block), Serving([]).take)

    assert ["2,3", "2,3", "0,1"] == [launch.env["CUDA_VISIBLE_DEVICES"] for launch in world.launches]


@pytest.mark.parametrize(("upstream", "least"), [((), 1), (("queue",), 10)])
def test_what_acts_in_front_of_the_queue_is_dropped_until_the_queue_is_drained(
    world: BisectWorld, upstream: tuple[str, ...], least: int
) -> None:
    request = toggle_request(world.reports, "swa,queue=8", "none", (*REGISTRY, QUEUE))
    launches = launches_of(world)
    launches = replace(launches, request=replace(request, upstream_toggles=upstream))
    # Twelve changes between warm cells, then as many steps are dropped as are needed.
    cells = ["good", "swa"] * 9
    launches.serve(FIRST, Serving([replace(FIRST, cell=cell) for cell in cells]).take)
    switches = find_switches(read_event_logs(world.reports / "hot-1" / "events"))

    assert least == switches[-1].settle_steps


def test_the_cell_that_was_wanted_is_to_blame_for_a_crash(world: BisectWorld) -> None:
    world.crashes = lambda values: not any(values.values())
    serving = Serving([replace(FIRST, cell="good"), replace(FIRST, cell="bad"), replace(FIRST, cell="good")])
    end = launches_of(world).serve(FIRST, serving.take)

    assert (Outcome.CRASHED, "bad") == (end.outcome, end.cell)
    assert "boom" in end.reason
    assert ["swa", "good"] == [reading.cell for reading in serving.readings]


def test_a_cell_that_cannot_be_made_is_a_failure_without_a_launch(world: BisectWorld) -> None:
    class Unmade(ToggleSubjects):
        def start(self, cell: str, ports: Ports) -> Start:
            assert (cell, ports.cwd) == ("swa", world.cwd)
            raise SubjectError("it does not apply", outcome=Outcome.LOAD_FAILED)

    launches = launches_of(world)
    assert isinstance(launches.subjects, ToggleSubjects)
    unmade = Unmade(subject=world.request.subject, space=launches.subjects.space, registry=REGISTRY)
    launches = replace(launches, subjects=unmade)
    end = launches.serve(FIRST, Serving([]).take)

    assert (Outcome.LOAD_FAILED, "it does not apply", "swa") == (end.outcome, end.reason, end.cell)
    assert [] == world.launches


def test_a_launch_that_is_another_cell_is_refused_before_it_is_read(world: BisectWorld) -> None:
    world.applied = {"swa": True}
    serving = Serving([])
    with pytest.raises(UsageError, match="does not honour toggle swa"):
        launches_of(world).serve(FIRST, serving.take)

    assert ([], []) == (serving.readings, list(world.reports.iterdir()))


def test_a_window_is_found_again_by_its_mark() -> None:
    found = VisitReading(
        cell="swa",
        mark=mark_of(FIRST),
        begun_ns=1_000_000_000,
        start_ns=2_000_000_000,
        end_ns=4_000_000_000,
        num_tokens=7,
        num_steps=3,
        log_tok_per_s=9.5,
        disturbances=("busy",),
    )

    assert Reading(
        cell="swa",
        launch="hot-7",
        stage=Stage.PROOF,
        proof=2,
        block=3,
        position=1,
        at_s=103.0,
        length_s=3.0,
        log_tok_per_s=9.5,
        num_tokens=7,
        disturbances=("busy",),
    ) == reading_of(found, "hot-7", 100.0)
