"""What the parts found: of folders, of an earlier results file, and of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from story_left import write_parts

from benchmarks.results_file import write_results
from benchmarks.story import to_measures
from benchmarks.story_facts import collect
from benchmarks.story_page import make_page

MACHINE = {"hardware": "1x NVIDIA H200", "measured_with": {"commit": "0123abc", "torch": "2.11.0"}}
HERE = "1x NVIDIA H200, commit 0123abc, torch 2.11.0"


def left(folder: Path, *parts: str) -> Path:
    """Of a call on a GPU that measured only these."""
    write_parts(folder)
    for path in [*(folder / "parts").iterdir(), folder / "cells.json"]:
        if path.stem not in parts:
            path.unlink()
    (folder / "story.json").write_text(json.dumps(MACHINE))
    return folder


def written(folder: Path, **more: Any) -> Path:
    """A results file of an earlier call that measured everything."""
    found = collect([write_parts(folder / "earlier")]) | more
    return write_results("story", to_measures(found), found, folder=folder, measured_on="1x NVIDIA H200")


def test_parts_of_several_calls_are_put_together(tmp_path: Path) -> None:
    first, second = left(tmp_path / "a", "compare", "cells"), left(tmp_path / "b", "bisect")

    assert collect([first])["bisect"] is None
    assert collect([first, second])["bisect"]["verdict"] == "regression"
    assert collect([first, second])["compare"]


def test_every_part_says_where_it_was_measured(tmp_path: Path) -> None:
    found = collect([left(tmp_path, "compare", "run_all")])

    assert {"compare": HERE, "run_all": HERE} == found["sources"]
    assert MACHINE.items() <= found.items()


def test_a_results_file_is_a_source_and_a_later_folder_replaces_its_parts(tmp_path: Path) -> None:
    path = written(tmp_path, bisect_note="It had a fault.")
    again, mended = collect([path]), collect([path, left(tmp_path / "later", "bisect")])

    assert "It had a fault." == again["bisect_note"]
    assert "" == mended["bisect_note"]
    assert again["cells"] == mended["cells"]
    assert (path.name, HERE) == (
        again["sources"]["bisect"].partition(",")[0] and path.name,
        mended["sources"]["bisect"],
    )


def test_the_page_says_which_parts_are_of_which_call(tmp_path: Path) -> None:
    path = written(tmp_path, sources={})
    page = make_page(collect([path, left(tmp_path / "later", "bisect")]))

    assert f"`compare`, `cells`, `run_all`: {path.name}; `bisect`: {HERE}." in page
    assert "different calls" not in make_page(collect([path]))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "gate"}'])
def test_another_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gate.json"
    path.write_text(text)

    with pytest.raises(click.BadParameter, match=r"gate\.json is no results file of the story; allowed"):
        collect([path])
