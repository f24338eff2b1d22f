"""`flashprof export` as a shell sees it: where output goes, what is said, and statuses."""

from __future__ import annotations

import json
from pathlib import Path

import export_runs
import pytest
from click.testing import CliRunner, Result

from flashprof.cli.export import command
from flashprof.contracts.errors import UsageError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return export_runs.write_run(tmp_path / "monday")


def call(*args: object) -> Result:
    return CliRunner().invoke(command, list(map(str, args)), standalone_mode=False)


def test_what_was_written_is_said(run: Path, tmp_path: Path) -> None:
    done = call("trace", run, "-o", tmp_path / "t.json")

    assert 0 == done.return_value
    assert ["wrote", str(tmp_path / "t.json")] == done.stdout.split()[:2]
    assert "holds  24 spans, 3 flows" in done.stdout


def test_files_are_named_like_the_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("trace", "folded", "speedscope"):
        assert 0 == call(kind, "monday").return_value

    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert {"monday.trace.json.gz", "monday.folded", "monday.speedscope.json"} == names


def test_standard_output_holds_nothing_else(run: Path) -> None:
    (run / "summary.json").unlink()
    trace = call("trace", run, "-o", "-")
    folded = call("folded", run, "--out", "-", "--role", "drafter", "--view", "gil")

    assert (0, 0) == (trace.return_value, folded.return_value)
    assert json.loads(trace.stdout)["traceEvents"]
    assert "note   it has no summary.json" in trace.stderr
    assert "drafter 0;train (pipeline/train.py) 3\n" == folded.stdout


def test_tables_take_several_runs_and_a_folder(run: Path, tmp_path: Path) -> None:
    other = export_runs.write_run(tmp_path / "tuesday")
    done = call("csv", run, other, tmp_path / "out")

    assert 0 == done.return_value
    assert 7 == len(done.stdout.splitlines())
    assert "run_id" in (tmp_path / "out" / "windows.csv").read_text()


@pytest.mark.parametrize("kind", ["trace", "folded", "speedscope"])
def test_a_file_is_replaced_only_by_force(run: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "t").write_text("old")
    refused = call(kind, run, "-o", tmp_path / "t")

    assert isinstance(refused.exception, UsageError)
    assert "--force" in str(refused.exception)
    assert "old" == (tmp_path / "t").read_text()
    assert 0 == call(kind, run, "-o", tmp_path / "t", "--force").return_value


@pytest.mark.parametrize(
    "args",
    [(), ("trace",), ("csv", "only-one"), ("folded", "run", "--view", "cpu"), ("pdf", "run"), ("trace", "a", "b")],
)
def test_a_wrong_command_line_is_clicks_to_refuse(args: tuple[str, ...]) -> None:
    assert 2 == CliRunner().invoke(command, list(args)).exit_code
