"""A row that somebody altered in a file that is whole is left out by name, and keeps no other from being read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import gate_results
import pytest
from histories import steps, stored

from flashprof.app.history import show
from flashprof.contracts.history import Acknowledgement, Baseline, LaunchKind
from flashprof.store.history import Held, read_history, record_acknowledgement, record_baseline, record_gate
from flashprof.store.history_rows import MAX_LOG_RATE

NUM_RUNS = 12


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twelve runs, a gate, an acceptance and a baseline."""
    path = stored(tmp_path / "history.sqlite", steps((NUM_RUNS, 0.0)))
    cell = read_history(path).launches[0].cell
    record_gate(path, gate_results.passed(), [], at="2026-11-30T10:00:00+00:00")
    words = {"cell": cell, "kind": LaunchKind.RUN, "who": "ann", "at": "2026-11-30"}
    record_acknowledgement(path, Acknowledgement(run_id="run-004", started="2026-11-02", why="meant", **words))
    record_baseline(path, Baseline(name="main", run_ids=("run-001",), since="2026-11-01", **words))
    return path


def altered(path: Path, statement: str, *values: object) -> Held:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()
    return read_history(path)


def counts(held: Held) -> tuple[int, int, int, int]:
    return len(held.launches), len(held.gates), len(held.acknowledgements), len(held.baselines)


def test_a_store_that_nobody_altered_says_nothing(store: Path) -> None:
    held = read_history(store)

    assert (NUM_RUNS, 1, 1, 1) == counts(held)
    assert not held.said


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("outcome", "weird"),
        ("kind", "weird"),
        ("log_tok_per_s", 800.0),
        ("log_tok_per_s", -MAX_LOG_RATE - 1),
        ("log_tok_per_s", "fast"),
        ("log_tok_per_s", float("inf")),
        ("error", float("inf")),
        ("startup_s", "long"),
        ("num_windows", 2.5),
        ("title", b"\x00\x01"),
        ("phases_ns_per_token", "{"),
        ("phases_ns_per_token", "[]"),
        ("phases_ns_per_token", '{"mask": "slow"}'),
        ("phases_ns_per_token", '{"mask": 1e999}'),
        ("phases_ns_per_token", "[" * 5000),
        ("phases_ns_per_token", b"\xff"),
    ],
)
def test_a_launch_that_cannot_be_read_is_left_out_and_named(store: Path, column: str, value: object) -> None:
    held = altered(store, f"UPDATE launches SET {column} = ? WHERE run_id = 'run-003'", value)

    assert (NUM_RUNS - 1, 1, 1, 1) == counts(held)
    assert held.said.startswith("1 row of the history cannot be read and is left out: launch run-003 (")
    assert [held.said] == list(show(store).notes)


def test_the_fastest_that_can_be_told_is_shown(store: Path) -> None:
    altered(store, "UPDATE launches SET log_tok_per_s = ? WHERE run_id = 'run-003'", MAX_LOG_RATE)
    altered(store, "UPDATE launches SET log_tok_per_s = ? WHERE run_id = 'run-004'", -MAX_LOG_RATE)

    assert NUM_RUNS == show(store).num_launches


@pytest.mark.parametrize("facts", ["{", "10", '{"machine.host": 5}', "[" * 5000])
def test_launches_of_a_cell_that_cannot_be_read_are_left_out(store: Path, facts: str) -> None:
    held = altered(store, "UPDATE cells SET facts = ?", facts)

    assert (0, 1, 1, 1) == counts(held)
    assert held.said.startswith(f"{NUM_RUNS + 1} rows of the history cannot be read and are left out: cell ")
    assert held.said.endswith(f"; and {NUM_RUNS - 2} more")


@pytest.mark.parametrize(
    ("statement", "left", "said"),
    [
        ("UPDATE gates SET verdict = 'weird'", (NUM_RUNS, 0, 1, 1), "left out: gate "),
        ("UPDATE gates SET change = '{'", (NUM_RUNS, 0, 1, 1), "left out: gate "),
        ("UPDATE gates SET spent_s = 'long'", (NUM_RUNS, 0, 1, 1), "left out: gate "),
        ("UPDATE acknowledgements SET kind = 'weird'", (NUM_RUNS, 1, 0, 1), "left out: acceptance of run-004 "),
        ("UPDATE baselines SET run_ids = '{'", (NUM_RUNS, 1, 1, 0), "left out: baseline main "),
        ("UPDATE baselines SET run_ids = '[3]'", (NUM_RUNS, 1, 1, 0), "left out: baseline main "),
        ("UPDATE baselines SET kind = 'weird'", (NUM_RUNS, 1, 1, 0), "left out: baseline main "),
    ],
)
def test_other_rows_that_cannot_be_read_are_left_out_and_named(
    store: Path, statement: str, left: tuple[int, ...], said: str
) -> None:
    held = altered(store, statement)

    assert left == counts(held)
    assert said in held.said


def test_bytes_that_are_no_text_end_no_query(store: Path) -> None:
    held = altered(store, "UPDATE launches SET title = CAST(x'ff41' AS TEXT) WHERE run_id = 'run-003'")

    assert (NUM_RUNS, 1, 1, 1) == counts(held)
    assert ["\ufffdA"] == [launch.title for launch in held.launches if launch.run_id == "run-003"]
