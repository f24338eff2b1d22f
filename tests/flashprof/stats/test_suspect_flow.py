"""Suspects in the flow of data: a wait is evidence only where nobody's work explains it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashprof.contracts.localisation import Ruling
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.evidence_items import GaugeUse
from tests.support.suspect_cases import arm, frame, part, ruled, steps, without_phases

CHAIN = ("drafter wait_hidden", "target wait_work")


def test_loading_that_is_waited_for_along_the_chain_is_data_starvation() -> None:
    parts = (part("dispatcher batch", 160.0, through=CHAIN), part("target forward", 20.0, through=CHAIN[:1]))

    found = ruled("data starvation", arm(), arm({("dispatcher", "batch"): 180.0}), parts)

    assert found.ruling is Ruling.NAMED
    assert found.share == pytest.approx(0.8)
    assert "loading took 20 ns → 0.18 µs a token" in found.evidence


def test_slower_loading_that_nobody_waits_for_is_ruled_out() -> None:
    parts = (part("drafter forward", 190.0),)

    assert ruled("data starvation", arm(), arm({("dispatcher", "batch"): 400.0}), parts).ruling is Ruling.RULED_OUT


def test_a_foreign_trainers_wait_for_data_counts() -> None:
    parts = (part("drafter wait_data", 160.0),)

    found = ruled("data starvation", arm(), arm({("drafter", "wait_data"): 160.0}), parts)

    assert found.ruling is Ruling.NAMED


def test_frames_of_the_loader_tell_where_no_phase_does() -> None:
    bare = without_phases()
    frames = (frame("_next_data", 150.0, where="torch/utils/data/dataloader.py:700"),)

    assert ruled("data starvation", bare, bare, (part("drafter forward", 190.0),), frames).ruling is Ruling.NAMED
    assert ruled("data starvation", bare, bare, (part("drafter forward", 190.0),)).ruling is Ruling.UNKNOWN


def test_a_wait_that_is_charged_to_the_target_is_no_empty_queue() -> None:
    parts = (part("target forward", 190.0, through=CHAIN[:1]), part("drafter wait_hidden", 2.0))

    found = ruled("queue starvation, drafter", arm(), arm({("drafter", "wait_hidden"): 250.0}), parts)

    assert found.ruling is Ruling.RULED_OUT
    assert "50 ns → 0.25 µs a token" in found.evidence


def test_a_wait_that_nobodys_work_explains_is_an_empty_queue() -> None:
    depth = [{("drafter", "queue"): GaugeUse(num_values=9, mean=mean, median=mean)} for mean in (1.0, 0.25)]
    parts = (part("drafter wait_hidden", 150.0),)

    found = ruled("queue starvation, drafter", arm(gauges=depth[0]), arm(gauges=depth[1]), parts)

    assert found.ruling is Ruling.NAMED
    assert "with 1.00 → 0.25 batches waiting" in found.evidence


def test_a_full_queue_is_named_where_it_has_the_change_and_slack_where_the_drafter_limits() -> None:
    named = ruled("queue starvation, target", arm(), arm(), (part("target wait_room", 150.0),))
    slack = ruled(
        "queue starvation, target", arm(), arm({("target", "wait_room"): 300.0}), (part("drafter mask", 190.0),)
    )

    assert named.ruling is Ruling.NAMED
    assert slack.ruling is Ruling.RULED_OUT


def test_a_drafter_that_never_waited_has_no_empty_queue() -> None:
    held = replace(arm(), phases={("target", "main", "wait_room"): 1.0})

    assert ruled("queue starvation, drafter", held, held, (part("drafter mask", 190.0),)).ruling is Ruling.RULED_OUT


@pytest.mark.parametrize(("role", "phases"), [("drafter", ("receive", "unpack")), ("target", ("pack", "send"))])
def test_a_role_at_a_queue_that_has_no_wait_never_waited(role: str, phases: tuple[str, ...]) -> None:
    busy = replace(arm(), phases={(role, "main", phase): 1.0 for phase in phases})
    one = replace(arm(), phases={(role, "main", phases[0]): 1.0})
    side = f"queue starvation, {role}"

    found = ruled(side, busy, busy, (part("drafter mask", 190.0),))

    assert found.ruling is Ruling.RULED_OUT
    assert "0 ns → 0 ns a token" in found.evidence
    assert ruled(side, one, one, (part("drafter mask", 190.0),)).ruling is Ruling.UNKNOWN


def test_queues_of_a_trainer_that_has_none_are_not_known() -> None:
    bare = without_phases()

    for side in ("drafter", "target"):
        assert ruled(f"queue starvation, {side}", bare, bare, (part("drafter x", 190.0),)).ruling is Ruling.UNKNOWN


TWO_RANKS = {"drafter": 2}


def ranks(spread_ns: float) -> ArmEvidence:
    """1,000 steps of 1,000 tokens: a spread of 1,000 ns a step is 1 ns a token."""
    return arm(num_ranks=TWO_RANKS, steps={"drafter": steps(spread=1000 * spread_ns, slowest=1 + spread_ns / 1000)})


def test_a_slow_rank_that_others_wait_for_is_a_straggler() -> None:
    found = ruled("stragglers", ranks(10), ranks(170), (part("drafter grad_sync", 160.0),))

    assert found.ruling is Ruling.NAMED
    assert "worked 10 ns → 0.17 µs a token longer than the mean, 1.01 → 1.17" in found.evidence


def test_a_slower_collective_of_equal_ranks_has_no_straggler() -> None:
    assert ruled("stragglers", ranks(10), ranks(10), (part("drafter grad_sync", 160.0),)).ruling is Ruling.RULED_OUT


def test_one_rank_waits_for_nobody() -> None:
    assert ruled("stragglers", arm(), arm(), (part("drafter forward", 160.0),)).ruling is Ruling.RULED_OUT


def test_logging_is_named_by_its_phases_or_by_loggers_elsewhere() -> None:
    writer = (frame("add_scalar", 150.0, where="tensorboard/writer.py:3"),)

    phase = ruled("logging", arm(), arm({("drafter", "log"): 160.0}), (part("drafter log", 150.0),))
    elsewhere = ruled("logging", arm(), arm(), (part("drafter forward", 180.0),), writer)

    assert [phase.ruling, elsewhere.ruling] == [Ruling.NAMED] * 2


def test_logging_that_did_not_change_is_ruled_out() -> None:
    assert ruled("logging", arm(), arm(), (part("drafter forward", 180.0),)).ruling is Ruling.RULED_OUT
