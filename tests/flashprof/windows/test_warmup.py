"""The warm-up: its length, steps and causes."""

from __future__ import annotations

from flashprof.contracts.events import Ack, EventLog, Header, Mark, Step
from flashprof.windows.warmup import MAX_CAUSES, warmup_summary

SECOND_NS = 10**9


def make_log(rank: int = 0) -> EventLog:
    header = Header(role="drafter", rank=rank, host="h", pid=1, trains=True, wall_ns=0, monotonic_ns=0)
    log = EventLog(header=header)
    log.steps += [Step(index, (index + 1) * SECOND_NS, 10, 10, 0) for index in range(20)]
    return log


def compiled(log: EventLog, at_s: float, what: str, seconds: float) -> EventLog:
    log.marks.append(Mark("compile", round(at_s * SECOND_NS), {"what": what, "seconds": seconds}))
    return log


def test_length_steps_and_causes_end_at_steady_state() -> None:
    log = compiled(compiled(make_log(), 2, "mask", 9.14), 15, "late", 3.0)

    warmup = warmup_summary([log], 10 * SECOND_NS, 2 * SECOND_NS)

    assert (warmup.length_s, warmup.num_steps, warmup.settled) == (8.0, 10, True)
    assert warmup.causes == ("compile mask 9.1 s",)


def test_ranks_that_compile_side_by_side_are_one_cause() -> None:
    logs = [compiled(make_log(rank), 1, "mask", 4.0 + rank) for rank in range(2)]

    assert warmup_summary(logs, 10 * SECOND_NS, 0).causes == ("compile mask 5.0 s",)


def test_unsettled_data_warm_up_until_the_first_window() -> None:
    log = make_log()
    log.acks.append(Ack(1, "window_start", 5, 6 * SECOND_NS, {"label": "m1", "kind": "measure"}))

    warmup = warmup_summary([log], None, 0)

    assert (warmup.length_s, warmup.num_steps, warmup.settled) == (6.0, 6, False)


def test_only_the_longest_causes_are_named_and_the_rest_counted() -> None:
    log = make_log()
    for index in range(MAX_CAUSES + 3):
        compiled(log, 1, f"graph {index}", float(index))

    causes = warmup_summary([log], 10 * SECOND_NS, 0).causes

    assert len(causes) == MAX_CAUSES + 1
    assert causes[0] == "compile graph 7 7.0 s"
    assert causes[-1] == "3 more 3.0 s"


def test_recompilations_and_tuning_are_causes_of_their_own() -> None:
    log = compiled(compiled(make_log(), 1, "mask", 4.0), 2, "recompile mask", 2.0)
    log.marks.append(Mark("autotune", 3 * SECOND_NS, {"what": "attend", "seconds": 3.0}))

    causes = warmup_summary([log], 10 * SECOND_NS, 0).causes

    assert causes == ("compile mask 4.0 s", "autotune attend 3.0 s", "recompile mask 2.0 s")


def test_the_allocator_of_the_rank_that_grew_most_is_a_cause() -> None:
    logs = [compiled(make_log(rank), 1, "mask", 0.5) for rank in range(2)]
    for rank, sizes_gib in enumerate([[1.0, 2.1], [0.5]]):
        for at_s, gib in enumerate(sizes_gib, start=2):
            logs[rank].marks.append(Mark("allocator", at_s * SECOND_NS, {"gib": gib, "retries": 2 * rank}))
    logs[0].marks.append(Mark("allocator", 15 * SECOND_NS, {"gib": 9.0, "retries": 0}))

    causes = warmup_summary(logs, 10 * SECOND_NS, 0).causes

    assert causes == (
        "compile mask 0.5 s",
        "allocator grew by 3.1 GiB",
        "allocator gave memory back and asked again 2×",
    )


def test_a_breath_of_the_allocator_is_no_cause() -> None:
    log = make_log()
    log.marks.append(Mark("allocator", SECOND_NS, {"gib": 0.002, "retries": 0}))

    assert warmup_summary([log], 10 * SECOND_NS, 0).causes == ()
