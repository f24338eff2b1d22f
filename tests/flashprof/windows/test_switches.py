"""Hot windows and blocks from events alone: complete ones only, cut by tokens, the same whenever they are read."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.comparison import Arm, Method
from flashprof.contracts.control import CommandName
from flashprof.contracts.events import Ack, EventLog, Header, Step
from flashprof.windows.switches import (
    MAX_STEPS_AHEAD,
    Switch,
    blocks_of,
    cut_windows,
    find_switches,
    hot_windows,
    joint_steps,
    read_switch,
    steps_under,
    switch_detail,
)

STEP_NS = 100
TOKENS = 10


def make_log(num_steps: int, *, rank: int = 0, delay_ns: int = 0, first: int = 0) -> EventLog:
    header = Header(role="drafter", rank=rank, host="h", pid=1 + rank, trains=True, wall_ns=0, monotonic_ns=0)
    steps = [Step(i, (i + 1) * STEP_NS + delay_ns, TOKENS, TOKENS // 2, 1) for i in range(first, num_steps)]
    return EventLog(header=header, steps=steps)


def make_switch(number: int, at_ns: int, *, position: int = 0, order: str = "ABBA", block: int = 1) -> Switch:
    arm = Arm.BASE if order[position] == "A" else Arm.CANDIDATE
    return Switch(
        command_id=number,
        at_ns=at_ns,
        cell=arm,
        block=block,
        position=position,
        order=order,
        label=f"{block}.{position + 1} {arm}",
        settle_steps=2,
        window_tokens=30,
    )


def acknowledge(log: EventLog, switch: Switch) -> None:
    detail = {"values": {}, "refused": {}, **switch_detail(switch)}
    log.acks.append(Ack(switch.command_id, "set_toggles", switch.step, switch.at_ns, detail))


def with_block(log: EventLog, order: str = "ABBA", *, every_ns: int = 600, block: int = 1) -> EventLog:
    for position in range(len(order)):
        number = len(log.acks) + 1
        acknowledge(log, make_switch(number, (number - 1) * every_ns, position=position, order=order, block=block))
    return log


def test_a_window_begins_behind_its_settle_steps_and_holds_its_tokens() -> None:
    windows = hot_windows([with_block(make_log(30), "AB")], launch="run-1")

    assert [(Arm.BASE, 200, 500, 3, 30), (Arm.CANDIDATE, 800, 1100, 3, 30)] == [
        (window.arm, window.start_ns, window.end_ns, window.num_steps, window.num_tokens) for window in windows
    ]
    assert {("run-1", 1, ())} == {(window.launch, window.block, window.disturbances) for window in windows}
    assert math.log(30 / 300e-9) == pytest.approx(windows[0].log_tok_per_s)


@pytest.mark.parametrize("num_ahead", [0, 2, 7])
def test_steps_of_the_last_cell_that_end_behind_the_switch_are_in_no_window(num_ahead: int) -> None:
    """A host that is ahead of its device switches while steps of the last cell are still to end."""
    log = make_log(30)
    for number, at_ns in enumerate((0, 1200)):
        switch = make_switch(number + 1, at_ns, position=number, order="AB")
        acknowledge(log, replace(switch, step=at_ns // STEP_NS + num_ahead))
    begins_ns = [(num_ahead + 2) * STEP_NS, 1200 + (num_ahead + 2) * STEP_NS]

    assert begins_ns == [window.start_ns for window in hot_windows([log], launch="run-1")]
    assert [] == [step for step in steps_under([log], find_switches([log])[1]) if step.step < 12 + num_ahead]


def test_a_trainer_that_counts_its_steps_anew_has_windows_all_the_same() -> None:
    log = make_log(MAX_STEPS_AHEAD + 10)
    acknowledge(log, replace(make_switch(1, 0), step=5000))

    assert [STEP_NS * (MAX_STEPS_AHEAD + 2)] == [window.start_ns for window in cut_windows([log])]


def test_a_window_that_runs_on_holds_all_steps_until_the_next_command() -> None:
    log = make_log(30)
    for number, runs_on in enumerate((True, False)):
        acknowledge(log, replace(make_switch(number + 1, 800 * number, position=number, order="AB"), runs_on=runs_on))
    windows = hot_windows([log], launch="run-1")

    assert [(200, 800, 6, 60), (1000, 1300, 3, 30)] == [
        (window.start_ns, window.end_ns, window.num_steps, window.num_tokens) for window in windows
    ]


def test_a_window_that_the_next_command_cuts_off_does_not_exist() -> None:
    log = with_block(make_log(30), "AB", every_ns=400)
    log.acks.append(Ack(3, str(CommandName.STOP), 0, 800, {}))

    assert () == hot_windows([log], launch="run-1")


def test_a_launch_that_was_killed_keeps_its_complete_windows() -> None:
    assert [1, 1, 1] == [window.block for window in hot_windows([with_block(make_log(18))], launch="run-1")]


def test_the_judge_is_asked_about_each_window() -> None:
    def judge(start_ns: int, end_ns: int) -> tuple[str, ...]:
        return (f"{start_ns}..{end_ns}",) if start_ns > 500 else ()

    log = with_block(make_log(30), "AB")
    windows = hot_windows([log], launch="run-1", judge=judge)
    (block,) = blocks_of(windows, find_switches([log]))

    assert [(), ("800..1100",)] == [window.disturbances for window in windows]
    assert ("800..1100",) == block.disturbances


def test_ranks_count_by_step_number_so_that_a_late_one_moves_no_tokens() -> None:
    logs = [with_block(make_log(30)), make_log(30, rank=1, delay_ns=7)]
    windows = hot_windows(logs, launch="run-1")

    # 30 tokens of two ranks: two steps, of which the second is only half needed.
    assert [(2, 40)] * 4 == [(window.num_steps, window.num_tokens) for window in windows]


def test_a_window_waits_for_the_slowest_rank() -> None:
    logs = [with_block(make_log(30), "AB"), make_log(3, rank=1)]

    assert [0, 1, 2] == [step.step for step in joint_steps(logs, 0)]
    assert () == hot_windows(logs, launch="run-1")


def test_the_lead_ranks_acknowledgement_counts() -> None:
    lead, other = with_block(make_log(30), "AB"), make_log(30, rank=1)
    for ack in lead.acks:
        other.acks.append(replace(ack, at_ns=ack.at_ns - 150))

    assert [0, 600] == [switch.at_ns for switch in find_switches([other, lead])]


def test_acknowledgements_that_are_no_switch_between_cells_are_none() -> None:
    plain = Ack(1, "set_toggles", 0, 100, {"values": {"swa": True}, "refused": {}})

    assert read_switch(plain) is None
    assert read_switch(replace(plain, detail={**switch_detail(make_switch(1, 0)), "block": "third"})) is None


def test_a_switch_survives_its_way_through_an_acknowledgement() -> None:
    switch = replace(make_switch(7, 123, position=2), cell="compile+swa", mark={"stage": "proof", "block": 3})

    assert switch == read_switch(Ack(7, "set_toggles", 0, 123, switch_detail(switch)))


def test_warm_up_visits_are_no_windows() -> None:
    assert () == hot_windows([with_block(make_log(30), "AB", block=0)], launch="run-1")


def test_a_block_is_the_difference_of_its_arms() -> None:
    log = with_block(make_log(40), "BAAB", block=3)
    # The candidate's steps in its windows get twice the tokens.
    log.steps = [replace(step, num_tokens=20 if step.step < 6 or step.step >= 18 else 10) for step in log.steps]
    (block,) = blocks_of(hot_windows([log], launch="run-1"), find_switches([log]), site="here")

    assert (3, Method.HOT, "BAAB", ("run-1",), "here", 4) == (
        block.number,
        block.method,
        block.order,
        block.launches,
        block.site,
        block.num_windows,
    )
    assert math.log(2) == pytest.approx(block.difference)
    assert math.log(10 / 100e-9) == pytest.approx(block.base_log_tok_per_s)
    assert (2200 - 0) / 1e9 == pytest.approx(block.length_s)


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_a_block_without_all_its_windows_is_none(missing: int) -> None:
    log = with_block(make_log(40))
    windows = hot_windows([log], launch="run-1")
    kept = [window for window in windows if window.position != missing]

    assert 1 == len(blocks_of(windows, find_switches([log])))
    assert () == blocks_of(kept, find_switches([log]))


def test_windows_that_are_not_what_was_planned_are_no_block() -> None:
    log = with_block(make_log(40))
    windows = [replace(window, arm=Arm.BASE) for window in hot_windows([log], launch="run-1")]

    assert () == blocks_of(windows, find_switches([log]))


@given(
    gaps=st.lists(st.integers(0, 40), min_size=2, max_size=60),
    at=st.lists(st.integers(0, 900), min_size=1, max_size=8).map(sorted),
    tokens=st.integers(0, 60),
    num_ranks=st.integers(1, 3),
    cut=st.integers(0, 60),
)
def test_read_early_the_events_give_the_first_of_the_same_windows(
    gaps: list[int], at: list[int], tokens: int, num_ranks: int, cut: int
) -> None:
    logs = []
    for rank in range(num_ranks):
        log = make_log(0, rank=rank)
        ends_ns = [sum(gaps[: i + 1]) + rank for i in range(len(gaps))]
        log.steps = [Step(i, end_ns, (i * 7) % 20, 0, 0) for i, end_ns in enumerate(ends_ns)]
        logs.append(log)
    for number, at_ns in enumerate(at):
        acknowledge(logs[0], replace(make_switch(number + 1, at_ns), window_tokens=tokens))
    early = [EventLog(header=log.header, steps=log.steps[: cut + log.header.rank], acks=log.acks) for log in logs]
    windows = hot_windows(logs, launch="run-1")

    assert windows[: len(hot_windows(early, launch="run-1"))] == hot_windows(early, launch="run-1")
    assert all(first.end_ns <= second.start_ns for first, second in pairwise(windows))
    assert all(window.num_tokens >= max(1, tokens) and math.isfinite(window.log_tok_per_s) for window in windows)
    assert all(window.start_ns > window_switch for window, window_switch in zip(windows, _begun(logs), strict=True))


def _begun(logs: list[EventLog]) -> list[int]:
    return [window.switch.at_ns for window in cut_windows(logs)]
