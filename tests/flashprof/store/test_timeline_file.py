"""A timeline comes back as it was written; whatever else a folder holds is refused in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.contracts.site import Series, Timeline, TimelineLane
from flashprof.store.timeline_file import FILE, MAX_BYTES, MAX_ITEMS, read_timeline, timeline_to_json

TIMELINE = Timeline(
    start_s=12.5,
    length_s=0.02,
    lanes=(
        TimelineLane(
            name="drafter 0",
            phases=("mask", "wait_hidden"),
            kinds=("work", "wait"),
            pieces=((0, 5, 0), (5, 9, 1), (11, 20, 0)),
        ),
    ),
    series=(Series(name="queue of drafter 0", at_s=(0.0, 1.5), values=(2.0, -3.0)),),
)


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(timeline_to_json(TIMELINE)), **changes}


def lane(**changes: Any) -> list[dict[str, Any]]:
    return [{**document()["lanes"][0], **changes}]


def series(**changes: Any) -> list[dict[str, Any]]:
    return [{**document()["series"][0], **changes}]


def write(folder: Path, content: Any) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / FILE).write_text(text, encoding="utf-8")
    return folder


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    assert TIMELINE == read_timeline(write(tmp_path, timeline_to_json(TIMELINE)))


def test_a_folder_without_one_has_none(tmp_path: Path) -> None:
    assert read_timeline(tmp_path) is None


@given(st.integers(0, len(timeline_to_json(TIMELINE)) - 2))
def test_cut_anywhere_it_is_refused(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    folder = write(tmp_path_factory.mktemp("run"), timeline_to_json(TIMELINE)[:length])
    with pytest.raises(FormatError, match="no timeline"):
        read_timeline(folder)


@pytest.mark.parametrize(
    "content", ["[]", "null", "{}", "\xff", "[" * 100_000, '{"format": "flashprof-run", "version": 1}']
)
def test_what_is_no_timeline_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_timeline(write(tmp_path, content))

    assert str(tmp_path / FILE) == caught.value.where


def test_a_version_of_the_future_is_refused_with_both_versions(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="version 2 is not known") as caught:
        read_timeline(write(tmp_path, document(version=2)))

    assert "flashprof-timeline version 1" == caught.value.allowed


@pytest.mark.parametrize(
    "changes",
    [
        {"start_s": None},
        {"start_s": True},
        {"start_s": float("nan")},
        {"length_s": float("inf")},
        {"length_s": 10**400},
        {"lanes": {}},
        {"lanes": [[]]},
        {"lanes": "abc"},
        {"lanes": lane(name=7)},
        {"lanes": lane(phases=["mask"])},
        {"lanes": lane(kinds=["work", "play"])},
        {"lanes": lane(pieces=[[0, 5, 2]])},
        {"lanes": lane(pieces=[[0, 5, -1]])},
        {"lanes": lane(pieces=[[5, 0, 0]])},
        {"lanes": lane(pieces=[[-5, 0, 0]])},
        {"lanes": lane(pieces=[[0, 5, 0], [4, 6, 0]])},
        {"lanes": lane(pieces=[[0, 10**20, 0]])},
        {"lanes": lane(pieces=[[0, 5.5, 0]])},
        {"lanes": lane(pieces=[[0, 5]])},
        {"lanes": lane(pieces=[[0, 0, 0]] * (MAX_ITEMS + 1))},
        {"series": series(values=[1])},
        {"series": series(values=["1", 2])},
        {"series": series(values=[1e301, 2])},
        {"series": series(at_s=[0, 1e12])},
        {"series": None},
    ],
)
def test_hostile_values_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="damaged"):
        read_timeline(write(tmp_path, document(**changes)))


def test_names_are_cut(tmp_path: Path) -> None:
    timeline = read_timeline(write(tmp_path, document(lanes=lane(name="x" * 10**6))))

    assert timeline is not None
    assert 300 == len(timeline.lanes[0].name)


def test_a_link_a_pipe_and_a_file_without_end_are_not_read(tmp_path: Path) -> None:
    real = write(tmp_path, timeline_to_json(TIMELINE))
    link, pipe, large = (tmp_path / name for name in ("link", "pipe", "large"))
    for folder in (link, pipe, large):
        folder.mkdir()
    (link / FILE).symlink_to(real / FILE)
    os.mkfifo(pipe / FILE)
    (large / FILE).touch()
    os.truncate(large / FILE, MAX_BYTES + 1)

    for folder in (link, pipe, large):
        with pytest.raises(FormatError, match="no plain file"):
            read_timeline(folder)
