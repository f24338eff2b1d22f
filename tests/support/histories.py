"""Launches as the history keeps them, and series with steps in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from flashprof.contracts.history import HistoryLaunch, history_cell
from flashprof.contracts.outcome import Outcome
from flashprof.store.history import record_runs

FIRST = datetime(2026, 11, 1, tzinfo=UTC)
FACTS = {"machine.host": "box", "workload.preset": "tiny"}
RATE = 9_000.0


def launch(
    number: int = 0, change: float = 0.0, *, facts: Mapping[str, str] = FACTS, **fields: object
) -> HistoryLaunch:
    """Run *number*, six hours after the one before, whose tok/s differs from `RATE` by the share *change*."""
    made = HistoryLaunch(
        run_id=f"run-{number:03}",
        started=(FIRST + timedelta(hours=6 * number)).isoformat(timespec="seconds"),
        host="box",
        folder=f"/reports/run-{number:03}",
        cell=history_cell(facts).hash,
        facts=history_cell(facts).facts,
        title="tiny · 1+1 · none",
        commit=f"{number:07x}" + 33 * "0",
        branch="main",
        toggles="none",
        outcome=Outcome.COMPLETED,
        log_tok_per_s=math.log(RATE * (1 + change)),
        error=0.004,
        num_windows=5,
        startup_s=4.5,
        phases_ns_per_token={"drafter mask": 120.5},
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def steps(*levels: tuple[int, float], noise: float = 0.005, seed: int = 0) -> list[float]:
    """Changes of runs on levels, each with how many and at what share, with normal noise."""
    rng = np.random.default_rng(seed)
    return [share + float(rng.normal(0, noise)) for num, share in levels for _ in range(num)]


def stored(path: Path, changes: Sequence[float]) -> Path:
    """A store of one series."""
    record_runs(path, [launch(number, change) for number, change in enumerate(changes)])
    return path
