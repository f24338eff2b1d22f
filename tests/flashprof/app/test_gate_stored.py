"""A gate against launches of the history: head alone is launched, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_world import press_ctrl_c
from gate_world import SLOW, TOK_THRESHOLD, GateWorld

from flashprof.app.gate import plan
from flashprof.app.history import name_baseline
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.contracts.gate import MEMORY, GateMode, GateResult, Threshold
from flashprof.store.history import read_history

NAME = "nightly"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[GateWorld, GateResult]:
    """A gate that passed, and whose bases have a name in the history."""
    world = GateWorld(tmp_path_factory.mktemp("stored")).make()
    found = world.gate()
    name_baseline(world.reports / "history.sqlite", NAME, who="me", at="2026-11-30T10:00:00+00:00")
    world.want(base_ref="", baseline=NAME)
    return world, found


def test_a_gate_is_kept_with_its_launches(measured: tuple[GateWorld, GateResult]) -> None:
    world, found = measured
    held = read_history(world.reports / "history.sqlite")

    assert found.gate in [gate.gate for gate in held.gates]
    assert 4 == sum(launch.kind == "gate-base" for launch in held.launches if launch.gate == found.gate)
    assert 4 == sum(launch.kind == "gate-head" for launch in held.launches if launch.gate == found.gate)
    # In worktrees of whatever gate, base is of one cell.
    assert 1 == len({launch.cell for launch in held.launches})
    assert not any("history" in note for note in found.notes)


def test_head_alone_is_launched_and_judged(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    before = len(world.launches)
    told = plan(world.gated, world.ports)
    same = world.gate()
    num_same = len(world.launches) - before
    world.write("speed", SLOW)
    slow = world.gate()
    world.write("speed", "1.0")

    assert told[0].startswith(f"baseline  {NAME} (")
    assert (Verdict.NO_REGRESSION, GateMode.STORED) == (same.verdict, same.mode)
    assert 3 <= num_same <= 6
    assert all("candidate" in run_id for run_id in world.run_ids[before:])
    assert Verdict.REGRESSION is slow.verdict
    assert slow.base.startswith(NAME)
    assert world.base == slow.base_commit
    assert any("not interleaved" in note for note in slow.notes)


def test_a_head_that_does_not_run_is_no_regression(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    world.write("train", "print(\n")
    found = world.gate()
    world.write("train", "print('tok/s=1')\n")

    assert (Verdict.INCONCLUSIVE, True) == (found.verdict, found.is_failed)
    assert found.reason.startswith("head does not run")


def test_an_interruption_is_no_failure_once_the_gate_has_gone_on(measured: tuple[GateWorld, GateResult]) -> None:
    world, _ = measured
    num_before = len(world.launches)
    world.write("speed", "1.001")

    def look() -> None:
        if len(world.launches) == num_before + 2 and "stopped" not in world.progress.notes:
            world.progress.note("stopped")
            press_ctrl_c()

    world.clock.on_sleep.append(look)
    stopped = world.gate()
    found = world.gate()
    world.clock.on_sleep.remove(look)
    world.write("speed", "1.0")

    assert (True, 1) == (stopped.is_interrupted, len(stopped.failures))
    assert (Verdict.NO_REGRESSION, False, ()) == (found.verdict, found.is_interrupted, found.failures)


def test_what_the_history_does_not_hold_is_refused(measured: tuple[GateWorld, GateResult], tmp_path: Path) -> None:
    world, _ = measured
    gated = world.gated
    with pytest.raises(UnknownNameError) as unknown:
        plan(replace(gated, baseline="nihgtly"), world.ports)
    with pytest.raises(UsageError, match="no history"):
        plan(replace(gated, reports=tmp_path), world.ports)
    with pytest.raises(UsageError, match="the cells differ"):
        plan(replace(gated, command=("other",), subject=replace(gated.subject, command=("other",))), world.ports)
    world.want(thresholds=(TOK_THRESHOLD, Threshold(metric=MEMORY, max_regression=0.1)))
    with pytest.raises(UsageError, match="memory is not recorded"):
        world.gate()
    world.want(thresholds=(TOK_THRESHOLD,))

    assert (NAME,) == unknown.value.known
