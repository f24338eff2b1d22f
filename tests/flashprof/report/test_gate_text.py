"""Texts of a run stay text in Markdown: read back by a parser, whatever they hold."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from flashprof.report.gate_text import code, fenced, inline, plain, printable, sentence
from flashprof.report.pipe_table import pipe_table

BREAK = "\u200b"
TEXTS = st.text(st.characters(exclude_categories=["Zs"]), max_size=60) | st.text(
    " `|\\*_[]<>@#&~$!-+1.)(a:/w\n", max_size=30
)


def shown(markdown: str) -> str:
    """What a reader sees: no markup may be left to be found."""
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    text = re.sub(r"</?(?:ul|li|p|code|pre|table|thead|tbody|tr|th|td)\b[^>]*>|\n", "", page)
    assert "<" not in text
    return html.unescape(text)


def cell_of(text: str) -> str:
    return shown(pipe_table(("t", "u"), [(text, "end")], num_text=2)).removeprefix("tu").removesuffix("end")


@given(TEXTS)
@example("![x](javascript:1) <img src=x> **b** `c` ~~d~~ &lt; \\| | a")
@example("- item")
@example("12. item")
@example("--")
@example("- - -")
@example("## title")
@example("> quote")
@example("a\\")
def test_text_in_a_list_is_shown_as_it_is(text: str) -> None:
    found = shown(f"- x\n- {inline(text)}\n").replace(BREAK, "")

    assert f"x{plain(text)}".replace(BREAK, "") == found


@given(TEXTS)
@example("a|b\\|c\\")
def test_text_in_a_cell_is_shown_as_it_is(text: str) -> None:
    assert plain(text).replace(BREAK, "") == cell_of(inline(text)).replace(BREAK, "")


@given(TEXTS)
@example("`")
@example("a`b``c```")
@example("` a")
def test_code_is_shown_as_it_is(text: str) -> None:
    assert plain(text) == shown(f"- {code(text)}\n")


@given(st.text("`|<>@# ab", max_size=20))
def test_code_in_a_cell_is_shown_as_it_is(text: str) -> None:
    assert plain(text) == cell_of(code(text))


@pytest.mark.parametrize("text", ["@everyone", "#12", "GH-12", "o/r#3", "!7", "%1", "&4", "a@b.c", "&#64;all"])
def test_nobody_and_nothing_is_mentioned(text: str) -> None:
    found = shown(f"- {inline(text)}\n")

    assert not re.search(r"[@#!%&]\w|GH-\d", found)


@pytest.mark.parametrize("text", ["https://x.y", "see http://x.y", "www.x.y", "WWW.x.y", "ftp://x"])
def test_no_address_becomes_a_link(text: str) -> None:
    source = inline(text)

    assert "://" not in source
    assert "www." not in source.lower()
    assert text == shown(source).replace(BREAK, "")


@given(st.lists(st.text("`~ab\n\r<@", max_size=20), min_size=1, max_size=4))
def test_a_block_of_code_ends_where_it_should(lines: list[str]) -> None:
    found = MarkdownIt("commonmark").parse(f"{fenced(lines)}\n\nafter")

    assert ["fence", "paragraph_open", "inline", "paragraph_close"] == [token.type for token in found]


def test_of_a_headline_only_the_code_is_code() -> None:
    assert "fell 3 %, in `a_b`; by \\_c" == sentence("fell 3 %, in `a_b`; by _c")


@given(st.text(max_size=200))
def test_plain_text_is_one_clipped_line_that_utf8_and_xml_can_hold(text: str) -> None:
    found = plain(text, 50)

    assert len(found) <= 50
    assert found == "".join(found.splitlines())
    assert found == found.encode().decode()


def test_printable_keeps_line_ends_and_nothing_that_moves_a_cursor() -> None:
    assert "a\nb\nc\nd" == printable("a\r\nb\rc\n\x1bd\x00\ud800")
