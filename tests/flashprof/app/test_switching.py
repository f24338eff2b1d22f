"""Stretches of steps behind switches, from events alone; what switching does live is tested with its users."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashprof.app.switching import after_changes, check_cut, warm_stretches
from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import Ack, EventLog, Header, Step
from flashprof.windows.switches import Switch, cut_windows, switch_detail

STEP_NS = 100
SWITCH = Switch(
    command_id=0, at_ns=0, cell="", block=0, position=0, order="", label="", settle_steps=2, window_tokens=30
)


def launch(*visits: tuple[str, int], every_steps: int = 6) -> list[EventLog]:
    """A switch to (cell, block) every 6 steps of 10 tokens."""
    header = Header(role="drafter", rank=0, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    log = EventLog(header=header)
    for place, (cell, block) in enumerate(visits):
        at_ns = (place + 1) * every_steps * STEP_NS
        detail = switch_detail(replace(SWITCH, cell=cell, block=block))
        log.acks.append(Ack(place + 1, "set_toggles", 0, at_ns, detail))
    log.steps = [Step(i, (i + 1) * STEP_NS, 10, 10, 0) for i in range((len(visits) + 1) * every_steps)]
    return [log]


def test_the_later_half_of_each_warm_up_is_a_stretch() -> None:
    stretches = warm_stretches(launch(("good", 0), ("good", 1), ("bad", 0), ("bad", 2)))

    assert [("good", 900, 1200), ("bad", 2100, 2400)] == [
        (stretch.switch.cell, stretch.start_ns, stretch.end_ns) for stretch in stretches
    ]


def test_a_warm_up_of_one_step_has_no_half() -> None:
    assert [] == warm_stretches(launch(("good", 0), ("good", 1), every_steps=1))


def test_a_change_shows_all_steps_but_the_first() -> None:
    logs = launch(("good", 1), ("bad", 2), ("bad", 3), ("good", 4))
    changes = list(after_changes(logs, cut_windows(logs)))

    assert [("good", "bad", 1300, 1700), ("bad", "good", 2500, 2900)] == [
        (before.switch.cell, after.switch.cell, after.start_ns, after.end_ns) for before, after in changes
    ]


@pytest.mark.parametrize(
    "wrong", [{"min_settle_steps": 0}, {"min_settle_steps": 9}, {"window_steps": 0}, {"window_tokens": 0}]
)
def test_a_cut_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        check_cut(**{"min_settle_steps": 1, "max_settle_steps": 8, "window_steps": 4, "window_tokens": 1, **wrong})
