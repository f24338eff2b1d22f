"""A run folder becomes files of other tools; a folder that is none, or is broken, becomes one clear error."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import export_runs
import pandas as pd
import pytest

from flashprof.app.export import StackFormat, export_stacks, export_tables, export_trace
from flashprof.contracts.errors import FormatError, UnknownNameError, UsageError
from flashprof.contracts.profiles import StackView
from flashprof.store.export_tables import TABLES, TableFormat

STEP = "drafter 0;train (pipeline/train.py);step (pipeline/train.py)"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return export_runs.write_run(tmp_path / "reports" / "monday")


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_trace_holds_windows_machine_and_cell(run: Path, tmp_path: Path) -> None:
    done = export_trace(run, tmp_path / "t.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    names = [event["name"] for event in document["traceEvents"]]

    assert ("24 spans, 3 flows", ()) == (done.contents, done.notes)
    assert {"measure-1", "cores: subject", "recompile mask", "hidden states"} <= set(names)
    assert ("monday", {"toggles": "swa"}, "completed") == tuple(
        document["otherData"][name] for name in ("run_id", "cell", "outcome")
    )


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (
            StackView.ALL,
            f"{STEP} 2\n{STEP};phase mask;mask (pipeline/mask.py) 8\n",
        ),
        (StackView.GIL, "drafter 0;train (pipeline/train.py) 3\n"),
    ],
)
def test_stacks_of_a_view_stand_under_their_phase(run: Path, tmp_path: Path, view: StackView, expected: str) -> None:
    export_stacks(run, tmp_path / "f", kind=StackFormat.FOLDED, view=view)

    assert expected == (tmp_path / "f").read_text()


def test_windows_of_a_lane_are_pooled(run: Path, tmp_path: Path) -> None:
    second = run / "samples" / "profile-2"
    second.mkdir()
    (second / "drafter-0.folded").write_text(export_runs.STACKS[1] + "\n")
    done = export_stacks(run, tmp_path / "s.json", kind=StackFormat.SPEEDSCOPE)
    document = json.loads((tmp_path / "s.json").read_text())

    assert "12 samples of 1 lanes" == done.contents
    assert [("drafter 0", [4, 8])] == [(profile["name"], profile["weights"]) for profile in document["profiles"]]
    assert {"name": "step", "file": "pipeline/train.py", "line": 20} in document["shared"]["frames"]


def test_a_role_or_view_that_is_not_there_is_told_with_what_is(run: Path, tmp_path: Path) -> None:
    (run / "samples" / "profile-1" / "drafter-0.gil.folded").unlink()

    with pytest.raises(UnknownNameError, match="did you mean 'drafter'"):
        export_stacks(run, tmp_path / "f", kind=StackFormat.FOLDED, role="drafer")
    with pytest.raises(UsageError, match="allowed: all"):
        export_stacks(run, tmp_path / "f", kind=StackFormat.FOLDED, view=StackView.GIL)
    assert not (tmp_path / "f").exists()


def test_a_run_without_samples_says_so(run: Path, tmp_path: Path) -> None:
    for path in (run / "samples" / "profile-1").iterdir():
        path.unlink()

    with pytest.raises(UsageError, match="no stack samples"):
        export_stacks(run, tmp_path / "f", kind=StackFormat.FOLDED)


@pytest.mark.parametrize("kind", TableFormat)
def test_tables_of_two_runs(run: Path, tmp_path: Path, kind: TableFormat) -> None:
    other = export_runs.write_run(tmp_path / "reports" / "tuesday")
    done = export_tables([run, other], tmp_path / "out", kind=kind)
    read = pd.read_csv if kind is TableFormat.CSV else pd.read_parquet
    tables = {table: read(tmp_path / "out" / f"{table}.{kind}") for table in TABLES}

    assert "6 windows, 2 phases, 2 lanes, 8 frames, 2 threads, 6 gauges" == done.contents
    assert all(list(TABLES[table]) == list(frame.columns) for table, frame in tables.items())
    assert all(["monday", "tuesday"] == sorted(set(frame["run_id"])) for frame in tables.values())
    assert [330.0] * 2 == tables["windows"].groupby("run_id")["num_tokens"].sum().tolist()
    assert [0.0, 0.1, 0.2] == tables["windows"]["start_s"].tolist()[:3]
    assert [1.5, 2.5, 3.5] == tables["gauges"]["value"].tolist()[:3]
    assert [0.099, 0.199, 0.299] == tables["gauges"]["at_s"].tolist()[:3]


def test_frames_count_own_and_all_samples_by_phase(run: Path, tmp_path: Path) -> None:
    export_tables([run], tmp_path, kind=TableFormat.PARQUET)
    frames = pd.read_parquet(tmp_path / "frames.parquet")
    columns = ["view", "phase", "name", "line", "self_samples", "total_samples", "thread_samples"]

    assert [
        ["all", "", "train", 10, 0, 10, 10],
        ["all", "", "step", 20, 2, 10, 10],
        ["all", "mask", "mask", 30, 8, 8, 10],
        ["gil", "", "train", 10, 3, 3, 3],
    ] == sorted(frames[columns].to_numpy().tolist(), key=lambda row: (row[0], row[3] != 10, row[3]))


def test_recursion_counts_once_a_stack(run: Path, tmp_path: Path) -> None:
    stack = "thread (1): MainThread;walk (t.py:1);walk (t.py:1);walk (t.py:1) 5\n"
    (run / "samples" / "profile-1" / "drafter-0.folded").write_text(stack)
    export_tables([run], tmp_path, kind=TableFormat.PARQUET)
    frames = pd.read_parquet(tmp_path / "frames.parquet")

    assert [[5, 5]] == frames[frames["view"] == "all"][["self_samples", "total_samples"]].to_numpy().tolist()


def test_a_trainer_without_events_has_tables_too(run: Path, tmp_path: Path) -> None:
    for path in (run / "events").iterdir():
        path.unlink()

    assert "3 windows, 1 phases, 1 lanes, 4 frames, 1 threads, 0 gauges" == (
        export_tables([run], tmp_path, kind=TableFormat.CSV).contents
    )


def test_two_runs_of_one_name_could_not_be_told_apart(run: Path, tmp_path: Path) -> None:
    other = export_runs.write_run(tmp_path / "other" / "monday")

    with pytest.raises(UsageError, match="2 runs are called monday"):
        export_tables([run, other], tmp_path / "out", kind=TableFormat.CSV)
    assert not (tmp_path / "out").exists()


def test_a_comparison_is_no_run_but_has_some(run: Path, tmp_path: Path) -> None:
    study = tmp_path / "compare-1"
    (study / "launches").mkdir(parents=True)
    run.rename(study / "launches" / "cold-1")

    with pytest.raises(UsageError, match="launches/cold-1"):
        export_trace(study, tmp_path / "t")
    assert export_trace(study / "launches" / "cold-1", tmp_path / "t").paths


def test_a_run_that_was_cut_off_has_a_trace_without_windows(run: Path, tmp_path: Path) -> None:
    (run / "summary.json").unlink()
    done = export_trace(run, tmp_path / "t.json")

    assert ("it has no summary.json: windows are left out",) == done.notes
    assert "24 spans, 3 flows" == done.contents


SPOILT: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda run: (run / "manifest.json").unlink(),
    "manifest of the future": lambda run: edit(run / "manifest.json", version=9),
    "manifest is a list": lambda run: (run / "manifest.json").write_text("[]"),
    "manifest is cut": lambda run: (run / "manifest.json").write_text('{"format": "flashprof-run", "ver'),
    "manifest is a pipe": lambda run: ((run / "manifest.json").unlink(), os.mkfifo(run / "manifest.json")),
    "manifest is a link": lambda run: (run / "manifest.json").symlink_to((run / "manifest.json").rename(run / "m")),
    "summary of the future": lambda run: edit(run / "summary.json", version=9),
    "summary of other types": lambda run: edit(run / "summary.json", windows=[{"label": 3}]),
    "summary nested deep": lambda run: (run / "summary.json").write_text("[" * 100_000),
    "header of other types": lambda run: (run / "events" / "drafter-0.jsonl").write_text(
        '{"format":"flashprof-events","version":1,"role":3,"rank":"x","host":"h","pid":1,"trains":true,'
        '"wall_ns":"a","monotonic_ns":null}\n'
    ),
    "events of the future": lambda run: [
        path.write_text('{"format":"flashprof-events","version":9}\n') for path in (run / "events").iterdir()
    ],
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_spoilt_run_is_one_clear_error(run: Path, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    spoil(run)

    with pytest.raises(FormatError) as caught:
        export_trace(run, tmp_path / "out" / "t.json")

    assert 2 == caught.value.exit_code
    assert caught.value.next_command or caught.value.allowed
    assert not (tmp_path / "out" / "t.json").exists()


def test_a_step_that_is_torn_costs_only_the_flows(run: Path, tmp_path: Path) -> None:
    path = run / "events" / "target-0.jsonl"
    path.write_text(path.read_text().replace('["step",0,', '["step",0,"'))
    done = export_trace(run, tmp_path / "t.json")

    assert "24 spans, 0 flows" == done.contents
    assert ("no flows: an events file has a line", "1 lines that hold no sound record are left out") == (
        done.notes[0][:35],
        done.notes[1],
    )


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("windows.parquet", b"no parquet"),
        ("samples/profile-1/threads.csv", b"role,rank\n1,2\n"),
        ("samples/profile-1/gil.json", b'{"format": "flashprof-gil", "version": 9, "num_looks": 1}'),
        ("samples/phase_lines.json", b"{"),
    ],
)
def test_a_broken_part_of_a_run_spoils_its_tables_and_nothing_is_left(
    run: Path, tmp_path: Path, path: str, content: bytes
) -> None:
    (run / path).write_bytes(content)

    with pytest.raises(FormatError):
        export_tables([run], tmp_path / "out", kind=TableFormat.PARQUET)
    assert [] == list((tmp_path / "out").iterdir())


def test_a_link_among_the_samples_is_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root 1\n")
    (run / "samples" / "profile-1" / "target-0.folded").symlink_to(tmp_path / "secret")

    with pytest.raises(FormatError, match="no plain file"):
        export_stacks(run, tmp_path / "f", kind=StackFormat.FOLDED)
