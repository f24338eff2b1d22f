"""The start-up lines count what was loaded and align what is compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.data.batches import BatchPlan
from pipeline.data.samples import SampleInfo
from pipeline.data.split import Split
from pipeline.data.summary import padding_share, startup_lines

INFO = SampleInfo(
    source="stdlib",
    num_samples=12345,
    vocab_size=9,
    mask_token_id=2,
    dropped={"spell a special token": 1200},
    cache_path=Path("x"),
)
SPLIT = Split(train_N=np.arange(11_000), held_out_N=np.arange(345), num_skipped=1000)


def test_samples_batches_and_every_bucket_have_a_line() -> None:
    plans = [BatchPlan(0, (1,), 2, 32)] * 999 + [BatchPlan(2, (1, 2, 0), 4, 1024)] * 1001
    lines = startup_lines(INFO, np.array([1000, 16, 234567]), SPLIT, plans, (96, 256, 1024))

    assert lines[:4] == [
        "12,345 samples loaded from stdlib (Arrow-backed, lazy): 235,583 tokens",
        "  left out when it was built: 1,200 that spell a special token",
        "11,000 to train on, 345 held out, 1,000 skipped (no valid anchor)",
        "2,000 batches per epoch; samples a batch: min 1, max 3, avg 2.0",
    ]
    assert lines[4].startswith("2 batch shapes; ")
    assert lines[5:] == [
        "  bucket 0:      0–96 tokens    999 batches   50.0 %",
        "  bucket 1:    97–256 tokens      0 batches    0.0 %",
        "  bucket 2: 257–1,024 tokens  1,001 batches   50.0 %",
    ]


def test_padding_is_rows_that_are_short_and_rows_that_are_empty() -> None:
    plans = [BatchPlan(0, (0,), 2, 32), BatchPlan(0, (1, 2), 2, 32)]

    assert pytest.approx(1 - (16 + 32 + 24) / 128) == padding_share(np.array([16, 32, 24]), plans)


def test_of_a_packed_row_only_its_end_is_padding() -> None:
    plans = [BatchPlan(0, (0, 1), 2, 300, is_packed=True), BatchPlan(0, (2,), 1, 96, is_packed=True)]
    lines = startup_lines(INFO, np.array([300, 50, 96]), SPLIT, plans, (512,))

    assert pytest.approx(1 - (350 + 96) / (384 + 128)) == padding_share(np.array([300, 50, 96]), plans)
    assert "2 batch shapes; 12.9 % padding" == lines[4]
