"""
The history: every run and every gate, acknowledgements, and baselines with a name, in one file for all processes.

Each function is one transaction (`history_file`). A launch that is recorded twice is there once.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from flashprof.contracts.gate import TOK_PER_S, GateResult
from flashprof.contracts.history import Acknowledgement, Baseline, HistoryGate, HistoryLaunch, history_cell
from flashprof.contracts.results import Interval, RunSummary, WindowKind
from flashprof.store.history_file import opened
from flashprof.store.history_rows import LAUNCH_COLUMNS, Rows
from flashprof.store.json_numbers import finite

FILE = "history.sqlite"
VARIABLE = "FLASHPROF_HISTORY"
OFF = "off"
TITLE_FACTS = ("preset", "command", "topology", "toggles", "device", "machine")
GATE_COLUMNS = tuple(field.name for field in fields(HistoryGate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """All that a store holds."""

    launches: tuple[HistoryLaunch, ...]
    """By time."""
    gates: tuple[HistoryGate, ...]
    """By time."""
    acknowledgements: tuple[Acknowledgement, ...]
    baselines: tuple[Baseline, ...]
    """By the time of their naming."""
    said: str = ""
    """That a broken file was set aside, or which rows cannot be read; empty else."""


def history_path(reports: Path, env: Mapping[str, str]) -> Path | None:
    """Where the history is: `$FLASHPROF_HISTORY`, else among the reports; None where that variable says `off`."""
    given = env.get(VARIABLE, "")
    return None if given == OFF else Path(given) if given else reports / FILE


def launch_of(
    summary: RunSummary,
    facts: Mapping[str, str],
    *,
    started: str,
    folder: str = "",
    branch: str = "",
) -> HistoryLaunch:
    """
    A run of its own as the history keeps it; a gate replaces kind and gate.

    Args:
        summary: Of the run.
        facts: Of its whole cell, source and all.
        started: When it began, ISO 8601.
        folder: Where the run lies.
        branch: Where it is known.
    """
    cell = history_cell(facts)
    rate, error = _log_rate(summary.tok_per_s)
    return HistoryLaunch(
        run_id=summary.run_id,
        started=started,
        host=facts.get("machine.host", ""),
        folder=folder,
        cell=cell.hash,
        facts=cell.facts,
        title=" · ".join(str(summary.cell[name]) for name in TITLE_FACTS if summary.cell.get(name)),
        commit=facts.get("source.commit", "") + ("+changes" if "source.dirty" in facts else ""),
        branch=branch,
        toggles=str(summary.cell.get("toggles", "")),
        outcome=summary.outcome,
        log_tok_per_s=rate,
        error=error,
        num_windows=sum(window.kind is WindowKind.MEASURE for window in summary.windows),
        startup_s=summary.startup_s,
        phases_ns_per_token=_phases(summary),
    )


def record_run(history: Path, launch: HistoryLaunch) -> str:
    """
    Keep a launch.

    Returns:
        That a broken file was set aside; empty else.

    Raises:
        FormatError: The file is of a newer version, or another program's.
        ToolError: It cannot be written.
    """
    with opened(history) as (connection, said):
        _insert_launch(connection, launch)
    return said


def record_runs(history: Path, launches: Sequence[HistoryLaunch]) -> tuple[int, str]:
    """Keep launches, all or none of them; returns how many were new, and what `record_run` does. Raises as it does."""
    with opened(history) as (connection, said):
        num_new = sum(_insert_launch(connection, launch) for launch in launches)
    return num_new, said


def record_gate(history: Path, result: GateResult, launches: Sequence[HistoryLaunch], *, at: str) -> str:
    """
    Keep a gate's verdict with its launches: all or nothing.

    Args:
        history: The file.
        result: What was decided.
        launches: Those of base and head, from `launch_of`; a call that resumes may give the earlier ones again.
        at: When it ended, ISO 8601.

    Returns, raises: As `record_run`.
    """
    cells = {launch.cell for launch in launches}
    gate = HistoryGate(
        gate=result.gate,
        at=at,
        mode=str(result.mode),
        base=result.base,
        head=result.head,
        base_commit=result.base_commit,
        head_commit=result.head_commit,
        cell=cells.pop() if len(cells) == 1 else "",
        verdict=str(result.verdict),
        reason=result.reason,
        is_failed=result.is_failed,
        change=next((item.change for item in result.metrics if item.threshold.metric == TOK_PER_S), None),
        spent_s=result.spent_s,
    )
    row = {**asdict(gate), "change": _json(asdict(gate.change)) if gate.change else None}
    with opened(history) as (connection, said):
        for launch in launches:
            _insert_launch(connection, launch)
        connection.execute(_insert("gates", GATE_COLUMNS, verb="INSERT OR REPLACE"), row)
    return said


def record_acknowledgement(history: Path, acknowledgement: Acknowledgement) -> None:
    """Keep that a level is accepted; a second word on the same level replaces the first. Raises as `record_run`."""
    with opened(history) as (connection, _):
        row = {name: str(value) for name, value in asdict(acknowledgement).items()}
        connection.execute(_insert("acknowledgements", tuple(row), verb="INSERT OR REPLACE"), row)


def record_baseline(history: Path, baseline: Baseline) -> None:
    """Keep the name of a level; the newest of a name and cell is the one that counts. Raises as `record_run`."""
    with opened(history) as (connection, _):
        row = {**asdict(baseline), "kind": str(baseline.kind), "run_ids": _json(list(baseline.run_ids))}
        connection.execute(_insert("baselines", tuple(row)), row)


def read_history(history: Path, *, cell: str = "") -> Held:
    """
    All that the store holds, or all of one cell.

    A file that is broken is set aside, and said; in one that is whole, rows that cannot be read are left out, and said.

    Raises:
        FormatError: The file is of a newer version, or another program's.
        ToolError: It cannot be read.
    """
    with opened(history, is_checked=True) as (connection, said):

        def rows(query: str) -> list[sqlite3.Row]:
            return connection.execute(query, (cell,)).fetchall()

        # What is no text would end the whole query, and keep every other row from being read.
        connection.text_factory = lambda content: content.decode(errors="replace")
        facts = rows("SELECT cell, facts FROM cells WHERE ? IN ('', cell)")
        launches = rows("SELECT * FROM launches WHERE ? IN ('', cell) ORDER BY started, id")
        gates = rows("SELECT * FROM gates WHERE ? IN ('', cell) ORDER BY at")
        accepted = rows("SELECT * FROM acknowledgements WHERE ? IN ('', cell) ORDER BY at")
        named = rows("SELECT * FROM baselines WHERE ? IN ('', cell) ORDER BY at, rowid")
    read = Rows()
    cells = read.cells(facts)
    return Held(
        launches=read.launches(launches, cells),
        gates=read.gates(gates),
        acknowledgements=read.acknowledgements(accepted),
        baselines=read.baselines(named),
        said="; ".join(filter(None, (said, read.said))),
    )


def _insert_launch(connection: sqlite3.Connection, launch: HistoryLaunch) -> int:
    """1 for a new one, 0 for one that is there."""
    connection.execute(
        "INSERT OR IGNORE INTO cells VALUES (?, ?)", (launch.cell, _json(dict(sorted(launch.facts.items()))))
    )
    row = {name: getattr(launch, name) for name in LAUNCH_COLUMNS}
    row |= {
        "kind": str(launch.kind),
        "outcome": str(launch.outcome),
        "commit_id": launch.commit,
        "phases_ns_per_token": _json(dict(launch.phases_ns_per_token)),
    }
    return connection.execute(_insert("launches", tuple(row), verb="INSERT OR IGNORE"), row).rowcount


def _insert(table: str, columns: Sequence[str], *, verb: str = "INSERT") -> str:
    """Names of our own dataclasses alone: values are bound."""
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"


def _json(value: Any) -> str:
    return json.dumps(finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _log_rate(rate: Interval | None) -> tuple[float | None, float | None]:
    """Mean of log tok/s and its standard error; None for what is no finite number above 0."""
    if rate is None or not 0 < rate.estimate < math.inf:
        return None, None
    if rate.num_samples < 2 or not 0 < rate.low <= rate.high < math.inf:
        return math.log(rate.estimate), None
    from scipy.special import stdtrit

    quantile = float(stdtrit(rate.num_samples - 1, (1 + rate.level) / 2))
    return math.log(rate.estimate), (math.log(rate.high) - math.log(rate.low)) / (2 * quantile)


def _phases(summary: RunSummary) -> dict[str, float]:
    num_tokens = sum(window.num_tokens for window in summary.windows if window.kind is WindowKind.MEASURE)
    if not num_tokens:
        return {}
    costs: dict[str, float] = {}
    for row in summary.phases:
        name = f"{row.lane.role} {row.phase}"
        costs[name] = costs.get(name, 0.0) + row.self_ns / num_tokens
    return costs
