"""A run leaves a published folder with tables, summary and reports, whatever its outcome."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_world import PLAN, STEP_TOKENS, Script, World, press_ctrl_c

from flashprof.app.run import run
from flashprof.contracts.errors import FormatError, ToolError, UsageError
from flashprof.contracts.events import Header, encode_header
from flashprof.contracts.experiment import Output, SubjectKind
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary, WindowKind
from flashprof.store.run_folder import read_manifest


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def measure(world: World) -> RunSummary:
    return run(world.experiment, world.ports, world.progress)


def summary_file(world: World) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads((world.reports / "run" / "summary.json").read_text(), parse_constant=refuse)


def test_a_healthy_run_is_published_with_everything_in_it(world: World) -> None:
    summary = measure(world)
    folder = world.reports / "run"

    assert summary.tok_per_s is not None
    assert STEP_TOKENS / 0.1 == pytest.approx(summary.tok_per_s.estimate)
    assert ["run"] == [path.name for path in world.reports.iterdir()]
    assert "completed" == read_manifest(folder)["outcome"] == summary_file(world)["outcome"]
    assert {"report.md", "report.txt", "subject.log", "events"} <= {path.name for path in folder.iterdir()}
    assert [] == [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_the_tables_are_read_by_pandas_and_hold_every_token(world: World) -> None:
    measure(world)
    windows, phases, lanes = (
        pd.read_parquet(world.reports / "run" / f"{name}.parquet") for name in ("windows", "phases", "lanes")
    )
    events = world.reports / "run" / "events" / "trainer-0.jsonl"
    num_steps = sum('["step"' in line for line in events.read_text().splitlines())

    assert num_steps * STEP_TOKENS == windows["num_tokens"].sum()
    assert ["measure-1", "profile-1", "measure-2", "profile-2", "measure-3"] == list(lanes["window"])
    assert {"forward"} == set(phases["phase"])
    assert lanes["covered_share"].between(0.97, 1.0).all()


def test_start_up_and_warm_up_are_told_apart(world: World) -> None:
    summary = measure(world)

    assert 2.1 == pytest.approx(summary.startup_s, abs=0.01)
    assert summary.warmup is not None
    assert summary.warmup.settled


def test_the_manifest_keeps_the_cell_and_the_next_run_learns_from_it(world: World) -> None:
    measure(world)
    first = read_manifest(world.reports / "run")
    run(replace(world.experiment, output=Output(reports=world.reports, run_id="next")), world.ports, world.progress)
    second = read_manifest(world.reports / "next")

    assert "tiny" == first["cell_facts"]["workload.preset"]
    assert (first["cell_hash"], first["cell_known_hash"]) == (second["cell_hash"], second["cell_known_hash"])
    assert 0.1 == pytest.approx(first["longest_silence_s"])
    assert (60.0, 10.0) == tuple(m["experiment"]["windows"]["hang_timeout_s"] for m in (first, second))


def test_events_that_miss_tokens_fail_the_tool(world: World) -> None:
    world.script = Script(counts_wrong=True)
    summary = measure(world)

    assert Outcome.TOOL_FAILED is summary.outcome
    assert "do not hold what the subject says it trained" in summary.reason
    assert "tool failed" == read_manifest(world.reports / "run")["outcome"]


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.5])
def test_impossible_losses_are_wrong_numbers_in_strict_json(world: World, value: float) -> None:
    world.script = Script(loss=lambda index: value if index > 40 else 5 - index / 100)
    summary = measure(world)

    assert Outcome.WRONG_NUMBERS is summary.outcome
    assert "loss is" in summary.reason
    assert "wrong numbers" == summary_file(world)["outcome"]


def test_a_crash_keeps_the_windows_before_it(world: World) -> None:
    world.script = Script(exits=(9.0, 1), last_words="RuntimeError: boom")
    summary = measure(world)

    assert Outcome.CRASHED is summary.outcome
    assert [WindowKind.MEASURE] == [window.kind for window in summary.windows if window.label == "measure-1"]
    assert "boom" in summary_file(world)["reason"]


def test_a_run_cut_off_while_loading_is_published_too(world: World) -> None:
    world.script = Script(exits=(1.0, 1), emits=False, last_words="ImportError: no torch")
    summary = measure(world)

    assert (Outcome.LOAD_FAILED, None) == (summary.outcome, summary.tok_per_s)
    assert "failed while loading" == read_manifest(world.reports / "run")["outcome"]
    assert 0 == len(pd.read_parquet(world.reports / "run" / "windows.parquet"))


def test_a_foreign_log_gives_tok_per_s_and_says_whose_count_it_is(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(emits=False, step_s=lambda _: 0.5)
    summary = measure(world)

    assert Outcome.COMPLETED is summary.outcome, summary.reason
    assert summary.tok_per_s is not None
    assert (2000, "log") == (pytest.approx(summary.tok_per_s.estimate), summary.counted_by)
    assert {"command": "trainer"} == {key: summary.cell[key] for key in ("command",)}


def test_windows_without_a_reading_are_named(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(emits=False, step_s=lambda _: 3.0)
    summary = measure(world)

    assert any("measure windows hold no tokens" in note and "measure_s=6" in note for note in summary.notes)


def test_a_pattern_that_matches_nothing_is_told_while_it_is_waited_for(world: World) -> None:
    world.kind, world.pattern = SubjectKind.FOREIGN, r"speed: (\d+)"
    world.script = Script(emits=False, step_s=lambda _: 0.5)
    measure(world)
    hints = [note for note in world.progress.notes if "no throughput seen yet, last line: " in note]

    assert 1 == len(hints)
    assert "tok/s=" in hints[0]
    assert "--tok-per-s" in hints[0]


def test_a_loss_that_only_the_log_shows_is_checked_too(world: World) -> None:
    world.kind = SubjectKind.FOREIGN
    world.script = Script(emits=False, exits=(9.0, 0), last_words="step=9 loss=nan tok/s=5")
    summary = measure(world)

    assert Outcome.WRONG_NUMBERS is summary.outcome
    assert "step=9 loss=nan" in summary.reason


def test_wrong_input_leaves_nothing_behind(world: World) -> None:
    world.script = Script(exits=(0.2, 2), last_words="error: unknown preset 'x'")
    with pytest.raises(UsageError, match="unknown preset"):
        measure(world)

    assert [] == list(world.reports.iterdir())


def when_summarising(world: World, act: Callable[[], None]) -> None:
    stage = world.progress.stage

    def acting(text: str, *, total_s: float | None = None) -> None:
        stage(text, total_s=total_s)
        if text == "summarising":
            act()

    world.progress.stage = acting  # type: ignore[method-assign]


def test_ctrl_c_while_summarising_publishes_what_was_measured(world: World) -> None:
    when_summarising(world, press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        measure(world)

    assert "interrupted" == read_manifest(world.reports / "run")["outcome"]


def test_a_fault_while_summarising_publishes_what_was_measured(world: World) -> None:
    def fail() -> None:
        raise OverflowError("cannot convert float infinity to integer")

    when_summarising(world, fail)
    with pytest.raises(ToolError, match=r"cannot be summarised: OverflowError: .* fault of FlashProf") as caught:
        measure(world)

    assert ["run"] == [path.name for path in world.reports.iterdir()]
    assert "tool failed" == read_manifest(world.reports / "run")["outcome"]
    assert str(world.reports / "run") in (caught.value.where or "")


def test_what_cannot_be_read_while_summarising_is_told_as_it_is(world: World) -> None:
    events = world.reports / ".run.part" / "events"

    def add_another_machine() -> None:
        header = Header(role="trainer", rank=1, host="elsewhere", pid=1, trains=True, wall_ns=10**15, monotonic_ns=0)
        (events / "trainer-1.jsonl").write_text(encode_header(header) + "\n")

    when_summarising(world, add_another_machine)
    with pytest.raises(FormatError, match="two machines"):
        measure(world)

    assert ["run"] == [path.name for path in world.reports.iterdir()]


def test_a_folder_that_vanishes_is_a_tool_error_not_a_traceback(world: World) -> None:
    world.when_stage("measure window 1", lambda: shutil.rmtree(world.reports / ".run.part"))
    with pytest.raises(ToolError, match="cannot be completed"):
        measure(world)

    assert "kill_tree" == world.journal[-1]


def test_results_that_cannot_be_written_are_shown_all_the_same(world: World) -> None:
    # A folder in the way of a file: what a full disk does at the same place.
    world.when_stage("stopping", (world.reports / ".run.part" / "report.md").mkdir)
    summary = measure(world)

    assert Outcome.TOOL_FAILED is summary.outcome
    assert "directory" in summary.reason.lower()
    assert summary.tok_per_s is not None
    assert "tool failed" == read_manifest(world.reports / "run")["outcome"]


def test_the_same_note_is_said_once(world: World) -> None:
    world.plan = replace(PLAN, num_profile=3)
    world.samplers[0].notes = ("one thing",)
    summary = measure(world)

    assert 1 == summary.notes.count("one thing")
