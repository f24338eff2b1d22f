"""The story's parts: their share of the time, what happens to one that fails or hangs, and what is packed."""

from __future__ import annotations

import json
import sys
import tarfile
from importlib import import_module
from pathlib import Path

import click
import pytest

from benchmarks.story_parts import (
    DEFAULT_PARTS,
    WEIGHTS,
    Workload,
    pack_reports,
    part_command,
    read_part,
    run_part,
    share_time,
)

WORKLOAD = Workload(
    preset="tiny",
    topology="1+1",
    train="--device cpu",
    settings=("windows.measure_s=2",),
    good="all",
    bad="none,warmup",
)


def test_the_time_is_shared_without_a_rest() -> None:
    shares = share_time(DEFAULT_PARTS, 540)

    assert pytest.approx(540) == sum(shares.values())
    assert shares["cells"] > shares["bisect"] > shares["compare"]


@pytest.mark.parametrize("name", ["compare", "bisect", "run_all", "run_none"])
def test_flashprof_takes_the_command_of_every_part(name: str, tmp_path: Path) -> None:
    words = part_command(name, WORKLOAD, 100, tmp_path)
    command: click.Command = import_module(f"flashprof.cli.{words[3]}").command
    context = command.make_context(words[3], words[4:])

    assert "tiny" == context.params["preset"]
    assert "--device cpu" == context.params["train_options"]
    # The last one wins: the user's.
    assert "windows.measure_s=2" == context.params["settings"][-1]


def test_our_own_module_takes_the_command_of_the_cells(tmp_path: Path) -> None:
    from benchmarks.story_cells import main

    context = main.make_context("cells", part_command("cells", WORKLOAD, 100, tmp_path)[3:])

    assert 100 == context.params["seconds"]
    assert set(WEIGHTS) >= set(DEFAULT_PARTS)


def test_a_part_that_fails_says_why(tmp_path: Path) -> None:
    status = run_part("compare", [sys.executable, "-c", "import sys; sys.exit('out of memory')"], 30, tmp_path)

    assert (1, "out of memory") == (status.status, status.why)


def test_a_verdict_is_no_failure(tmp_path: Path) -> None:
    status = run_part("compare", [sys.executable, "-c", "print('{}'); raise SystemExit(1)"], 30, tmp_path)

    assert (1, "") == (status.status, status.why)


def test_a_part_at_its_limit_is_interrupted_and_its_answer_kept(tmp_path: Path) -> None:
    code = (
        "import signal\ntry:\n signal.pause()\nexcept KeyboardInterrupt:\n print('{\"a\": 1}')\n raise SystemExit(130)"
    )
    (tmp_path / "parts").mkdir()
    status = run_part("bisect", [sys.executable, "-c", code], 1.0, tmp_path / "parts")

    assert (130, "") == (status.status, status.why)
    assert {"a": 1} == read_part("bisect", tmp_path)


def test_a_part_that_printed_nothing_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "compare.json").write_text("")
    folder = tmp_path / "reports" / "compare-1"
    folder.mkdir(parents=True)
    (folder / "comparison.json").write_text(json.dumps({"study": "compare-1"}))

    assert {"study": "compare-1"} == read_part("compare", tmp_path)
    assert read_part("bisect", tmp_path) is None


def test_reports_are_packed_without_the_emitter(tmp_path: Path) -> None:
    for name in ("reports/run/summary.json", "reports/run/emitter/flashprof/emit.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    path = pack_reports(tmp_path)

    assert path is not None
    with tarfile.open(path) as archive:
        files = [member.name for member in archive if member.isfile()]
    assert ["reports/run/summary.json"] == files
