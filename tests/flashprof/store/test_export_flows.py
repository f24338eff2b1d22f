"""A flow joins the send and the step that belong together, or is left out."""

from __future__ import annotations

import random
from collections import Counter

import export_runs
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.events import EventLog, Step
from flashprof.store.export_flows import Counts, Flows, flow_id, pair_flows


def log(role: str, rank: int, steps: list[Counts], *, host: str = "here", torn: int = 0) -> EventLog:
    made = [Step(number, 10 * number, *counts) for number, counts in enumerate(steps)]
    return EventLog(header=export_runs.header(role, rank, host=host), steps=made, num_torn_lines=torn)


def batches(num: int, *, kinds: int, seed: int) -> list[Counts]:
    rng = random.Random(seed)
    return [(rng.randrange(kinds) + 1, 1, 0) for _ in range(num)]


def num_flows(flows: Flows) -> int:
    return sum(flow >= 0 for sent in flows.sent.values() for flow in sent)


def sends(flows: Flows, drafter: int, step: int) -> list[tuple[int, int]]:
    """Which log's which sends feed a step."""
    last = flows.taken[drafter][step]
    ids = range(last - flows.parts + 1, last + 1) if last >= 0 else ()
    return [divmod(flow, 1 << 32) for flow in ids]


def test_one_target_serves_its_drafters_by_turns() -> None:
    dealt = batches(6, kinds=1000, seed=1)
    flows = pair_flows([log("target", 0, dealt), log("drafter", 0, dealt[::2]), log("drafter", 1, dealt[1::2])])

    assert [[(0, 0)], [(0, 2)], [(0, 4)]] == [sends(flows, 1, step) for step in range(3)]
    assert [[(0, 1)], [(0, 3)], [(0, 5)]] == [sends(flows, 2, step) for step in range(3)]
    assert (6, []) == (num_flows(flows), flows.notes)


def test_a_step_of_several_batches_has_as_many_flows() -> None:
    dealt = batches(6, kinds=1000, seed=2)
    summed = [(first[0] + second[0], 2, 0) for first, second in zip(dealt[::2], dealt[1::2], strict=True)]
    flows = pair_flows([log("target", 0, dealt), log("drafter", 0, summed)])

    assert 2 == flows.parts
    assert [(0, 2), (0, 3)] == sends(flows, 1, 1)
    assert flow_id(0, 3) == flows.taken[1][1]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 30), st.integers(1, 1000), st.integers(0, 10**6))
def test_with_several_targets_no_flow_is_wrong(
    num_targets: int, num_drafters: int, num_steps: int, kinds: int, seed: int
) -> None:
    rng = random.Random(seed)
    dealt = batches(num_steps * num_drafters, kinds=kinds, seed=seed)
    owners = [rng.randrange(num_targets) for _ in dealt]
    given_to = [[k for k, owner in enumerate(owners) if owner == target] for target in range(num_targets)]
    targets = [log("target", rank, [dealt[k] for k in mine]) for rank, mine in enumerate(given_to)]
    drafters = [log("drafter", rank, dealt[rank::num_drafters]) for rank in range(num_drafters)]
    flows = pair_flows([*targets, *drafters])

    for rank in range(num_drafters):
        for step in range(num_steps):
            for target, place in sends(flows, num_targets + rank, step) if flows.taken else ():
                # Of batches that cannot be told apart any may have been this one.
                assert dealt[step * num_drafters + rank] == dealt[given_to[target][place]]
                if len(set(dealt)) == len(dealt):
                    assert step * num_drafters + rank == given_to[target][place]
    if len(set(dealt)) == len(dealt):
        assert len(dealt) == num_flows(flows)


def test_two_targets_that_come_next_with_the_same_batch_have_no_flow() -> None:
    same, other = (7, 1, 0), (8, 1, 0)
    targets = [log("target", 0, [same, other]), log("target", 1, [same])]
    flows = pair_flows([*targets, log("drafter", 0, [same, same, other])])

    assert [[], [], [(0, 1)]] == [sends(flows, 2, step) for step in range(3)]


def test_counts_that_differ_end_the_flows_and_are_told() -> None:
    dealt = [(number, 1, 0) for number in range(1, 6)]
    changed = [*dealt[:3], (99, 1, 0), dealt[4]]
    flows = pair_flows([log("target", 0, dealt), log("drafter", 0, changed)])

    assert 3 == num_flows(flows)
    assert ["flows end at step 3: no target's tokens are those of drafter 0"] == flows.notes


def test_a_target_that_was_killed_before_its_last_line_is_no_fault() -> None:
    dealt = [(number, 1, 0) for number in range(1, 6)]
    flows = pair_flows([log("target", 0, dealt[:4]), log("drafter", 0, dealt)])

    assert (4, []) == (num_flows(flows), flows.notes)


def test_a_torn_line_could_have_been_a_step() -> None:
    dealt = [(number, 1, 0) for number in range(1, 6)]
    flows = pair_flows([log("target", 0, dealt, torn=1), log("drafter", 0, dealt)])

    assert 0 == num_flows(flows)
    assert 1 == len(flows.notes)


def test_several_targets_and_parts_are_left_out_and_told() -> None:
    flows = pair_flows([log("target", 0, [(1, 1, 0)]), log("target", 1, [(2, 1, 0)]), log("drafter", 0, [(3, 2, 0)])])

    assert 0 == num_flows(flows)
    assert "several batches" in flows.notes[0]


def test_each_host_deals_to_its_own() -> None:
    dealt = [(1, 1, 0), (2, 1, 0)]
    logs = [log(role, 0, dealt, host=host) for host in ("one", "two") for role in ("target", "drafter")]
    flows = pair_flows(logs)

    assert [(0, 1)] == sends(flows, 1, 1)
    assert [(2, 1)] == sends(flows, 3, 1)
    assert Counter({flow_id(0, 0): 1, flow_id(0, 1): 1, flow_id(2, 0): 1, flow_id(2, 1): 1}) == Counter(
        flow for sent in flows.sent.values() for flow in sent
    )


def test_other_trainers_have_none() -> None:
    assert 0 == num_flows(pair_flows([log("trainer", 0, [(1, 1, 0)])]))
