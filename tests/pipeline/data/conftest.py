"""Data sets that are built once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.data.samples import Samples, open_samples

VOCAB_SIZE = 1024
MAX_LENGTH = 512


@pytest.fixture(scope="session")
def data_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def stdlib_samples(data_cache: Path) -> Samples:
    return open_samples("stdlib", cache=data_cache, vocab_size=VOCAB_SIZE, max_length=MAX_LENGTH)
