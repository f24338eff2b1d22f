"""The corpus is the same everywhere, leaves tests out, loses no text and spreads its lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.corpus import documents_in, stdlib_documents

FUNCTION = "def f(x):\n    return x + 1\n\n\n"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name in (
        "b.py",
        "a.py",
        "test/t.py",
        "pkg/tests/t.py",
        "site-packages/s.py",
        "pkg/c.py",
        "_sysconfigdata_x.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n" + FUNCTION * 40)
    (tmp_path / "tiny.py").write_text("x = 1\n")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n" * 300)
    return tmp_path


def test_sources_come_in_order_without_tests_tiny_or_unreadable_files(library: Path) -> None:
    text = "".join(documents_in(library, 10**6))

    assert [line for line in text.splitlines() if line.startswith("#")] == ["# a.py", "# b.py", "# pkg/c.py"]


def test_the_sum_of_all_documents_stays_within_the_bound(library: Path) -> None:
    num_bytes = sum(len(text) for text in documents_in(library, 1500, longest_bytes=300))

    assert 1000 < num_bytes <= 1500


def test_a_document_begins_where_a_definition_begins(library: Path) -> None:
    documents = list(documents_in(library, 10**6, longest_bytes=400))

    assert len(documents) > 10
    assert all(text.startswith(("def ", "# ")) for text in documents)


@settings(max_examples=40, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(["x = 1\n", "class A:\n", "    def g(self):\n", "        pass\n", "é = 'ü'\n"]),
        min_size=120,
        max_size=400,
    )
)
def test_pieces_joined_are_the_file_but_for_a_short_end(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    root = tmp_path_factory.mktemp("root")
    text = "".join(lines) + "#" * 512 + "\n"
    (root / "m.py").write_text(text)

    joined = "".join(documents_in(root, 10**6, longest_bytes=1000))

    assert text.startswith(joined)
    assert len((text[len(joined) :]).encode()) < 128


def test_the_real_library_fills_longer_buckets_with_more_text() -> None:
    sizes = np.array([len(text.encode()) for text in stdlib_documents(3_000_000, longest_bytes=4096)])
    bucket = np.searchsorted([512, 1024, 1536, 2048, 3072], sizes)
    shares = np.bincount(bucket, weights=sizes) / sizes.sum()

    assert len(shares) == 6
    assert np.all(np.diff(shares) > 0)
    assert shares[0] > 0.01
