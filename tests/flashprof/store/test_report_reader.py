"""A folder of reports is read into what it holds: runs, comparisons, bisects, and a line for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_summaries
import study_results
from report_folders import FACTS, edit, write_bisect, write_compare, write_run

from flashprof.contracts.errors import UsageError
from flashprof.store.report_reader import read_reports


def test_runs_come_newest_first_with_facts_and_time(tmp_path: Path) -> None:
    write_run(tmp_path / "a", hours=0)
    write_run(tmp_path / "b", hours=2)
    found = read_reports(tmp_path)
    older = found.runs[1]

    assert ["b", "a"] == [run.view.summary.run_id for run in found.runs]
    assert run_summaries.healthy().windows == older.view.summary.windows
    assert FACTS == older.view.facts
    assert "2026-11-01T12:00:00+00:00" == older.view.started
    assert ("a/", "", tmp_path / "a") == (older.view.folder, older.view.is_part_of, older.path)


def test_a_comparison_brings_its_launches(tmp_path: Path) -> None:
    write_compare(tmp_path / "compare-1", num_launches=2)
    found = read_reports(tmp_path, link="../")
    (view,) = found.compares

    assert study_results.regression().comparisons == view.result.comparisons
    assert ("compare-1", "../compare-1/") == (view.result.study, view.folder)
    assert {("compare-1", "../compare-1/launches/cold-1/"), ("compare-1", "../compare-1/launches/cold-2/")} == {
        (run.view.is_part_of, run.view.folder) for run in found.runs
    }
    assert "2026-11-01T12:00:00+00:00" == view.started


def test_a_bisect_brings_its_launches(tmp_path: Path) -> None:
    write_bisect(tmp_path / "bisect-1")
    found = read_reports(tmp_path)

    assert ["bisect-1"] == [view.result.search for view in found.bisects]
    assert ["bisect-1"] == [run.view.is_part_of for run in found.runs]


def test_what_is_under_way_put_aside_or_has_its_own_page_is_noted(tmp_path: Path) -> None:
    write_run(tmp_path / ".x.part")
    write_compare(tmp_path / "compare-1.old-1")
    (tmp_path / "calibration-1").mkdir()
    (tmp_path / "calibration-1" / "calibration.json").write_text("{}", encoding="utf-8")
    (tmp_path / "report.html").write_text("", encoding="utf-8")
    found = read_reports(tmp_path)

    assert ((), (), ()) == (found.runs, found.compares, found.broken)
    assert (
        "left out, calibrations with a page of their own: calibration-1",
        "left out, put aside by --fresh: compare-1.old-1",
        "left out, under way or cut off: .x.part",
    ) == found.notes


def test_a_comparison_without_a_result_says_how_to_go_on_and_keeps_its_launches(tmp_path: Path) -> None:
    (write_compare(tmp_path / "compare-1") / "comparison.json").rename(tmp_path / "compare-1" / "study.json")
    found = read_reports(tmp_path)

    assert 2 == len(found.runs)
    assert ["it has no comparison.json; try: the same `flashprof compare` again goes on where it stopped"] == [
        item.line for item in found.broken
    ]


def test_of_many_broken_launches_a_few_are_named(tmp_path: Path) -> None:
    path = write_compare(tmp_path / "compare-1", num_launches=9)
    for number in range(2, 10):
        edit(path / "launches" / f"cold-{number}" / "manifest.json", version=7)
    found = read_reports(tmp_path)

    assert (1, 1, 6) == (len(found.compares), len(found.runs), len(found.broken))
    assert "3 more launches cannot be read" == found.broken[-1].line


def test_a_copied_run_is_called_by_its_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "run").rename(tmp_path / "copy")

    assert ["copy"] == [run.view.summary.run_id for run in read_reports(tmp_path).runs]


def test_a_run_whose_events_are_gone_has_no_time(tmp_path: Path) -> None:
    (write_run(tmp_path / "run") / "events" / "drafter-0.jsonl").write_text('{"wall_ns": "soon"}\n', encoding="utf-8")

    assert [""] == [run.view.started for run in read_reports(tmp_path).runs]


@pytest.mark.parametrize("name", ["absent", "file"])
def test_what_is_no_folder_is_a_usage_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(UsageError) as caught:
        read_reports(tmp_path / name)

    assert 2 == caught.value.exit_code
