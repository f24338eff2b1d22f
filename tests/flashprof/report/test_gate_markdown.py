"""
A gate as Markdown, against golden files, cut where it is too long, and on hostile names.

Update the files with `FLASHPROF_UPDATE_GOLDEN=1 pytest tests/flashprof/report`, and read the difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gate_results
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from flashprof.contracts.gate import GateResult
from flashprof.report.gate_markdown import (
    CUT,
    MAX_COMMENT_BYTES,
    MAX_SUMMARY_BYTES,
    Fold,
    fit,
    marker,
    render_gate_comment,
    render_gate_summary,
)
from flashprof.report.gate_sources import Sources

GOLDEN = Path(__file__).parent / "golden"
SOURCES = Sources(has_file=lambda path: True, blob_url=f"https://github.com/o/r/blob/{gate_results.HEAD_COMMIT}")
MAKERS = [
    gate_results.passed,
    gate_results.bisected,
    gate_results.inconclusive,
    gate_results.broken,
    gate_results.stored,
    gate_results.empty,
]


def outside_code(text: str) -> str:
    """What Markdown reads as more than code; spans of several backquotes too."""
    return re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("make", MAKERS)
def test_the_comment_is_the_golden_one(make: Callable[[], GateResult]) -> None:
    text = render_gate_comment(make(), SOURCES)
    path = GOLDEN / f"gate-{make.__name__}.md.txt"
    if os.environ.get("FLASHPROF_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == text


def test_the_comment_begins_with_a_line_to_find_it_by() -> None:
    text = render_gate_comment(gate_results.passed(), SOURCES, key="H200 --> 5+3")

    assert text.startswith("<!-- flashprof gate h200-5-3 -->\n")
    assert "<!-- flashprof gate -->" == marker()
    assert marker() not in text
    assert "flashprof gate" not in render_gate_summary(gate_results.passed(), SOURCES).partition("\n")[0]


def test_frames_lead_to_their_lines() -> None:
    link = f"https://github.com/o/r/blob/{gate_results.HEAD_COMMIT}/pipeline/train/masks.py#L41"
    bare = Sources(has_file=lambda path: False, blob_url=SOURCES.blob_url)

    assert f"[`pipeline/train/masks.py:41`]({link})" in render_gate_comment(gate_results.failed(), SOURCES)
    assert "](" not in render_gate_comment(gate_results.failed(), bare)


@pytest.mark.parametrize(
    "text", ["@me #1", "[a](javascript:b)", "<img src=x>", "`|`", "/close", "<!-- -->", "a\n/close", "\\"]
)
def test_names_of_a_run_notify_link_and_hide_nothing(text: str) -> None:
    found = render_gate_comment(gate_results.hostile(f"{text} x"), Sources(has_file=lambda path: False))
    page = MarkdownIt("commonmark").enable("table").render(found)

    outside = outside_code(found).replace("&#8203;", "\u200b")
    assert not re.search(r"[@#]\w", outside)
    assert "](" not in outside.replace("\\](", "")
    assert {"<!--", "<details", "<summary", "</summary", "</details"} >= set(re.findall(r"<[!/]?-*\w*", outside))
    assert [] == [line for line in found.splitlines() if line.startswith("/")]
    assert 1 == page.count("<!--")
    assert "<a " not in page
    assert "<img" not in page


def test_rows_of_a_table_have_cells_for_all_titles() -> None:
    text = render_gate_comment(gate_results.hostile("a|b`|\\"), Sources(has_file=lambda path: False))
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    counts = [{len(re.findall(r"(?<!\\)\|", line)) for line in table} for table in tables]

    assert [{7}, {7}, {9}, {3}] == counts


def huge(num: int, text: str = "x" * 500) -> GateResult:
    found = gate_results.hostile(text)
    assert found.study is not None
    return replace(
        found,
        study=replace(found.study, blocks=found.study.blocks * num),
        notes=tuple(f"{number} {text}" for number in range(num)),
    )


@pytest.mark.parametrize("text", ["x" * 500, "µ" * 500, "|<&`" * 125])
def test_what_is_too_long_is_cut_with_a_note(text: str) -> None:
    comment = render_gate_comment(huge(40, text), SOURCES)
    summary = render_gate_summary(huge(1_000, text), SOURCES)

    assert MAX_COMMENT_BYTES // 2 < len(comment.encode()) <= MAX_COMMENT_BYTES
    assert MAX_SUMMARY_BYTES // 2 < len(summary.encode()) < MAX_SUMMARY_BYTES
    for cut in (comment, summary):
        assert cut.endswith(f"</details>\n\n{CUT}\n")
        assert cut.count("<details>") == cut.count("</details>")


def test_what_fits_is_whole() -> None:
    assert CUT not in render_gate_summary(huge(40), SOURCES)
    assert CUT not in render_gate_comment(gate_results.failed(), SOURCES)


TABLE = "| a | b |\n| --- | --- |\n| 1 | µ |\n| 2 | y |\n| 3 | z |"
BLOCKS = st.lists(
    st.sampled_from(["a paragraph", "- one\n- two\n- three", TABLE, "```text\nx\n```", ""])
    | st.builds(
        lambda inner: Fold(title="more", blocks=tuple(inner)), st.lists(st.sampled_from([TABLE, "- a\n- b", "text"]))
    ),
    max_size=6,
)


@given(BLOCKS, st.integers(len(CUT.encode()) + 3, 700))
@settings(max_examples=300)
def test_a_cut_keeps_the_size_and_the_markup(blocks: list[str | Fold], max_bytes: int) -> None:
    whole = fit(blocks, 10**6)
    text = fit(blocks, max_bytes)

    assert len(text.encode()) <= max_bytes
    assert (CUT in text) or text == whole
    assert text.count("<details>") == text.count("</details>")
    assert 0 == text.count("```") % 2
    assert all(len(part.splitlines()) >= 3 for part in text.split("\n\n") if part.startswith("| "))
