"""What the script of a flamegraph reads: true to the tree, small, and harmless whatever a frame is called."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.profiles import PHASE_FILE, FrameId, ProfiledWindow
from flashprof.report.flame_data import Origin, embed, flame_data, origin_of, shown
from flashprof.stats.flame_tree import flame_tree

A, B, C = FrameId("a", "pipeline/a.py"), FrameId("b", "pipeline/b.py"), FrameId("c", "torch/c.py")
MASK = FrameId("mask", PHASE_FILE)


def window(stacks: Mapping[tuple[FrameId, ...], int], *, ns: float = 100.0, label: str = "p1") -> ProfiledWindow:
    return ProfiledWindow(
        launch="run", label=label, role="drafter", num_ranks=1, ns_per_token=ns, stacks=stacks, lines={A: 7}
    )


def both(*, focus: str = "") -> dict[str, Any]:
    """A steady window and one in which `c` is new and `b` has gone."""
    base = [window({(A, MASK, B): 900, (A,): 100}, label=label) for label in ("p1", "p2")]
    candidate = [window({(A, MASK, C): 900, (A,): 100}, label=label, ns=200.0) for label in ("p1", "p2")]
    return flame_data({"wall time": flame_tree(base, candidate)}, names=("A", "B"), focus=focus)


def test_the_data_of_a_differential_graph() -> None:
    data = both()

    (lane,) = data.pop("lanes")
    del lane["half"]
    assert data == {
        "names": ["A", "B"],
        "is_diff": True,
        "opened": 0,
        "frames": {
            "name": ["drafter", "a", "▸ mask", "c", "b"],
            "place": ["", "pipeline/a.py:7", "", "torch/c.py", "pipeline/b.py"],
            "origin": ["native", "own", "phase", "torch", "own"],
            "shade": data["frames"]["shade"],
        },
    }
    assert lane == {
        "view": "wall time",
        "name": "drafter",
        "is_time": True,
        "facts": "drafter: A 100 ns a token → B 200 ns a token: +100 ns (95 %: +85.6 ns to +114 ns); "
        "2 windows with 2,000 samples and 2 windows with 2,000 samples.",
        "notes": {
            "base": "1 box only in B: choose its widths to see them.",
            "candidate": "1 box only in A: choose its widths to see them.",
        },
        "frame": [0, 1, 2, 3, 4],
        "parent": [-1, 0, 1, 2, 2],
        "base": [100.0, 100.0, 90.0, 0.0, 90.0],
        "own": [0.0, 10.0, 0.0, 0.0, 90.0],
        "samples": [2000, 2000, 1800, 0, 1800],
        "candidate": [200.0, 200.0, 180.0, 180.0, 0.0],
        "candidate_own": [0.0, 20.0, 0.0, 180.0, 0.0],
        "candidate_samples": [2000, 2000, 1800, 1800, 0],
        "step": [5, 5, 5, 6, -5],
        "was": {},
        "has_interval": True,
    }


def test_a_plain_graph_tells_whose_code_the_innermost_frames_are() -> None:
    data = flame_data({"wall time": flame_tree([window({(A, C): 3, (A,): 1})])})

    assert data["lanes"][0]["origins"] == [("own", "own code", "25 %"), ("torch", "torch", "75 %")]
    assert "candidate" not in data["lanes"][0]


@pytest.mark.parametrize(("focus", "opened"), [("", 0), ("target", 1), ("nobody", 0)])
def test_the_lane_in_focus_is_shown_first(focus: str, opened: int) -> None:
    lanes = flame_tree(
        [
            window({(A,): 1}),
            ProfiledWindow(launch="run", label="p1", role="target", num_ranks=1, ns_per_token=1.0, stacks={(B,): 1}),
        ]
    )

    assert flame_data({"wall time": lanes}, focus=focus)["opened"] == opened


def test_small_boxes_are_left_out_and_counted_but_not_what_was_large_in_the_other_arm() -> None:
    base = [window({(A,): 10_000, (A, C, B): 1, (B,): 2, (C,): 3_000})]

    (lane,) = flame_data({"": flame_tree(base, [window({(A,): 10_000})])}, names=("A", "B"))["lanes"]

    assert lane["base"] == [100.0, 76.913, 23.072]
    assert lane["notes"]["base"] == "3 boxes below 0.1 % of the lane left out."


def test_renamed_frames_say_what_they_were() -> None:
    lanes = flame_tree([window({(B,): 1})], [window({(C,): 1})], renamed={B: C})

    assert flame_data({"": lanes}, names=("A", "B"))["lanes"][0]["was"] == {1: "b"}


def test_frames_of_one_file_share_a_shade() -> None:
    frames = flame_data({"": flame_tree([window({(A, FrameId("other", A.file)): 1})])})["frames"]

    assert frames["shade"][1] == frames["shade"][2]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x00b\x1b[31m", "a\\x00b\\x1b[31m"),
        ("evil\u202egnp.py", "evil\\u202egnp.py"),
        ("\udc80", "\\udc80"),
        ("a\u2028b\nc", "a\\u2028b\\nc"),
        ("<lambda> π ü", "<lambda> π ü"),
        ("x" * 10_000, "x" * 259 + "…" + "x" * 40),
    ],
)
def test_what_does_not_print_is_escaped_and_what_is_long_is_cut(text: str, seen: str) -> None:
    assert shown(text) == seen


@given(st.text(max_size=400))
def test_every_name_can_be_printed(text: str) -> None:
    assert shown(text).isprintable()


@pytest.mark.parametrize("num_frames", [1, 400])
def test_embedded_data_come_back_and_cannot_end_their_element(num_frames: int) -> None:
    data = {"names": ["</script><!--"] * num_frames, "more": list(range(num_frames))}

    text, encoding = embed(data)

    assert not {"<", ">"} & set(text)
    assert encoding == ("json" if num_frames == 1 else "zlib")
    assert json.loads(text if encoding == "json" else zlib.decompress(base64.b64decode(text))) == data


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("pipeline/drafter.py", Origin.OWN),
        ("train.py", Origin.OWN),
        ("/home/me/work/mask.py", Origin.OWN),
        ("torch/nn/functional.py", Origin.TORCH),
        ("/x/lib/python3.11/site-packages/triton/runtime.py", Origin.TORCH),
        ("transformers/models/qwen3/modeling_qwen3.py", Origin.LIBRARY),
        ("/x/lib/python3.11/site-packages/anything/a.py", Origin.LIBRARY),
        ("threading.py", Origin.STDLIB),
        ("multiprocessing/connection.py", Origin.STDLIB),
        ("/usr/lib/python3.11/runpy.py", Origin.STDLIB),
        ("<frozen runpy>", Origin.STDLIB),
        ("libtorch_cpu.so", Origin.NATIVE),
        ("", Origin.NATIVE),
        (PHASE_FILE, Origin.PHASE),
    ],
)
def test_frames_are_told_apart_by_their_file(file: str, origin: Origin) -> None:
    assert origin_of(FrameId("f", file)) is origin
