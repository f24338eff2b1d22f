"""Samples without text: batches fall into the buckets as they did for the team, whatever the token budget."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashprof.contracts.errors import UsageError
from pipeline.data.batches import batch_rule, plan_epoch
from pipeline.data.samples import open_samples
from pipeline.data.synthetic import BATCH_SHARES, synthetic_lengths
from pipeline.presets import QWEN3_8B_RANDOM, Preset

STORY = QWEN3_8B_RANDOM.data
SHORT = replace(
    QWEN3_8B_RANDOM,
    data=replace(STORY, bucket_bounds=(64, 96, 128), max_length=128, token_budget=256),
    drafter=replace(QWEN3_8B_RANDOM.drafter, block_size=8),
)


@pytest.mark.parametrize("token_budget", [8192, 16_384, 26_624])
def test_batches_are_shared_among_buckets_as_the_team_counted_them(token_budget: int) -> None:
    data = replace(STORY, token_budget=token_budget)
    lengths_N = synthetic_lengths(data)
    plans = plan_epoch(lengths_N, np.arange(len(lengths_N)), batch_rule(data, 0), 0)
    number = Counter(plan.bucket for plan in plans)

    assert [pytest.approx(share, abs=0.5) for share in BATCH_SHARES] == [
        100 * number[bucket] / len(plans) for bucket in range(6)
    ]
    assert 8192 >= lengths_N.max() > 8000


def test_the_preset_has_batches_of_three_to_sixty_four_samples_or_what_is_left() -> None:
    preset = QWEN3_8B_RANDOM.data
    lengths_N = synthetic_lengths(preset)
    # As a run has it: some samples are held out, and the last batch of a shape takes what is left.
    plans = plan_epoch(lengths_N, np.arange(len(lengths_N) - 1), batch_rule(preset, 0), 0)
    sizes = [len(plan.indices) for plan in plans]

    assert 64 == max(sizes)
    assert 3 >= min(sizes)


def test_fewer_buckets_take_the_shares_of_the_shortest() -> None:
    lengths_N = synthetic_lengths(replace(STORY, bucket_bounds=(768, 1216), max_length=1216, token_budget=2432))
    # Rows of a batch: 6 and 3 in the first bucket, 2 and 2 in the second.
    num_batches = [(lengths_N <= 384).sum() / 6 + ((lengths_N > 384) & (lengths_N <= 768)).sum() / 3]
    num_batches.append((lengths_N > 768).sum() / 2)

    assert pytest.approx(BATCH_SHARES[0] / BATCH_SHARES[1], rel=0.02) == num_batches[0] / num_batches[1]


def test_more_buckets_than_shares_are_refused() -> None:
    with pytest.raises(UsageError, match="length buckets") as refusal:
        synthetic_lengths(replace(STORY, bucket_bounds=tuple(range(32, 32 * 8, 32)), max_length=224))

    assert "7 buckets" == refusal.value.offered


def test_samples_hold_every_token_but_the_mask_and_begin_with_a_prompt(tmp_path: Path) -> None:
    preset = replace(SHORT, target=replace(SHORT.target, vocab_size=50, mask_token_id=7))
    samples = open_samples(preset, cache=tmp_path)
    row = samples.dataset[0]

    assert 7 == samples.info.mask_token_id
    assert set(range(50)) - {7} == {token for ids in samples.dataset[:200]["input_ids"] for token in ids}
    assert [0] * (row["length"] // 4) == row["loss_mask"][: row["length"] // 4]
    assert {1} == set(row["loss_mask"][row["length"] // 4 :])


def test_another_budget_is_another_data_set(tmp_path: Path) -> None:
    def folder(preset: Preset) -> Path:
        return open_samples(preset, cache=tmp_path).info.cache_path

    wider = replace(SHORT, data=replace(SHORT.data, token_budget=512))

    assert folder(SHORT) == folder(SHORT)
    assert folder(SHORT) != folder(wider)
