"""The events of a run, whatever else lies beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import export_runs
import launch_files
import pytest

from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.events import Gauge
from flashprof.store.export_events import find_event_files, read_gauges


def test_files_come_as_data_flow(tmp_path: Path) -> None:
    for role in ("watcher", "drafter", "target", "dispatcher"):
        export_runs.write_events(tmp_path, f"{role}-0.jsonl", export_runs.header(role), [])

    roles = [log.header.role for log in find_event_files(tmp_path / "events").logs]

    assert ["dispatcher", "target", "drafter", "watcher"] == roles


def test_links_and_pipes_are_left_out(tmp_path: Path) -> None:
    real = export_runs.write_events(tmp_path, "drafter-0.jsonl", export_runs.header("drafter"), [])
    (real.parent / "link.jsonl").symlink_to(real)
    os.mkfifo(real.parent / "pipe.jsonl")

    assert [real] == list(find_event_files(real.parent).paths)


def test_one_of_another_version_is_left_out_and_told(tmp_path: Path) -> None:
    real = export_runs.write_events(tmp_path, "drafter-0.jsonl", export_runs.header("drafter"), [])
    (real.parent / "new.jsonl").write_text(json.dumps({"format": "flashprof-events", "version": 9}) + "\n")

    files = find_event_files(real.parent)

    assert [real] == list(files.paths)
    assert "new.jsonl is left out: events format flashprof-events version 9 is not known" == files.refused[0]


def test_none_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "new.jsonl").write_text(json.dumps({"format": "flashprof-events", "version": 9}) + "\n")

    with pytest.raises(FormatError, match="version 9"):
        find_event_files(tmp_path)
    with pytest.raises(UsageError, match="no events"):
        find_event_files(tmp_path / "absent")


def test_the_launch_is_the_first_reading_and_other_hosts_clocks_are_joined(tmp_path: Path) -> None:
    head = export_runs.header
    export_runs.write_events(tmp_path, "a.jsonl", head("target", monotonic_ns=500, wall_ns=10_500), [])
    export_runs.write_events(tmp_path, "b.jsonl", head("drafter", monotonic_ns=600, wall_ns=10_601), [])
    export_runs.write_events(tmp_path, "c.jsonl", head("drafter", 1, host="b", monotonic_ns=7, wall_ns=10_507), [])
    files = find_event_files(tmp_path / "events")

    assert [500, 500, 0] == files.zeros_ns()
    assert [0, 0, -500] == files.zeros_ns([launch_files.reading(0.0, busy_cpu_s=0.0)])


def test_gauges_come_as_they_were_written_without_what_is_no_number(tmp_path: Path) -> None:
    records = [Gauge("loss", 0, 1_000_000_000, 2.5), Gauge("loss", 1, 2_000_000_000, float("nan"))]
    path = export_runs.write_events(tmp_path, "drafter-0.jsonl", export_runs.header("drafter", 3), records)
    with path.open("a") as file:
        file.write('["gauge","loss",1,3,"high"]\n["gauge"\n["gauge","queue",2,1500000000,4.0]\n')

    rows = list(read_gauges(find_event_files(path.parent)))

    expected = [("loss", 0, 1.0, 2.5), ("queue", 2, 1.5, 4.0)]
    assert [
        {"role": "drafter", "rank": 3, "name": n, "step": s, "at_s": a, "value": v} for n, s, a, v in expected
    ] == rows
