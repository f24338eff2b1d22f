"""Topologies are read strictly and printed as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import UsageError
from pipeline.topology import Topology, parse_topology


@given(st.integers(1, 64), st.integers(1, 64))
def test_round_trip(num_targets: int, num_drafters: int) -> None:
    topology = Topology(num_targets, num_drafters)

    assert topology == parse_topology(str(topology))


def test_shared_is_one_pair_on_one_device() -> None:
    shared = parse_topology("shared")

    assert "shared" == str(shared)
    assert (0, 0) == (shared.place("target", 0, 8), shared.place("drafter", 0, 8))


def test_eight_devices_hold_five_targets_and_three_drafters() -> None:
    topology = parse_topology("5+3")

    places = [topology.place("target", rank, 8) for rank in range(5)]
    places += [topology.place("drafter", rank, 8) for rank in range(3)]
    assert list(range(8)) == places


def test_with_too_few_devices_workers_share_them() -> None:
    topology = parse_topology("2+2")

    assert [0, 1, 0, 1] == [topology.place(role, rank, 2) for role in ("target", "drafter") for rank in range(2)]


WRONG = ["", "1", "shared:2", "Shared", "1+", "+1", "0+1", "1+0", "65+1", "1+1+1", "1-1", "a+b", "1.5+1", "-1+2"]


@pytest.mark.parametrize("text", WRONG)
def test_anything_else_is_a_usage_error_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_topology(text)

    assert "1+1" in str(caught.value)
    assert text == caught.value.offered
