"""Earlier runs of a cell teach what a launch costs, and nothing is learnt from others or from broken ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashprof.app.earlier import (
    Earlier,
    find_earlier,
    learnt_hang_limit_s,
    longest_silence_s,
    with_learnt_hang_limit,
)
from flashprof.contracts.cell import Cell
from flashprof.contracts.events import Ack, EventLog, Header, Mark, Step
from flashprof.contracts.experiment import Experiment, SubjectKind, SubjectSpec, WindowPlan

KNOWN = Cell({"workload.preset": "tiny", "machine.host": "box"})
DEFAULT_S = 60.0


def leave(reports: Path, name: str, *, cell: Cell = KNOWN, startup_s: float = 8.0, **changes: Any) -> Path:
    """A finished run's folder, as far as it is read."""
    folder = reports / name
    folder.mkdir(parents=True)
    manifest = {
        "format": "flashprof-run",
        "version": 1,
        "outcome": "completed",
        "experiment": {"subject": {"toggles": "none"}},
        "cell_known_hash": cell.without("toggles").hash,
        "longest_silence_s": 0.5,
    }
    windows = [
        {"kind": "warmup", "num_steps": 1, "length_s": 90.0},
        {"kind": "measure", "num_steps": 10, "length_s": 2.0},
        {"kind": "measure", "num_steps": 10, "length_s": 4.0},
        {"kind": "measure", "num_steps": 0, "length_s": 2.0},
    ]
    summary = {
        "startup_s": startup_s,
        "warmup": {"length_s": 3.0},
        "tok_per_s": {"estimate": 4000.0},
        "windows": windows,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def earlier(silence_s: float | None, *toggles: str) -> Earlier:
    nothing = {"startup_s": None, "warmup_s": None, "tok_per_s": None, "step_s": None}
    return Earlier(num_runs=1, num_broken=0, toggles=toggles or ("none",), longest_silence_s=silence_s, **nothing)


def test_no_reports_folder_is_no_earlier_run(tmp_path: Path) -> None:
    assert find_earlier(tmp_path / "reports", KNOWN) is None


def test_medians_of_matching_runs_are_given(tmp_path: Path) -> None:
    for index, startup_s in enumerate((7.0, 8.0, 30.0)):
        leave(tmp_path, f"run-{index}", startup_s=startup_s, longest_silence_s=0.5 + index)
    found = find_earlier(tmp_path, KNOWN)

    assert found is not None
    assert (3, 8.0, 3.0, 4000.0, 0.3) == (
        found.num_runs,
        found.startup_s,
        found.warmup_s,
        found.tok_per_s,
        found.step_s,
    )
    assert 2.5 == found.longest_silence_s


def test_launches_of_studies_count_and_toggles_do_not(tmp_path: Path) -> None:
    leave(tmp_path, "run", experiment={"subject": {"toggles": "swa"}})
    leave(tmp_path / "study" / "launches", "launch")
    found = find_earlier(tmp_path, Cell({**KNOWN.facts, "toggles.swa": "on"}))

    assert found is not None
    assert (2, ("none", "swa")) == (found.num_runs, found.toggles)


@pytest.mark.parametrize(
    "changes",
    [
        {"cell": Cell({**KNOWN.facts, "machine.host": "crate"})},
        {"outcome": "crashed"},
        {"outcome": "interrupted"},
        {"cell_known_hash": None},
    ],
)
def test_other_cells_and_failed_runs_teach_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    leave(tmp_path, "run", **changes)

    assert find_earlier(tmp_path, KNOWN) is None


def test_runs_that_are_not_published_are_not_looked_at(tmp_path: Path) -> None:
    leave(tmp_path, ".run.part")
    leave(tmp_path / "study" / "launches", ".launch.part")

    assert find_earlier(tmp_path, KNOWN) is None


@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
@pytest.mark.parametrize("text", ["", "[1]", "{", '{"format": "flashprof-run", "version": 99}', "\udce9"])
def test_broken_runs_are_counted_and_left_out(tmp_path: Path, name: str, text: str) -> None:
    leave(tmp_path, "good")
    broken = leave(tmp_path, "broken")
    (broken / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    found = find_earlier(tmp_path, KNOWN)

    assert found is not None
    is_read = name == "summary.json" and text.startswith('{"')
    assert ((2, 0) if is_read else (1, 1)) == (found.num_runs, found.num_broken)


def test_a_run_without_the_figures_still_counts(tmp_path: Path) -> None:
    folder = leave(tmp_path, "run", longest_silence_s=None)
    (folder / "summary.json").write_text(json.dumps({"tok_per_s": None, "warmup": None}))
    found = find_earlier(tmp_path, KNOWN)

    assert found is not None
    assert (1, None, None, None, None, None) == (
        found.num_runs,
        found.startup_s,
        found.warmup_s,
        found.tok_per_s,
        found.step_s,
        found.longest_silence_s,
    )


@pytest.mark.parametrize(
    ("known", "limit_s"),
    [(None, 60.0), (earlier(None), 60.0), (earlier(0.3), 10.0), (earlier(4.0), 20.0), (earlier(30.0), 60.0)],
)
def test_the_hang_limit_is_learnt_and_never_above_the_default(known: Earlier | None, limit_s: float) -> None:
    assert limit_s == learnt_hang_limit_s(known, DEFAULT_S, toggles=("none",))


def test_toggles_that_were_never_run_may_be_silent_for_longer() -> None:
    assert DEFAULT_S == learnt_hang_limit_s(earlier(0.3), DEFAULT_S, toggles=("none", "compile"))
    assert 10.0 == learnt_hang_limit_s(earlier(0.3, "none", "compile"), DEFAULT_S, toggles=("compile",))


@pytest.mark.parametrize(
    ("subject", "plan", "limit_s"),
    [
        (SubjectSpec(), WindowPlan(), 10.0),
        (SubjectSpec(), WindowPlan(hang_timeout_s=45.0), 45.0),
        (SubjectSpec(train_options=("--checkpoints", "here")), WindowPlan(), 60.0),
        (SubjectSpec(kind=SubjectKind.FOREIGN), WindowPlan(), 60.0),
    ],
)
def test_the_users_own_limit_stands_and_who_may_save_gets_time(
    subject: SubjectSpec, plan: WindowPlan, limit_s: float
) -> None:
    experiment = with_learnt_hang_limit(Experiment(subject=subject, windows=plan), earlier(0.3))

    assert limit_s == experiment.windows.hang_timeout_s
    assert replace(plan, hang_timeout_s=limit_s) == experiment.windows


def test_silence_is_between_any_two_events_while_training() -> None:
    trainer, other = (
        EventLog(header=Header(role=r, rank=0, host="b", pid=1, trains=r == "d", wall_ns=0, monotonic_ns=0))
        for r in ("d", "t")
    )
    trainer.steps += [Step(i, at_s * 10**9, 1, 1, 0) for i, at_s in enumerate((100, 101, 110, 120))]
    trainer.acks.append(Ack(1, "window_start", 2, 114 * 10**9, {}))
    other.steps += [Step(0, at_s * 10**9, 1, 0, 0) for at_s in (1, 106, 500)]
    other.marks.append(Mark("compile", 103 * 10**9, {}))

    assert 6.0 == longest_silence_s([trainer, other])
    assert longest_silence_s([other]) is None
