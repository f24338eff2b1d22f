"""One live launch: windows are cut by tokens, commands are answered or not, and the machine is read beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from fake_world import PID, Script, World

from flashprof.app.session import ACK_TIMEOUT_S, Session
from flashprof.contracts.control import CommandName
from flashprof.contracts.machine import MachineReading
from flashprof.contracts.outcome import Outcome
from flashprof.store.counters_file import read_counters
from flashprof.store.tail import read_event_logs
from flashprof.windows.table import build_windows


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(("slower", "num_steps", "length_s"), [(1.0, 20, 2.0), (2.0, 20, 4.0), (10.0, 6, 6.0)])
def test_windows_hold_the_same_tokens_whatever_their_pace_but_end_in_time(
    world: World, slower: float, num_steps: int, length_s: float
) -> None:
    factors = [1.0]
    world.script = Script(step_s=lambda _: 0.1 * factors[-1])
    world.when_stage("measure window 2", lambda: factors.append(slower))
    recording, folder = world.record()
    rows = build_windows(read_event_logs(folder.events), steady_ns=recording.steady_ns)
    (row,) = [row for row in rows if row.label == "measure-2"]

    # The first step is still under way at the old pace; the end is obeyed one or two steps after it was sent.
    assert num_steps == pytest.approx(row.num_steps, abs=2)
    assert length_s == pytest.approx(row.length_s, abs=2 * 0.1 * slower)


@pytest.mark.parametrize(("first_answers", "waited_s"), [(True, 60.0), (False, ACK_TIMEOUT_S)])
def test_a_subject_that_has_answered_before_is_given_time_for_a_long_step(
    world: World, first_answers: bool, waited_s: float
) -> None:
    waits_s: list[float] = []
    world.script = Script(num_answers=int(first_answers))

    def schedule(session: Session) -> None:
        if first_answers:
            assert session.command(CommandName.SET_TOGGLES, values={}) is not None
        begun_ns = world.clock.now_ns
        assert session.command(CommandName.SET_TOGGLES, values={}) is None
        waits_s.append((world.clock.now_ns - begun_ns) / 1e9)

    world.record(schedule)

    assert [pytest.approx(waited_s, abs=0.2)] == waits_s


@dataclass
class FakeMeter:
    """A machine that does nothing; remembers whom it was asked about."""

    world: World
    asked: list[tuple[int, ...]] = field(default_factory=list)
    error: OSError | None = None

    def read(self, pids: Sequence[int]) -> MachineReading:
        if self.error is not None and self.asked:
            raise self.error
        self.asked.append(tuple(pids))
        return MachineReading(
            at_ns=self.world.clock.now_ns,
            busy_cpu_s=1.0,
            stolen_cpu_s=0.0,
            subject_cpu_s=1.0,
            own_cpu_s=0.0,
            subject_delay_s=0.0,
            num_swapped_pages=0,
            governor="",
        )


def test_the_machine_is_read_about_once_a_second_from_launch_to_end(world: World) -> None:
    world.meter = meter = FakeMeter(world)
    _, folder = world.record()
    readings = read_counters(folder.part / "counters.jsonl")
    gaps_s = [(later.at_ns - earlier.at_ns) / 1e9 for earlier, later in pairwise(readings)]

    assert len(readings) == len(meter.asked)
    assert all(1.0 <= gap_s <= 1.3 for gap_s in gaps_s)
    assert 1.0 == pytest.approx(readings[0].at_ns / 1e9, abs=0.2)
    assert {(PID,)} == set(meter.asked)


def test_counters_that_cannot_be_written_are_a_failure_of_the_tool(world: World) -> None:
    world.meter = FakeMeter(world, error=OSError(28, "No space left on device"))
    recording, _ = world.record()

    assert Outcome.TOOL_FAILED is recording.outcome
    assert "kill_tree" == world.journal[-1]
