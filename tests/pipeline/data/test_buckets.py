"""Bounds are inclusive, and what lies over the last one is an error."""

from __future__ import annotations

import numpy as np
import pytest

from flashprof.contracts.errors import UsageError
from pipeline.data.buckets import assign_buckets

STORY = (769, 1215, 1727, 2431, 3295, 8192)


def test_bounds_are_inclusive() -> None:
    lengths_N = np.array([0, 769, 770, 1215, 1216, 3296, 8192])

    assert assign_buckets(lengths_N, STORY).tolist() == [0, 0, 1, 1, 2, 5, 5]


def test_a_sample_over_the_last_bound_says_how_many_and_what_to_set() -> None:
    with pytest.raises(UsageError) as caught:
        assign_buckets(np.array([8193, 9000, 5]), STORY)

    assert caught.value.what == "2 samples are longer than the last length bucket"
    assert caught.value.offered == "9,000 tokens"
    assert "max_length to 8192" in str(caught.value.next_command)


@pytest.mark.parametrize("bounds", [(), (0, 5), (5, 5), (9, 5)])
def test_bounds_that_do_not_rise_are_refused(bounds: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="bucket bounds must rise"):
        assign_buckets(np.array([1]), bounds)
