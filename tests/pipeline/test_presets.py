"""The presets fit together: data, drafter and target."""

from __future__ import annotations

import pytest

from flashprof.contracts.errors import UnknownNameError
from pipeline.data.buckets import LENGTH_MULTIPLE
from pipeline.presets import PRESETS, find_preset


@pytest.mark.parametrize("name", PRESETS)
def test_every_sample_fits_a_bucket_and_the_budget(name: str) -> None:
    data = find_preset(name).data

    assert data.max_length == data.bucket_bounds[-1] <= data.token_budget
    assert sorted(set(data.bucket_bounds)) == list(data.bucket_bounds)
    assert [0] * len(data.bucket_bounds) == [bound % LENGTH_MULTIPLE for bound in data.bucket_bounds]


def test_the_vocabulary_of_every_random_target_is_known() -> None:
    targets = [preset.target for preset in PRESETS.values() if preset.target.is_random]

    assert targets
    assert all(target.vocab_size > 0 for target in targets)


def test_a_block_lies_within_its_window() -> None:
    assert [] == [p.name for p in PRESETS.values() if p.drafter.block_size > p.drafter.sliding_window]


def test_an_unknown_preset_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tiny'"):
        find_preset("tinny")
