"""`flashprof report` says what it read, what it left out and why, and where the page is."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result
from report_folders import write_compare, write_run

from flashprof.cli.report import command
from flashprof.contracts.errors import UsageError


def report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_it_says_what_was_read_and_where_the_page_is(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    write_compare(tmp_path / "compare-1", num_launches=1)
    result = report(tmp_path)
    lines = result.output.splitlines()

    assert 0 == result.return_value
    assert "read      1 run, 1 launch, 1 comparison" == lines[0]
    assert lines[-2].startswith(f"page      {tmp_path / 'report.html'}  (")
    assert f"markdown  {tmp_path / 'report.md'}" == lines[-1]


def test_broken_folders_are_named_and_do_no_harm(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (write_run(tmp_path / "half") / "summary.json").unlink()
    (tmp_path / ".x.part").mkdir()
    result = report(tmp_path)

    assert 0 == result.return_value
    assert "left out  1, or a part of it\n  half: it has no summary.json; try: " in result.output
    assert "note      left out, under way or cut off: .x.part\n" in result.output


def test_json_holds_the_same(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    document = json.loads(report(tmp_path, "--json", "--out", tmp_path / "out").output)

    assert (1, 0) == (document["num_runs"], document["num_comparisons"])
    assert ["other"] == [item["folder"] for item in document["broken"]]
    assert (tmp_path / "out" / "report.html").stat().st_size == document["page_bytes"]


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    error = report(tmp_path / "absent").exception

    assert isinstance(error, UsageError)
    assert 2 == error.exit_code
    assert "flashprof run" in str(error)
