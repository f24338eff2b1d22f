"""Runs, gates, acknowledgements and baselines come back from the store as they were given, each once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import gate_results
import pytest
import run_summaries
from histories import launch, stored
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.history import Acknowledgement, HistoryLaunch, LaunchKind
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Interval
from flashprof.store.history import (
    history_path,
    launch_of,
    read_history,
    record_acknowledgement,
    record_gate,
    record_run,
    record_runs,
)
from flashprof.store.history_rows import MAX_LOG_RATE

RATE = Interval(estimate=4_000.0, low=3_900.0, high=4_102.564, level=0.95, num_samples=5, method="t")
FACTS = {
    "machine.host": "box",
    "workload.preset": "tiny",
    "source.commit": "c0ffee",
    "source.dirty": "abc",
    "versions.flashprof-dflash": "0.1.0",
    "versions.torch": "2.13.0",
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)
LOG_RATE = st.none() | st.floats(-MAX_LOG_RATE, MAX_LOG_RATE)


def kept(path: Path) -> tuple[HistoryLaunch, ...]:
    return read_history(path).launches


@given(
    text=TEXT,
    numbers=st.tuples(LOG_RATE, NUMBER, NUMBER),
    outcome=st.sampled_from(Outcome),
    kind=st.sampled_from(LaunchKind),
    phases=st.dictionaries(TEXT, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
)
@settings(deadline=None, max_examples=25)
def test_launches_come_back_as_they_were_given_and_once(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    text: str,
    numbers: tuple[float | None, ...],
    outcome: Outcome,
    kind: LaunchKind,
    phases: dict[str, float],
) -> None:
    path = tmp_path_factory.mktemp("store") / "history.sqlite"
    given = launch(
        facts={text: text, "machine.host": "box"},
        run_id=text,
        title=text,
        branch=text,
        folder=text,
        outcome=outcome,
        kind=kind,
        gate=text,
        log_tok_per_s=numbers[0],
        error=numbers[1],
        startup_s=numbers[2],
        phases_ns_per_token=phases,
    )
    record_run(path, given)
    num_new, _ = record_runs(path, [given, launch(1)])

    assert 1 == num_new
    assert (given, launch(1)) == kept(path)


def test_launches_stand_by_time_whatever_the_order_of_their_coming(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    record_runs(path, [launch(3), launch(1)])
    record_run(path, launch(2))

    assert ["run-001", "run-002", "run-003"] == [item.run_id for item in kept(path)]


def test_a_run_is_kept_with_its_rate_its_error_and_its_phases() -> None:
    summary = replace(run_summaries.healthy(), tok_per_s=RATE)
    made = launch_of(summary, FACTS, started="2026-11-30T10:00:00+00:00", branch="main", folder="/r")
    num_tokens = sum(window.num_tokens for window in summary.windows if window.kind == "measure")
    mask_ns = sum(row.self_ns for row in summary.phases if row.phase == "mask")

    assert math.log(4_000) == pytest.approx(made.log_tok_per_s)
    # Half the interval on the log scale is 2.776 standard errors with five windows.
    assert (math.log(4_102.564) - math.log(3_900)) / 2 / 2.776445 == pytest.approx(made.error)
    assert mask_ns / num_tokens == pytest.approx(made.phases_ns_per_token["drafter mask"])
    assert ("box", "c0ffee+changes", "swa", 5) == (made.host, made.commit, made.toggles, made.num_windows)
    assert "tiny · 1+1 · swa · box, 2 cores" == made.title


def test_source_and_own_version_make_no_other_cell_and_all_else_does() -> None:
    def cell(**changes: str) -> str:
        facts = {**FACTS, **{name.replace("__", "."): text for name, text in changes.items()}}
        return launch_of(run_summaries.healthy(), facts, started="").cell

    later = {**FACTS, "versions.flashprof-dflash": "0.2.0"}

    assert cell() == cell(source__commit="other")
    assert cell() == launch_of(run_summaries.healthy(), later, started="").cell
    assert cell() != cell(versions__torch="2.14.0")
    assert cell() != cell(machine__host="other")


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (None, (None, None)),
        (replace(RATE, estimate=0.0), (None, None)),
        (replace(RATE, estimate=math.inf), (None, None)),
        (replace(RATE, low=0.0), (math.log(4_000), None)),
        (replace(RATE, high=math.inf), (math.log(4_000), None)),
        (replace(RATE, num_samples=1), (math.log(4_000), None)),
    ],
)
def test_what_is_no_number_is_kept_as_none(
    tmp_path: Path, rate: Interval | None, expected: tuple[float | None, float | None]
) -> None:
    made = launch_of(replace(run_summaries.crashed(), tok_per_s=rate), FACTS, started="2026-11-30")
    record_run(tmp_path / "history.sqlite", made)
    (back,) = kept(tmp_path / "history.sqlite")

    assert expected == (back.log_tok_per_s, back.error)
    assert not back.is_point


def test_a_gate_is_kept_with_its_launches_and_once_more_when_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    result = gate_results.passed()
    launches = [launch(1, kind=LaunchKind.GATE_BASE, gate="g"), launch(2, kind=LaunchKind.GATE_HEAD, gate="g")]
    record_gate(path, result, launches, at="2026-11-30T10:00:00+00:00")
    record_gate(path, replace(result, is_failed=True), [*launches, launch(3)], at="2026-11-30T11:00:00+00:00")
    first, second = read_history(path).gates

    assert [*launches, launch(3)] == list(kept(path))
    assert (str(result.verdict), False, result.metrics[0].change) == (first.verdict, first.is_failed, first.change)
    assert (launches[0].cell, result.base_commit, result.spent_s) == (first.cell, first.base_commit, first.spent_s)
    assert second.is_failed


def test_a_gate_that_measured_nothing_is_kept_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    record_gate(path, replace(gate_results.passed(), metrics=()), [], at="2026-11-30T10:00:00+00:00")
    (gate,) = read_history(path).gates

    assert ("", None) == (gate.cell, gate.change)


def test_words_on_a_level_come_back_and_the_newest_counts(tmp_path: Path) -> None:
    path = stored(tmp_path / "history.sqlite", [0.0])
    word = Acknowledgement(
        cell="c", kind=LaunchKind.RUN, run_id="r", started="2026", why="it's meant; DROP", who="ann", at="1"
    )
    record_acknowledgement(path, word)
    record_acknowledgement(path, replace(word, why="again", at="2"))
    other = replace(word, run_id="s", at="3")
    record_acknowledgement(path, other)

    assert (replace(word, why="again", at="2"), other) == read_history(path).acknowledgements


def test_what_was_read_of_a_broken_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"nonsense" * 1000)
    held = read_history(path)

    assert () == held.launches
    assert "history.sqlite.broken-1" in held.said


def test_the_environment_says_where_it_is_or_that_there_is_none() -> None:
    reports = Path("reports")

    assert reports / "history.sqlite" == history_path(reports, {}) == history_path(reports, {"FLASHPROF_HISTORY": ""})
    assert Path("/x.sqlite") == history_path(reports, {"FLASHPROF_HISTORY": "/x.sqlite"})
    assert None is history_path(reports, {"FLASHPROF_HISTORY": "off"})
