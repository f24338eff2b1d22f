"""The page about parity says what the results files say."""

from __future__ import annotations

from benchmarks.parity_page import PAGE, make_page, read_studies


def test_the_page_is_made_of_the_newest_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(read_studies()), "run: python -m benchmarks.parity_page"
