"""A parity study in lanes: every toggle has its turn once, and a lane that fails is told."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.parity_lanes import run_lanes, share


@given(names=st.lists(st.text(min_size=1), unique=True, min_size=1, max_size=20), num_lanes=st.integers(1, 30))
def test_each_name_is_in_one_lane_and_no_lane_is_idle(names: list[str], num_lanes: int) -> None:
    parts = share(names, num_lanes)

    assert sorted(names) == sorted(name for part in parts for name in part)
    assert all(parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_lane_that_fails_names_its_toggles_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"docids: .*0 is not in the range"):
        run_lanes(["--steps", "0"], [["docids"]], tmp_path)
