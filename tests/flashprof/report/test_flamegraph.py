"""The flamegraph file: complete, safe, and true to the samples."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.report.flamegraph import Origin, origin_of, render_flamegraph

Stacks = dict[str, dict[tuple[str, ...], int]]


class Page(HTMLParser):
    """Collects what the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.urls: list[str] = []
        self.data = ""
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.urls += [value or "" for name, value in attrs if name in ("src", "href")]
        self._in_data = ("id", "data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_data = self._in_data and tag != "script"

    def handle_data(self, data: str) -> None:
        self.data += data if self._in_data else ""


def draw(stacks: Stacks, title: str = "a run") -> str:
    return render_flamegraph(stacks, title=title, subtitle="")


def tree(stacks: Stacks) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Page(draw(stacks)).data)
    return data


def paths(data: dict[str, Any]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Samples and self samples of each node, by its path below the root."""
    nodes = data["nodes"]
    found: list[tuple[str, ...]] = []
    for label, parent in zip(nodes["label"], nodes["parent"], strict=True):
        found.append((*found[parent], data["labels"][label]) if parent >= 0 else ())
    return dict(zip(found, zip(nodes["samples"], nodes["self"], strict=True), strict=True))


def test_stacks_merge_into_a_tree_below_their_lane() -> None:
    data = tree({"drafter 0": {("a", "b"): 3, ("a", "c"): 5, ("a",): 2}, "target 0": {("a",): 10}})

    assert paths(data) == {
        (): (20, 0),
        ("drafter 0",): (10, 0),
        ("drafter 0", "a"): (10, 2),
        ("drafter 0", "a", "c"): (5, 5),
        ("drafter 0", "a", "b"): (3, 3),
        ("target 0",): (10, 0),
        ("target 0", "a"): (10, 10),
    }


def test_lanes_keep_their_order_and_heavy_frames_come_first() -> None:
    data = tree({"z": {("light",): 1, ("heavy",): 9}, "a": {("x",): 90}})

    assert list(paths(data)) == [(), ("z",), ("z", "heavy"), ("z", "light"), ("a",), ("a", "x")]


def test_small_boxes_are_left_out_and_counted() -> None:
    data = tree({"drafter 0": {("big",): 10_000, ("big", "tiny", "tinier"): 1, ("other",): 2}})

    assert data["num_pruned"] == 3
    assert set(paths(data)) == {(), ("drafter 0",), ("drafter 0", "big")}


def test_a_lane_without_samples_and_no_lanes_at_all_still_make_a_page() -> None:
    assert tree({})["nodes"]["samples"] == [0]
    assert tree({"drafter 0": {}})["nodes"]["samples"] == [0]


def test_the_page_needs_nothing_else() -> None:
    text = draw({"drafter 0": {("main (a.py:1)",): 1}})

    assert Page(text).urls == []
    assert not re.search(r"https?://|@import|url\(", text)


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<lambda>", "&amp;", "<!--", '"\\', "\u2028"])
def test_a_frame_name_cannot_leave_the_data(name: str) -> None:
    text = draw({name: {(name,): 1}}, title=name)

    page = Page(text)
    assert page.tags.count("script") == 2
    assert name in json.loads(page.data)["labels"]


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.dictionaries(
            st.lists(st.text(max_size=8), min_size=1, max_size=4).map(tuple), st.integers(1, 50), max_size=5
        ),
        max_size=3,
    )
)
def test_each_node_holds_its_own_and_its_children_samples(stacks: Stacks) -> None:
    # At most 750 samples: a box of one sample is above the 0.1 % that are left out.
    nodes = tree(stacks)["nodes"]
    below = [0] * len(nodes["parent"])
    for parent, samples in zip(nodes["parent"], nodes["samples"], strict=True):
        if parent >= 0:
            below[parent] += samples

    assert nodes["samples"][0] == sum(sum(samples.values()) for samples in stacks.values())
    assert all(a + b == c for a, b, c in zip(below, nodes["self"], nodes["samples"], strict=True))


def test_a_deep_stack_does_not_meet_a_recursion_limit() -> None:
    deep = tuple(f"frame {index}" for index in range(3_000))

    assert len(tree({"drafter 0": {deep: 1}})["nodes"]["parent"]) == 3_002


@pytest.mark.parametrize(
    ("label", "origin"),
    [
        ("train (pipeline/drafter.py:88)", Origin.OWN),
        ("<module> (train.py:3)", Origin.OWN),
        ("<lambda> (/home/me/work/mask.py:1)", Origin.OWN),
        ("linear (torch/nn/functional.py:2290)", Origin.TORCH),
        ("run (/x/lib/python3.11/site-packages/triton/runtime.py:1)", Origin.TORCH),
        ("forward (transformers/models/qwen3/modeling_qwen3.py:5)", Origin.LIBRARY),
        ("f (/x/lib/python3.11/site-packages/anything/a.py:1)", Origin.LIBRARY),
        ("wait (threading.py:320)", Origin.STDLIB),
        ("recv (multiprocessing/connection.py:250)", Origin.STDLIB),
        ("run (/usr/lib/python3.11/runpy.py:1)", Origin.STDLIB),
        ("_run_module_as_main (<frozen runpy>:198)", Origin.STDLIB),
        ("addmm (libtorch_cpu.so)", Origin.NATIVE),
        ("drafter 0", Origin.NATIVE),
    ],
)
def test_frames_are_told_apart_by_their_file(label: str, origin: Origin) -> None:
    assert origin_of(label) is origin


def test_frames_of_one_file_share_a_shade_in_every_graph() -> None:
    first = tree({"drafter 0": {("f (pipeline/mask.py:1)",): 1}})
    second = tree({"target 0": {("x (a.py:1)", "g (pipeline/mask.py:99)"): 1}})

    assert first["shades"][-1] == second["shades"][second["labels"].index("g (pipeline/mask.py:99)")]
