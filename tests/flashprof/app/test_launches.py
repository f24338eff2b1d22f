"""What a study asks for is launched as asked: its toggles, its GPUs, its windows; and read back as a fact."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from launch_files import cold_launch
from study_world import BASE, CANDIDATE, StudyWorld

from flashprof.app.hot import HotPlan
from flashprof.app.launches import StudyLaunches, cold_observation, first_env, sites_of, unhonoured
from flashprof.contracts.comparison import Arm, Block
from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import EventLog, Mark
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Window
from flashprof.contracts.study import ArmSpec
from flashprof.decide.actions import LaunchCold, MeasureHot
from flashprof.decide.observations import ColdFailed, ColdLaunch
from flashprof.store.run_folder import read_manifest
from flashprof.store.tail import read_event_logs
from flashprof.windows.switches import find_switches, undisturbed
from flashprof.windows.table import build_windows

HOT = MeasureHot(launch=1, first_block=5, site="here")
COLD = LaunchCold(arm=Arm.CANDIDATE, block=3, attempt=2, site="here")


@pytest.fixture
def world(tmp_path: Path) -> StudyWorld:
    return StudyWorld(tmp_path)


def launches_of(world: StudyWorld) -> StudyLaunches:
    return StudyLaunches(request=world.request, ports=world.ports, progress=world.progress, folder=world.reports)


def test_a_hot_launch_starts_the_base_and_counts_blocks_from_where_it_should(world: StudyWorld) -> None:
    blocks: list[tuple[Block, float]] = []

    def take(block: Block, launch_s: float) -> bool:
        blocks.append((block, launch_s))
        return len(blocks) < 3

    end = launches_of(world).hot(HOT, num_windows=4, on_block=take)
    switches = find_switches(read_event_logs(world.reports / "hot-1" / "events"))

    assert (Outcome.COMPLETED, "hot-1", ["none"]) == (
        end.outcome,
        end.run_id,
        [item.toggles for item in world.launches],
    )
    assert [5, 6, 7] == [block.number for block, _ in blocks]
    assert {("hot-1",)} == {block.launches for block, _ in blocks}
    assert 0 < blocks[0][1] < blocks[1][1] < blocks[2][1] < end.length_s
    assert ["5.1", "5.2", "5.3", "5.4"] == [switch.label.split()[0] for switch in switches if switch.block == 5]


def test_only_what_differs_is_switched(world: StudyWorld) -> None:
    launches_of(world).hot(HOT, num_windows=2, on_block=lambda block, launch_s: False)
    (log,) = read_event_logs(world.reports / "hot-1" / "events")

    assert [{"swa": False}, {"swa": True}] == [ack.detail["values"] for ack in log.acks[:2]]


@pytest.mark.parametrize(
    ("upstream", "depths", "least"),
    [((), (8, 8), HotPlan.min_settle_steps), (("swa",), (1, 1), 3), (("swa",), (2, 9), 11)],
)
def test_what_acts_in_front_of_the_queue_is_dropped_until_the_queue_is_drained(
    world: StudyWorld, upstream: tuple[str, ...], depths: tuple[int, int], least: int
) -> None:
    base, candidate = (
        replace(spec, values={**spec.values, "queue": depth})
        for spec, depth in zip((BASE, CANDIDATE), depths, strict=True)
    )
    world.ask(base=base, candidate=candidate, upstream_toggles=upstream)
    launches_of(world).hot(HOT, num_windows=4, on_block=lambda block, launch_s: block.number < 9)
    switches = find_switches(read_event_logs(world.reports / "hot-1" / "events"))

    changes = [after for before, after in pairwise(switches) if before.cell != after.cell and after.block > 7]

    assert {least} == {switch.settle_steps for switch in changes}


def test_a_cold_launch_starts_its_arm_without_samplers(world: StudyWorld) -> None:
    found = launches_of(world).cold(COLD)
    experiment = read_manifest(world.reports / "cold-3-candidate-2")["experiment"]

    assert isinstance(found, ColdLaunch)
    assert ("swa", 0, "off") == (
        experiment["subject"]["toggles"],
        experiment["windows"]["num_profile"],
        experiment["sampling"]["stacks"],
    )
    assert (Arm.CANDIDATE, 3, "cold-3-candidate-2", "here") == (found.arm, found.block, found.run_id, found.site)
    assert 2 == found.num_windows


@pytest.mark.parametrize("site", ["here", "here GPU 2,3"])
def test_a_site_shows_a_launch_its_gpus(world: StudyWorld, site: str) -> None:
    launches_of(world).cold(replace(COLD, site=site))

    assert ("2,3" if "GPU" in site else None) == world.launches[0].env.get("CUDA_VISIBLE_DEVICES")


def test_a_launch_that_is_not_what_was_asked_for_leaves_nothing(world: StudyWorld) -> None:
    world.applied = dict(BASE.values)
    with pytest.raises(UsageError, match="the same cell"):
        launches_of(world).cold(COLD)

    assert [] == list(world.reports.iterdir())


def test_sites_are_the_host_with_each_gpu_set(world: StudyWorld) -> None:
    plain = sites_of(world.request, "lab")
    world.ask(gpu_sets=((0, 1), (2,)))

    assert ("lab",) == plain
    assert ("lab GPU 0,1", "lab GPU 2") == sites_of(world.request, "lab")


def test_what_is_known_beforehand_is_asked_with_the_first_gpu_set(world: StudyWorld) -> None:
    env = {"A": "b", "CUDA_VISIBLE_DEVICES": "7"}
    plain = first_env(world.request, env)
    world.ask(gpu_sets=((0, 1), (2,)))

    assert env == plain
    assert {"A": "b", "CUDA_VISIBLE_DEVICES": "0,1"} == first_env(world.request, env)


def logs_saying(values: dict[str, object]) -> list[EventLog]:
    log = cold_launch(num_windows=0).log
    log.add(Mark("toggles", 0, {"values": values, "refused": {}}))
    return [log]


@pytest.mark.parametrize(
    ("said", "got"),
    [
        ({"swa": True, "queue": 2}, None),
        ({}, None),
        ({"swa": False, "queue": 2}, ("swa=on", "swa=off")),
        ({"swa": True, "queue": 4}, ("queue=2", "queue=4")),
    ],
)
def test_a_toggle_under_test_that_is_not_as_asked_is_named(
    said: dict[str, object], got: tuple[str, str] | None
) -> None:
    error = unhonoured(logs_saying(said), CANDIDATE, ("queue", "swa"))

    assert got == (error and (error.offered, error.allowed))


def test_what_is_not_under_test_may_be_as_it_likes() -> None:
    assert unhonoured(logs_saying({"swa": True, "queue": 4}), CANDIDATE, ("swa",)) is None
    assert unhonoured([], ArmSpec(expression="swa", values={"swa": True}), ("swa",)) is None


def observe(
    windows: tuple[Window, ...], outcome: Outcome = Outcome.COMPLETED, reason: str = ""
) -> ColdLaunch | ColdFailed:
    return cold_observation(COLD, windows, run_id="r", outcome=outcome, reason=reason, length_s=9.0, judge=undisturbed)


def windows_of(num_windows: int) -> tuple[Window, ...]:
    return build_windows([cold_launch(num_windows=num_windows).log], steady_ns=None)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if not outcome.is_measurement])
def test_no_failed_launch_becomes_a_number(outcome: Outcome) -> None:
    found = observe(windows_of(3), outcome, "because")

    assert isinstance(found, ColdFailed)
    assert (outcome, "because", 9.0) == (found.outcome, found.reason, found.length_s)


def test_a_launch_without_a_measure_window_is_a_failure_of_the_tool() -> None:
    found = observe(windows_of(0))

    assert isinstance(found, ColdFailed)
    assert (Outcome.TOOL_FAILED, "no measure window holds a token") == (found.outcome, found.reason)
