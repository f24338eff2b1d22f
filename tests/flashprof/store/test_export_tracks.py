"""Spans of a lane are laid on rows on which they nest, and times are exact."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from flashprof.store.export_tracks import MAX_TRACKS, Process, us

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))))


def process() -> Process:
    return Process(pid=3, name="drafter 0", zero_ns=0)


def crosses(one: tuple[int, int], other: tuple[int, int]) -> bool:
    (first, first_end), (second, second_end) = sorted([one, other], key=lambda pair: (pair[0], -pair[1]))
    return second < first_end < second_end and first < second


@given(INTERVALS)
def test_no_two_of_a_row_cross(spans: list[tuple[int, int]]) -> None:
    lane = process()
    rows: dict[int, list[tuple[int, int]]] = {}
    for start, end in spans:
        tid, _ = lane.row("main", start, end)
        rows.setdefault(tid, []).append((start, end))

    assert sorted(spans) == sorted(span for row in rows.values() for span in row)
    if len(rows) < MAX_TRACKS:
        assert [] == [
            (row[i], row[j])
            for row in rows.values()
            for i in range(len(row))
            for j in range(i)
            if crosses(row[i], row[j])
        ]


@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=4), max_leaves=30))
def test_nested_spans_take_one_row(tree: list[object]) -> None:
    lane = process()
    closing: list[tuple[int, int]] = []

    def walk(node: list[object], at: int) -> int:
        start, now = at, at + 1
        for child in node:
            now = walk(child, now)  # type: ignore[arg-type]
        closing.append((start, now + 1))
        return now + 1

    walk(tree, 0)

    assert {3001} == {lane.row("main", start, end)[0] for start, end in closing}


def test_a_row_is_introduced_once_and_lanes_have_their_own() -> None:
    lane = process()

    first = lane.row("main", 0, 10)
    again = lane.row("main", 10, 20)
    crossing = lane.row("main", 15, 25)
    device = lane.row("main:cuda0", 0, 10)

    assert (3001, 3001, 3002, 3003) == (first[0], again[0], crossing[0], device[0])
    assert "" == again[1]
    named = [
        json.loads(line.rstrip(","))["args"] for _, lines in (first, crossing, device) for line in lines.split("\n")
    ]
    assert ["main", "main (2)", "main:cuda0"] == [args["name"] for args in named if "name" in args]


@given(st.integers(-(2**62), 2**62))
def test_microseconds_are_exact(length_ns: int) -> None:
    whole, _, rest = us(length_ns).partition(".")

    assert 3 == len(rest)
    assert length_ns == int(whole + rest)
