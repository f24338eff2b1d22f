"""The start-up lines count what was loaded and align what is compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.data.batches import BatchPlan
from pipeline.data.samples import SampleInfo
from pipeline.data.summary import startup_lines

INFO = SampleInfo(source="stdlib", num_samples=12345, vocab_size=9, mask_token_id=2, cache_path=Path("x"))


def test_samples_batches_and_every_bucket_have_a_line() -> None:
    plans = [BatchPlan(0, (1,), 32)] * 999 + [BatchPlan(2, (1, 2, 3), 1024)] * 1001
    lines = startup_lines(INFO, np.array([1000, 234567]), plans, (96, 256, 1024))

    assert lines == [
        "12,345 samples loaded from stdlib (Arrow-backed, lazy): 235,567 tokens",
        "2,000 batches per epoch; samples a batch: min 1, max 3, avg 2.0",
        "  bucket 0:      0–96 tokens    999 batches   50.0 %",
        "  bucket 1:    97–256 tokens      0 batches    0.0 %",
        "  bucket 2: 257–1,024 tokens  1,001 batches   50.0 %",
    ]
