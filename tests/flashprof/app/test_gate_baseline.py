"""Which launches of the history a named baseline is."""

from __future__ import annotations

from pathlib import Path

from gate_world import TOK_THRESHOLD
from histories import FACTS, launch
from study_world import WINDOWS

from flashprof.app.gate_baseline import StoredBaseline, read_baseline
from flashprof.app.history import name_baseline
from flashprof.contracts.cell import Cell
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.gate import GateRequest
from flashprof.contracts.history import HistoryLaunch, LaunchKind
from flashprof.store.history import record_runs

NAMED_AT = "2026-11-02T00:00:00.5+00:00"
"""After the fourth launch and on the second of the fifth, of one every six hours."""


def base_of_gate(number: int, run_id: str) -> HistoryLaunch:
    gate = f"gate-{number}"
    return launch(number, run_id=run_id, kind=LaunchKind.GATE_BASE, gate=gate, folder=f"/ci/1/{gate}/launches/{run_id}")


def named(reports: Path, *launches: HistoryLaunch) -> StoredBaseline:
    """What a gate in *reports* is held against, where the last of *launches* came after the name was given."""
    history = reports / "history.sqlite"
    record_runs(history, launches[:-1])
    name_baseline(history, "nightly", who="me", at=NAMED_AT)
    record_runs(history, launches[-1:])
    subject = SubjectSpec(preset="tiny")
    request = GateRequest(
        thresholds=(TOK_THRESHOLD,), baseline="nightly", subject=subject, windows=WINDOWS, reports=reports
    )
    return read_baseline(request, Cell(FACTS), {})


def test_later_launches_of_the_same_name_are_no_part_of_it(tmp_path: Path) -> None:
    found = named(tmp_path, *(base_of_gate(number, "cold-1-base-1") for number in (0, 1, 2, 3, 4, 5)))

    # All gates call their first launch so.
    assert 5 == len(found.launches)


def test_a_launch_of_a_gate_is_looked_for_where_it_was_and_among_todays_reports(tmp_path: Path) -> None:
    found = named(tmp_path, *(base_of_gate(number, "cold-1-base-1") for number in (0, 1, 2, 5)))

    assert (
        Path("/ci/1/gate-0/launches/cold-1-base-1"),
        tmp_path / "gate-0" / "launches" / "cold-1-base-1",
    ) == found.launches[0].places


def test_a_run_is_looked_for_among_todays_reports_too(tmp_path: Path) -> None:
    found = named(tmp_path, *map(launch, (0, 1, 2, 5)))

    assert (Path("/reports/run-000"), tmp_path / "run-000") == found.launches[0].places
    assert launch(0).started == found.launches[0].started
