"""The history's sentences: levels with what they are made of, and next commands that can be copied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from histories import launch, steps, stored

from flashprof.app.history import show
from flashprof.contracts.history import LaunchKind, Series
from flashprof.report import history_sentences as sentences
from flashprof.store.history import record_run, record_runs


@pytest.fixture
def lost(tmp_path: Path) -> Series:
    (series,) = show(stored(tmp_path / "history.sqlite", steps((20, 0.0), (12, -0.06)))).series
    return series


def test_a_loss_is_said_with_its_interval_and_both_levels(lost: Series) -> None:
    assert sentences.headline(lost).startswith("LOSS −6.")
    assert "% (95 %: −6." in sentences.headline(lost)
    assert "12 runs since 2026-11-06; baseline" in sentences.standing(lost)
    assert sentences.standing(lost).endswith("20 runs since 2026-11-01")


def test_the_range_to_bisect_is_of_commits_that_are_known_and_differ(lost: Series) -> None:
    (change,) = lost.changes

    def remedies(*commits: str) -> list[str]:
        changed = replace(lost, changes=(replace(change, commits=commits),))  # type: ignore[arg-type]
        return [line.split(",")[0] for line in sentences.remedies(changed)]

    accept = "flashprof history accept run-020 --why TEXT"

    assert ["flashprof bisect --good aa --bad bb", accept] == remedies("aa+changes", "bb")
    assert [accept] == remedies("aa", "aa") == remedies("", "bb")


def test_one_run_has_a_level_without_interval(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    record_run(path, launch(0))
    (series,) = show(path).series

    assert "level 9,000 tok/s, 1 run since 2026-11-01" == sentences.standing(series)
    assert f"cell {launch().cell}, 1 run" == sentences.facts(series)


def test_launches_of_gates_are_called_so(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    record_runs(path, [launch(number, kind=LaunchKind.GATE_BASE) for number in range(2)])
    (series,) = show(path).series

    assert sentences.facts(series).endswith("2 launches (gate-base)")
