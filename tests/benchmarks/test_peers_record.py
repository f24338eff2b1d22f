"""The parts of a measuring process: a failed one is told, and a killed process leaves what it had."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.record import Record, read_parts


def _fail() -> Mapping[str, Any]:
    raise MemoryError("40 GiB more")


def test_parts_are_read_back_by_name(tmp_path: Path) -> None:
    record = Record(tmp_path / "parts")

    assert record.part("fixed", lambda: {"step_ms": 1.5})
    assert 1.5 == read_parts(tmp_path / "parts")["fixed"]["step_ms"]


def test_a_part_that_fails_is_a_result_and_the_next_one_goes_on(tmp_path: Path) -> None:
    record = Record(tmp_path / "parts")
    succeeded = [record.part("both", _fail), record.part("varying", lambda: {"step_ms": 2.0})]
    parts = read_parts(tmp_path / "parts")

    assert [False, True] == succeeded
    assert "MemoryError: 40 GiB more" == parts["both"]["error"]
    assert 2.0 == parts["varying"]["step_ms"]


def test_half_a_line_of_a_killed_process_costs_only_its_own_part(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    Record(path).part("fixed", lambda: {"step_ms": 1.5})
    with path.open("a", encoding="utf-8") as file:
        file.write('{"part": "vary')

    assert ["fixed"] == list(read_parts(path))


def test_a_process_that_never_wrote_has_no_parts(tmp_path: Path) -> None:
    assert {} == read_parts(tmp_path / "none")
