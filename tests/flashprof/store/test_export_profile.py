"""Folded stacks and speedscope profiles hold every sample, and break on no name."""

from __future__ import annotations

import json
from collections import Counter

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.profiles import PHASE_FILE, FrameId, StackView
from flashprof.store.export_profile import LaneProfile, folded_lines, speedscope_document, speedscope_text

TRAIN, MASK, PHASE = FrameId("train", "t.py"), FrameId("build", "m.py"), FrameId("mask", PHASE_FILE)
LANE = LaneProfile(
    role="drafter", rank=1, stacks={(TRAIN,): 2, (TRAIN, PHASE, MASK): 8, (FrameId("c", ""),): 1}, lines={MASK: 30}
)
FRAMES = st.builds(FrameId, st.text(max_size=5), st.sampled_from(["", "a.py", PHASE_FILE]))
STACKS = st.dictionaries(st.lists(FRAMES, max_size=4).map(tuple), st.integers(1, 100), max_size=8)

NUMBER = {"type": "number"}
SAMPLED = {
    "type": "object",
    "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
    "properties": {
        "type": {"const": "sampled"},
        "name": {"type": "string"},
        "unit": {"enum": ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]},
        "startValue": NUMBER,
        "endValue": NUMBER,
        "samples": {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
        "weights": {"type": "array", "items": NUMBER},
    },
}
FRAME = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "file": {"type": "string"}, "line": NUMBER, "col": NUMBER},
}
SCHEMA = {
    "type": "object",
    "required": ["$schema", "profiles", "shared"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": NUMBER,
        "profiles": {"type": "array", "items": SAMPLED},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": FRAME}},
        },
    },
}
"""What speedscope's file-format-spec.ts says of a file of sampled profiles."""


def test_folded_stacks_stand_below_their_lane_and_phase() -> None:
    lanes = [LANE, LaneProfile(role="target", rank=0, thread="feeder", stacks={(TRAIN,): 3})]

    assert [
        "drafter 1;c 1\n",
        "drafter 1;train (t.py) 2\n",
        "drafter 1;train (t.py);phase mask;build (m.py) 8\n",
        "target 0;thread feeder;train (t.py) 3\n",
    ] == list(folded_lines(lanes))


@given(STACKS)
def test_no_name_breaks_a_folded_line(stacks: dict[tuple[FrameId, ...], int]) -> None:
    lines = list(folded_lines([LaneProfile(role="drafter", rank=0, stacks=stacks)]))
    parts = [line.removesuffix("\n").rpartition(" ") for line in lines]

    assert sum(stacks.values()) == sum(int(count) for *_, count in parts)
    assert len(lines) == len({stack for stack, *_ in parts})
    assert all(line.count("\n") == 1 for line in lines)
    assert {len(stack) + 1 for stack in stacks} >= {stack.count(";") + 1 for stack, *_ in parts}


def test_stacks_that_read_alike_are_one_line() -> None:
    stacks = {(FrameId("a;b", ""),): 1, (FrameId("a,b", ""),): 2}

    assert ["drafter 0;a,b 3\n"] == list(folded_lines([LaneProfile(role="drafter", rank=0, stacks=stacks)]))


def test_a_speedscope_document() -> None:
    document = speedscope_document([LANE], name="run", version="1")

    assert {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": "run",
        "exporter": "flashprof 1",
        "activeProfileIndex": 0,
        "shared": {
            "frames": [
                {"name": "c"},
                {"name": "train", "file": "t.py"},
                {"name": "phase mask"},
                {"name": "build", "file": "m.py", "line": 30},
            ]
        },
        "profiles": [
            {
                "type": "sampled",
                "name": "drafter 1",
                "unit": "none",
                "startValue": 0,
                "endValue": 11,
                "samples": [[0], [1], [1, 2, 3]],
                "weights": [1, 2, 8],
            }
        ],
    } == document


def test_the_richest_lane_is_shown_first() -> None:
    poor = LaneProfile(role="dispatcher", rank=0, stacks={(TRAIN,): 900})

    assert 1 == speedscope_document([poor, LANE], name="", version="")["activeProfileIndex"]


def test_lanes_are_named_by_thread_and_view() -> None:
    gil = LaneProfile(role="drafter", rank=0, thread="feeder", view=StackView.GIL, stacks={})

    assert ["drafter 1", "drafter 0/feeder (gil)"] == [LANE.name, gil.name]


@given(st.lists(STACKS, max_size=3))
def test_speedscope_holds_every_sample_and_each_frame_once(stacks: list[dict[tuple[FrameId, ...], int]]) -> None:
    lanes = [LaneProfile(role="drafter", rank=rank, stacks=each) for rank, each in enumerate(stacks)]
    document = speedscope_document(lanes, name="n", version="v")
    num_frames = len(document["shared"]["frames"])

    assert [sum(each.values()) for each in stacks] == [profile["endValue"] for profile in document["profiles"]]
    assert all(len(profile["samples"]) == len(profile["weights"]) for profile in document["profiles"])
    used = {index for profile in document["profiles"] for sample in profile["samples"] for index in sample}
    assert set(range(num_frames)) == used
    for each, profile in zip(stacks, document["profiles"], strict=True):
        assert Counter(map(len, each)) == Counter(map(len, profile["samples"]))


def test_speedscope_reads_it() -> None:
    document = json.loads(speedscope_text([LANE], name="run", version="1"))
    jsonschema.validate(document, SCHEMA)

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "profiles": [{"type": "sampled"}]}, SCHEMA)
