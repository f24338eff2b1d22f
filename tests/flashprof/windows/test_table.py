"""The windows table: rows partition time, and hold every trained token once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.events import Ack, EventLog, Header, Mark, Step
from flashprof.contracts.results import WindowKind
from flashprof.windows.table import build_windows, check_tokens


def make_log(role: str = "drafter", rank: int = 0, *, start_ns: int = 0, trains: bool = True) -> EventLog:
    return EventLog(
        header=Header(role=role, rank=rank, host="h", pid=1, trains=trains, wall_ns=0, monotonic_ns=start_ns)
    )


def with_steps(log: EventLog, ends_ns: list[int], num_tokens: int = 10) -> EventLog:
    log.steps += [Step(index, end_ns, num_tokens, num_tokens - 2, 3) for index, end_ns in enumerate(ends_ns)]
    return log


def with_window(log: EventLog, label: str, start_ns: int, end_ns: int | None, kind: str = "measure") -> EventLog:
    command_id = len(log.acks) + 1
    log.acks.append(Ack(command_id, "window_start", 0, start_ns, {"label": label, "kind": kind}))
    if end_ns is not None:
        log.acks.append(Ack(command_id + 1, "window_end", 0, end_ns, {"label": label}))
    return log


def with_switch(log: EventLog, label: str, at_ns: int, *, settle_steps: int = 1, window_tokens: int = 10) -> EventLog:
    detail = {
        "cell": label.partition(" ")[2],
        "block": 3,
        "position": 0,
        "order": "AB",
        "label": label,
        "settle_steps": settle_steps,
        "window_tokens": window_tokens,
    }
    log.acks.append(Ack(len(log.acks) + 1, "set_toggles", 0, at_ns, detail))
    return log


def rows(log: EventLog, *others: EventLog, steady_ns: int | None = None) -> list[tuple[str, int, int, int]]:
    table = build_windows([log, *others], steady_ns=steady_ns)
    return [(window.label, window.start_ns, window.end_ns, window.num_tokens) for window in table]


def test_acknowledged_windows_are_surrounded_by_warmup_and_between_rows() -> None:
    log = with_steps(make_log(), [100, 200, 300, 400, 500, 600])
    with_window(with_window(log, "m1", 200, 300), "p1", 400, 500, "profile")

    assert rows(log, steady_ns=100) == [
        ("warmup", 0, 100, 10),
        ("between-1", 100, 200, 10),
        ("m1", 200, 300, 10),
        ("between-2", 300, 400, 10),
        ("p1", 400, 500, 10),
        ("between-3", 500, 600, 10),
    ]


def test_warmup_ends_at_the_first_window_where_steady_state_is_not_known() -> None:
    log = with_window(with_steps(make_log(), [100, 200, 300]), "m1", 200, 300)

    assert rows(log) == [("warmup", 0, 200, 20), ("m1", 200, 300, 10)]


def test_a_step_that_ends_at_the_acknowledgement_belongs_to_the_row_that_it_ends() -> None:
    log = with_window(with_steps(make_log(), [100, 200]), "m1", 100, 200)

    assert [row[3] for row in rows(log)] == [10, 10]


def test_a_device_step_finished_after_the_acknowledgement_counts_where_it_finished() -> None:
    log = with_window(with_steps(make_log(), [100, 205, 300]), "m1", 100, 200)

    assert rows(log) == [("warmup", 0, 100, 10), ("m1", 100, 200, 0), ("between-1", 200, 300, 20)]


def test_a_window_without_its_end_is_no_measurement() -> None:
    log = with_window(with_steps(make_log(), [100, 200, 300]), "m1", 100, None)

    (_, cut_off) = build_windows([log], steady_ns=None)

    assert (cut_off.label, cut_off.kind, cut_off.end_ns) == ("m1 (cut off)", WindowKind.BETWEEN, 300)


def test_a_window_end_after_the_last_step_keeps_its_acknowledged_length() -> None:
    log = with_window(with_steps(make_log(), [100, 200]), "m1", 100, 207)

    assert rows(log)[-1] == ("m1", 100, 207, 10)


def test_steps_of_roles_that_do_not_train_are_not_counted_but_their_start_is() -> None:
    target = with_steps(make_log("target", start_ns=-50, trains=False), [120, 220])

    assert rows(with_steps(make_log(), [100]), target) == [("warmup", -50, 100, 10)]


def test_ranks_add_tokens_and_the_fastest_gives_the_number_of_steps() -> None:
    second = with_steps(make_log(rank=1), [150, 190, 200])

    (window,) = build_windows([with_steps(make_log(), [100, 200]), second], steady_ns=None)

    assert (window.num_tokens, window.num_supervised_tokens, window.num_padding_tokens) == (50, 40, 15)
    assert window.num_steps == 3


def test_a_command_that_two_ranks_acknowledge_counts_once() -> None:
    first = with_window(with_steps(make_log(), [100, 200, 300]), "m1", 100, 200)
    second = with_window(with_steps(make_log(rank=1), [101, 201, 301]), "m1", 101, 201)

    assert [row[0] for row in rows(first, second)] == ["warmup", "m1", "between-1"]


def test_nothing_trained_means_no_rows() -> None:
    assert build_windows([make_log()], steady_ns=None) == ()


def test_hot_windows_are_measure_rows_with_their_settle_steps_between() -> None:
    log = with_steps(make_log(), [100, 200, 300, 400, 500, 600, 700])
    with_switch(with_switch(log, "3.1 base", 150), "3.2 candidate", 450)
    table = build_windows([log], steady_ns=100)

    assert rows(log, steady_ns=100) == [
        ("warmup", 0, 100, 10),
        ("between-1", 100, 200, 10),
        ("3.1 base", 200, 300, 10),
        ("between-2", 300, 500, 20),
        ("3.2 candidate", 500, 600, 10),
        ("between-3", 600, 700, 10),
    ]
    assert [WindowKind.MEASURE] * 2 == [row.kind for row in table if row.label.startswith("3.")]


def test_a_switch_within_a_plain_window_makes_no_second_row_of_it() -> None:
    log = with_window(with_steps(make_log(), [100, 200, 300, 400, 500]), "m1", 100, 500)
    with_switch(log, "3.1 base", 150)

    assert [row[0] for row in rows(log)] == ["warmup", "m1"]


times_ns = st.integers(min_value=-200, max_value=1_000)


@given(
    starts=st.lists(st.integers(-300, -200), min_size=1, max_size=3),
    steps=st.lists(st.lists(times_ns, max_size=30).map(sorted), min_size=1, max_size=3),
    edges=st.lists(times_ns, max_size=12).map(sorted),
    steady_ns=st.none() | times_ns,
    cut_off=st.booleans(),
    switches=st.lists(st.tuples(times_ns, st.integers(0, 3), st.integers(0, 40)), max_size=8).map(sorted),
)
def test_rows_partition_time_and_conserve_tokens(
    starts: list[int],
    steps: list[list[int]],
    *,
    edges: list[int],
    steady_ns: int | None,
    cut_off: bool,
    switches: list[tuple[int, int, int]],
) -> None:
    logs = [
        with_steps(make_log(rank=rank, start_ns=starts[rank % len(starts)]), ends_ns)
        for rank, ends_ns in enumerate(steps)
    ]
    for index, (start_ns, end_ns) in enumerate(zip(edges[::2], edges[1::2], strict=False)):
        last = index == len(edges) // 2 - 1
        with_window(logs[0], f"m{index}", start_ns, None if last and cut_off else end_ns)
    for index, (at_ns, settle_steps, window_tokens) in enumerate(switches):
        label = f"3.{index + 1} candidate"
        with_switch(logs[0], label, at_ns, settle_steps=settle_steps, window_tokens=window_tokens)

    table = build_windows(logs, steady_ns=steady_ns)

    assert all(first.end_ns == second.start_ns for first, second in pairwise(table))
    assert all(window.end_ns > window.start_ns for window in table)
    assert sum(window.num_tokens for window in table) == 10 * sum(map(len, steps))
    assert not any(steps) or table[-1].end_ns >= max(end_ns for ends_ns in steps for end_ns in ends_ns)
    check_tokens(table, logs)


def test_check_tokens_names_the_rank_whose_own_count_differs() -> None:
    log = with_steps(make_log(rank=2), [100, 200])
    log.marks.append(Mark("end", 300, {"num_tokens": 30, "num_steps": 3}))

    with pytest.raises(FlashProfError) as caught:
        check_tokens(build_windows([log], steady_ns=None), [log])

    assert caught.value.where == "drafter 2"
    assert caught.value.offered == "20 tokens in 2 steps"


def test_check_tokens_accepts_an_equal_end_mark() -> None:
    log = with_steps(make_log(), [100, 200])
    log.marks.append(Mark("end", 300, {"num_tokens": 20, "num_steps": 2}))

    check_tokens(build_windows([log], steady_ns=None), [log])


def test_check_tokens_sees_a_row_that_was_dropped() -> None:
    log = with_window(with_steps(make_log(), [100, 200]), "m1", 100, 200)

    with pytest.raises(FlashProfError, match="does not hold the tokens"):
        check_tokens(build_windows([log], steady_ns=None)[1:], [log])
