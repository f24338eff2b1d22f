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


@pytest.mark.parametrize("text", ["", "1", "1+", "+1", "0+1", "1+0", "65+1", "1+1+1", "1-1", "a+b", "1.5+1", "-1+2"])
def test_anything_else_is_a_usage_error_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_topology(text)

    assert "1+1" in str(caught.value)
    assert text == caught.value.offered
