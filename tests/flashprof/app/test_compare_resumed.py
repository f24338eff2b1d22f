"""A comparison that Ctrl-C or kill -9 stopped, at any moment: nothing complete is lost, and the answer is the same."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import press_ctrl_c
from study_world import FakeMeter, StudyWorld

from flashprof.app.hot import hot_results
from flashprof.cli.compare import exit_status
from flashprof.contracts.comparison import DecisionRule, Standing, Verdict
from flashprof.store.tail import read_event_logs

SLOWER = 1.2
"""A sixth of the tok/s."""


@pytest.fixture
def world(tmp_path: Path) -> StudyWorld:
    return StudyWorld(tmp_path)


def another(world: StudyWorld, root: Path, reports: Path) -> StudyWorld:
    """The same machine, another time: what it finds is a copy of *reports*."""
    later = StudyWorld(root, factor=world.factor, script=world.script)
    shutil.copytree(reports, later.reports)
    later.request = replace(world.request, reports=later.reports)
    return later


def test_ctrl_c_keeps_everything_and_the_next_call_goes_on(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.at_stage("block 2 is measured", press_ctrl_c)
    first = world.compare()
    second = world.compare()

    assert first.is_interrupted
    assert 130 == exit_status(first, None)
    assert (Verdict.INCONCLUSIVE, 2) == (first.verdict, len(first.blocks))
    assert any("interrupted" in failure for failure in first.failures)
    assert (False, 2) == (second.is_interrupted, second.num_reused)
    assert (Verdict.REGRESSION, Standing.CONFIRMED, ()) == (second.verdict, second.standing, second.failures)
    assert first.blocks == second.blocks[:2]


def test_ctrl_c_in_a_cold_launch_leaves_its_partner_counting(world: StudyWorld) -> None:
    world.factor = SLOWER
    world.cold_only()
    world.at_stage("measure window 2", press_ctrl_c, nth=2)
    first = world.compare()
    second = world.compare()

    assert (True, ()) == (first.is_interrupted, first.blocks)
    assert Verdict.REGRESSION is second.verdict
    assert [*world.run_ids[:1], f"{world.run_ids[1][:-1]}2"] == list(second.blocks[0].launches)


def test_ctrl_c_while_summarising_loses_nothing(world: StudyWorld) -> None:
    world.factor = SLOWER
    stage = world.progress.stage

    def interrupted(text: str, *, total_s: float | None = None) -> None:
        stage(text, total_s=total_s)
        if text == "summarising" and 1 == world.progress.stages.count(text):
            press_ctrl_c()

    world.progress.stage = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.compare()
    num_lines = len(world.journal_lines)
    result = world.compare()

    assert num_lines == 1 + result.num_reused > 1
    assert "hot-2" not in world.run_ids
    assert Standing.CONFIRMED is result.standing


def snapshots(world: StudyWorld, folder: Path, *, every: int) -> list[Path]:
    """Copies of all files, taken while a study runs: after each *every* sleeps, and whenever a launch is stopped."""
    taken: list[Path] = []
    num_sleeps = 0

    def look() -> None:
        nonlocal num_sleeps
        num_sleeps += 1
        is_stopping = world.progress.stages[-1] == "stopping" and world.progress.stages[-2] != "stopping"
        if num_sleeps % every == 0 or is_stopping:
            world.progress.stages.append(world.progress.stages[-1])
            taken.append(folder / str(len(taken)))
            shutil.copytree(world.reports, taken[-1])

    world.clock.on_sleep.append(look)
    world.compare()
    return taken


def test_killed_at_any_moment_of_a_hot_launch_no_block_is_lost(world: StudyWorld, tmp_path: Path) -> None:
    world.factor = SLOWER
    world.ask(confirm=False)
    taken = snapshots(world, tmp_path / "taken", every=28)
    nums_reused = []
    for place, reports in enumerate(taken):
        later = another(world, tmp_path / f"later-{place}", reports)
        found = read_event_logs(later.study / "launches" / ".hot-1.part" / "events")
        result = later.compare()
        nums_reused.append(result.num_reused)
        complete = [block.difference for block in hot_results(found, launch="hot-1")[1]]

        assert complete == [block.difference for block in result.blocks if block.launches == ("hot-1",)]
        assert len(complete) == result.num_reused
        assert (Verdict.REGRESSION, False, ()) == (result.verdict, result.is_interrupted, result.failures)

    assert {0, 1, 2, 3, 4} == set(nums_reused)


def test_killed_at_any_moment_of_cold_launches_no_complete_launch_is_lost(world: StudyWorld, tmp_path: Path) -> None:
    world.factor = SLOWER
    world.cold_only()
    taken = snapshots(world, tmp_path / "taken", every=200)
    nums_reused = []
    for place, reports in enumerate(taken):
        later = another(world, tmp_path / f"later-{place}", reports)
        (part,) = (later.study / "launches").glob(".*.part")
        acks = [ack for log in read_event_logs(part / "events") for ack in log.acks if ack.name == "window_end"]
        known = {json.loads(line).get("run_id") for line in later.journal_lines} - {None}
        run_id = part.name.removeprefix(".").removesuffix(".part")
        result = later.compare()
        used = {name for block in result.blocks for name in block.launches}
        nums_reused.append(result.num_reused)

        assert (Verdict.REGRESSION, Standing.CONFIRMED, ()) == (result.verdict, result.standing, result.failures)
        assert known <= used
        assert (len(acks) == 2) == (run_id in used)
        assert not known & set(later.run_ids)

    assert 0 == min(nums_reused)
    assert 4 == max(nums_reused)


def test_killed_between_publishing_and_writing_down_a_launch_counts_once(world: StudyWorld, tmp_path: Path) -> None:
    world.factor = SLOWER
    first = world.compare()
    lines = world.journal_lines
    ends = [place for place, line in enumerate(lines) if '"hot_ended"' in line or '"cold_launch"' in line]
    for end in ends[0], ends[-1]:
        later = another(world, tmp_path / f"later-{end}", world.reports)
        known = [json.loads(line).get("run_id") for line in lines[: end + 1]]
        for path in (later.study / "launches").iterdir():
            if path.name not in known:
                shutil.rmtree(path)
        # A torn line, too: the kill may come while it is written.
        (later.study / "journal.jsonl").write_text("\n".join([*lines[:end], lines[end][:20]]))
        result = later.compare()

        assert first.verdict is result.verdict
        assert [block.difference for block in first.blocks] == [block.difference for block in result.blocks]
        assert not set(known) & set(later.run_ids)


def test_wrong_numbers_stay_wrong_when_flashprof_is_killed(world: StudyWorld, tmp_path: Path) -> None:
    world.script = lambda launch, script: replace(script, loss=lambda index: math.nan if index > 150 else 5.0)
    world.ask(confirm=False, rule=DecisionRule(tolerance=0.0, budget_s=60.0))
    taken = snapshots(world, tmp_path / "taken", every=300)
    later = another(world, tmp_path / "later", taken[-1])
    result = later.compare()

    assert (Verdict.INCONCLUSIVE, ()) == (result.verdict, result.comparisons)
    assert any("wrong numbers" in failure for failure in result.failures)


def test_live_and_salvaged_blocks_are_judged_alike(world: StudyWorld, tmp_path: Path) -> None:
    world.factor = SLOWER
    world.ask(confirm=False)
    world.meter = meter = FakeMeter(world.clock)
    world.at_stage("block 2 is measured", lambda: meter.be_busy(1.5))
    live = world.compare()
    later = another(world, tmp_path / "later", world.reports)
    (later.study / "journal.jsonl").write_text("")
    salvaged = later.compare()

    assert [] == later.launches
    assert live.blocks == salvaged.blocks
