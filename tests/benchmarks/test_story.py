"""The story from what the parts left: measures, the page, and a part that is missing."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from localisations import one_phase
from story_left import write_parts

from benchmarks.story import main, to_measures
from benchmarks.story_facts import collect
from benchmarks.story_page import NOT_MEASURED, change, make_page


def test_every_part_gives_its_measures(tmp_path: Path) -> None:
    measures = {measure.name: measure for measure in to_measures(collect([write_parts(tmp_path)]))}

    assert {"story_drop", "story_compile_alone", "story_compile_left_out", "story_bisect_proved"} <= measures.keys()
    assert measures["story_bisect_proved"].met
    assert pytest.approx(0.105, abs=0.002) == measures["story_compile_alone"].value
    assert "story_sampling_cost_all" in measures


def test_the_page_tells_every_part_and_says_what_was_not_measured(tmp_path: Path) -> None:
    whole, empty = make_page(collect([write_parts(tmp_path / "a")])), make_page(collect([tmp_path]))

    assert NOT_MEASURED not in whole.partition("## Where")[0]
    assert "| `compile` | +10.5 %" in whole
    assert "`prealloc` is not in the table: needs CUDA." in whole
    assert 2 == len(re.findall(r"\d+ windows, \d+ of which counted", whole))
    assert NOT_MEASURED in empty
    assert "$" not in whole
    assert "None" not in whole


def test_where_the_time_went_is_a_table_of_phases(tmp_path: Path) -> None:
    found: dict[str, Any] = collect([write_parts(tmp_path)])
    found["compare"]["parts"] = [asdict(part) for part in one_phase().parts]
    page = make_page(found)
    (first, *_) = one_phase().parts

    assert f"| `{first.name}` | {first.kind} |" in page


def test_an_interval_without_an_end_is_told_as_one() -> None:
    assert "−8.8 % (no bound yet)" == change({"estimate": -0.088, "low": -1.0, "high": None})
    assert "−8.8 % (95 %: −9.0 to −8.5)" == change({"estimate": -0.088, "low": -0.09, "high": -0.085})


def test_writing_makes_the_results_file_and_the_page(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "a")
    (folder / "story.json").write_text(json.dumps({"hardware": "1x NVIDIA H200"}))
    page = tmp_path / "story.md"
    options = ["write", "--from", str(folder), "--results", str(tmp_path / "r"), "--page", str(page)]
    options += ["--bisect-note", "It was told to stop."]
    done = CliRunner().invoke(main, options)
    (path,) = (tmp_path / "r").iterdir()

    assert 0 == done.exit_code, done.output
    assert path.name.startswith("story_1x-nvidia-h200_")
    text = page.read_text(encoding="utf-8")
    assert "1x NVIDIA H200" in text
    assert "It was told to stop." in text.partition("## What the search says")[2]


def test_nothing_found_is_a_message(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["write", "--from", str(tmp_path), "--results", str(tmp_path / "r")])

    assert 1 == done.exit_code
    assert "no part found anything" in done.output


def test_the_dry_run_prints_commands_and_starts_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["measure", "--tiny", "--out", str(tmp_path / "o"), "--dry-run"])

    assert 0 == done.exit_code
    assert ["compare", "benchmarks.story_cells", "bisect"] == [
        next(word for word in line.split() if word in ("compare", "bisect", "benchmarks.story_cells"))
        for line in done.output.splitlines()
    ]
    assert not (tmp_path / "o").exists()


def test_an_unknown_part_is_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["measure", "--out", str(tmp_path), "--only", "everything"])

    assert 2 == done.exit_code
    assert "no such part: everything" in done.output
