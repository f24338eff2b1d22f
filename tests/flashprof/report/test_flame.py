"""Flamegraphs as HTML: complete, safe whatever a frame is called, and readable without a script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from flashprof.contracts.profiles import FrameId, ProfiledWindow, StackView
from flashprof.report.flame import render_flame, render_flame_page
from flashprof.stats.flame_tree import flame_tree

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "&amp;",
    "<!--",
    '"\\',
    "\u2028",
    "\u202egnp",
    "{0.__class__}",
    "\x00",
    "\ud800",
    "n" * 10_000,
]


class Page(HTMLParser):
    """Collects what the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.urls: list[str] = []
        self.handlers: list[str] = []
        self.rows: list[list[str]] = []
        self.data = ""
        self._in: list[str] = []
        self._reads_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.urls += [value or "" for name, value in attrs if name in ("src", "href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self._reads_data = ("data-widget", "flame") in attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._reads_data = False
        if tag in ("td", "th"):
            self._in.pop()

    def handle_data(self, data: str) -> None:
        if self._reads_data:
            self.data += data
        if self._in:
            self.rows[-1][-1] += data


def window(*stacks: tuple[str, int], ns: float = 100.0, label: str = "p1", role: str = "drafter") -> ProfiledWindow:
    """Stacks are names with spaces between, and their samples."""
    counts = {tuple(FrameId(name, f"pipeline/{name}.py") for name in names.split()): num for names, num in stacks}
    return ProfiledWindow(launch="run", label=label, role=role, num_ranks=1, ns_per_token=ns, stacks=counts)


def arm(*stacks: tuple[str, int], ns: float = 100.0) -> list[ProfiledWindow]:
    return [window(*stacks, ns=ns, label=label) for label in ("p1", "p2")]


def lanes_of(text: str) -> list[dict[str, Any]]:
    lanes: list[dict[str, Any]] = json.loads(Page(text).data)["lanes"]
    return lanes


def test_the_widget_is_one_element_with_its_data_and_the_hooks_of_its_script() -> None:
    text = render_flame(flame_tree(arm(("a b", 1))), id="flame-1")

    page = Page(text)
    assert text.startswith('<figure class="flame plain" id="flame-1">')
    assert page.tags.count("figure") == page.tags.count("script") == 1
    assert [lane["name"] for lane in lanes_of(text)] == ["drafter"]
    hooks = {"flame-search", "flame-reset", "flame-graph", "flame-hover"}
    assert hooks <= set(re.findall(r'data-testid="([^"]*)"', text))


def test_a_differential_widget_offers_the_widths_of_both_arms_by_name() -> None:
    text = render_flame(flame_tree(arm(("a", 1)), arm(("b", 1))), id="f", base="none", candidate="swa <b>")

    assert 'class="flame differential"' in text
    assert "<bdi>none</bdi>" in text
    assert "<bdi>swa &lt;b&gt;</bdi>" in text
    assert 'name="f-widths" value="candidate" checked' in text


def test_the_table_has_clear_changes_first_and_no_wrappers() -> None:
    base = arm(("main step loss", 500), ("main step", 500))
    candidate = arm(("main step loss", 500), ("main step", 510), ("main step mask", 500), ns=150.0)

    rows = Page(render_flame(flame_tree(base, candidate), id="f")).rows

    assert rows[0] == ["lane", "frame", "file", "base", "candidate", "difference", "95 % interval", ""]
    assert rows[1][:3] == ["drafter", "mask", "pipeline/mask.py"]
    assert rows[1][3:6] == ["0 ns", "49.7 ns", "+49.7 ns"]
    assert rows[1][7] == ""
    assert [row[7] for row in rows[2:] if row[1] in ("main", "drafter")] == []


def test_the_table_of_a_plain_graph_has_the_most_own_time_first() -> None:
    rows = Page(render_flame(flame_tree(arm(("a b", 75), ("a", 25))), id="f")).rows

    assert rows[1:] == [
        ["drafter", "b", "pipeline/b.py", "75 %", "75 %"],
        ["drafter", "a", "pipeline/a.py", "25 %", "100 %"],
    ]


@pytest.mark.parametrize("lanes", [(), flame_tree([], [])])
def test_without_samples_it_says_so(lanes: tuple[()]) -> None:
    text = render_flame(lanes, id="f")

    assert "No stack samples" in text
    assert Page(text).tags == ["figure", "p"]


def test_lanes_of_several_views_are_told_apart() -> None:
    held = ProfiledWindow(
        launch="",
        label="",
        role="drafter",
        view=StackView.GIL,
        num_ranks=1,
        ns_per_token=1.0,
        stacks={(FrameId("g", ""),): 1},
    )

    views = [lane["view"] for lane in lanes_of(render_flame(flame_tree([window(("a", 1)), held]), id="f"))]

    assert views == ["wall time", "holding the GIL"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leaves_its_place(name: str) -> None:
    frames = (FrameId(name, name), FrameId("f", name))
    windows = [
        ProfiledWindow(
            launch=name, label=name, role=name, thread=name, num_ranks=1, ns_per_token=1.0, stacks={frames: 5}
        )
    ]
    harmless = Page(render_flame(flame_tree(arm(("a b", 5)), arm(("a c", 5))), id="f"))

    slower = [replace(one, ns_per_token=2.0) for one in windows]
    lanes = flame_tree(windows, slower, renamed={frames[0]: frames[1]})
    text = render_flame(lanes, id="f", base=name, candidate=name)

    page = Page(text)
    assert set(page.tags) == set(harmless.tags)
    assert page.tags.count("script") == 1
    assert (page.urls, page.handlers) == ([], [])
    assert len(text) < 15_000
    text.encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leaves_its_place_on_the_page_of_a_run(name: str) -> None:
    text = render_flame_page({name: {name: {(name, f"▸ {name}", f"f ({name})"): 1}}}, title=name, subtitle=name)

    page = Page(text)
    assert page.tags.count("script") == 2
    assert (page.urls, page.handlers) == ([], [])
    text.encode()


def test_the_page_of_a_run_needs_nothing_else() -> None:
    text = render_flame_page({"all": {"drafter 0": {("main (a.py)",): 1}}}, title="a run", subtitle="none")

    assert Page(text).urls == []
    assert not re.search(r"https?://|@import|url\(", text)
    assert "--focus" in text
    assert "default-src 'none'" in text


def test_the_page_of_a_run_has_its_views_lanes_and_labels() -> None:
    stacks = {("main (a.py:3)", "▸ mask", "native"): 3}

    text = render_flame_page(
        {"all": {"target 0": stacks, "drafter 0": stacks}, "gil": {"drafter 0": stacks}}, title="", subtitle=""
    )

    frames = json.loads(Page(text).data)["frames"]
    assert [(lane["view"], lane["name"]) for lane in lanes_of(text)] == [
        ("wall time", "drafter 0"),
        ("wall time", "target 0"),
        ("holding the GIL", "drafter 0"),
    ]
    assert frames["name"][1:4] == ["main", "▸ mask", "native"]
    assert frames["place"][1:4] == ["a.py", "", ""]


def test_a_page_without_samples_is_a_page() -> None:
    assert "No stack samples" in render_flame_page({"all": {"drafter 0": {}}}, title="", subtitle="")


def test_a_deep_stack_does_not_meet_a_recursion_limit() -> None:
    deep = tuple(f"frame {index} (a.py)" for index in range(3_000))

    assert "data-widget" in render_flame_page({"all": {"drafter 0": {deep: 1}}}, title="", subtitle="")
