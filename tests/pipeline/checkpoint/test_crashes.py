"""Whatever file operation a save dies or fails at, a whole checkpoint is found, and the next save works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

SIGKILLED = -9
SAVED, REFUSED = 0, 1


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One failed save each: how it failed, what was found after it, what lay there after the next save."""
    program = Path(__file__).with_name("crash_saver.py")
    # In memory where that is to be had: 2,000 syncs to a busy disk take 14 s.
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path_factory.mktemp("crashes")) as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", program, folder],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        )

    assert "" == done.stderr
    read: list[dict[str, Any]] = json.loads(done.stdout)
    return read


def of(outcomes: list[dict[str, Any]], scenario: str, how: str) -> list[dict[str, Any]]:
    return [outcome for outcome in outcomes if outcome["scenario"] == scenario and outcome.get("how") == how]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "old", "new"), [("keep one", 1, 2), ("rotate two", 3, 4), ("same step", 1, 1), ("first", None, 1)]
)
def test_a_kill_loses_at_most_what_was_being_saved(
    outcomes: list[dict[str, Any]], scenario: str, old: int | None, new: int
) -> None:
    killed = of(outcomes, scenario, "kill")
    before = (old, [float(old)] if old else [])
    found = [(outcome["step"], outcome["values"]) for outcome in killed]
    num_old = found.count(before)

    # The old one up to some operation, the new one from there on: -1 is what the failing save wrote.
    assert [before] * num_old + [(new, [-1.0])] * (len(found) - num_old) == found
    assert 10 < num_old < len(found)
    assert {SIGKILLED} == {outcome["status"] for outcome in killed}


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "new"), [("keep one", 2), ("same step", 1)])
def test_a_full_disk_is_an_error_or_the_checkpoint_is_saved(
    outcomes: list[dict[str, Any]], scenario: str, new: int
) -> None:
    tried = of(outcomes, scenario, "full disk")
    refused = [(outcome["step"], outcome["values"]) for outcome in tried if outcome["status"] == REFUSED]
    saved = [(outcome["step"], outcome["values"]) for outcome in tried if outcome["status"] == SAVED]

    assert len(tried) == len(refused) + len(saved)
    assert {(new, (-1.0,))} == {(step, tuple(values)) for step, values in saved}
    assert {(1, (1.0,)), (new, (-1.0,))} >= {(step, tuple(values)) for step, values in refused}
    assert (1, [1.0]) in refused


@pytest.mark.slow
def test_the_next_save_clears_up(outcomes: list[dict[str, Any]]) -> None:
    hidden = [name for outcome in outcomes for name in outcome["left"] if name.startswith(".")]
    most = {"first": 2, "keep one": 1, "rotate two": 2, "same step": 1, "limit": 1}

    assert [] == hidden
    assert [] == [outcome for outcome in outcomes if len(outcome["left"]) > most[outcome["scenario"]]]


@pytest.mark.slow
def test_a_file_that_cannot_grow_is_an_error_and_leaves_the_older_checkpoint(outcomes: list[dict[str, Any]]) -> None:
    (outcome,) = [outcome for outcome in outcomes if outcome["scenario"] == "limit"]

    assert (REFUSED, 1, [1.0]) == (outcome["status"], outcome["step"], outcome["values"])
    assert ["step-00000001"] == outcome["left"]
