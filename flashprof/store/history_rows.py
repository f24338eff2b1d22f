"""Rows of the history's tables, each decoded for itself: one that cannot be read is left out by name, and no other."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.history import Acknowledgement, Baseline, HistoryGate, HistoryLaunch
from flashprof.store.from_json import from_json
from flashprof.store.safe_read import printable

MAX_LOG_RATE = 50.0
"""Of a launch that is one: e⁵⁰ is 5·10²¹ tok/s. The interval of two launches at both ends still fits into a float."""
NUM_NAMED = 3
"""Rows that a note names."""
LAUNCH_COLUMNS = tuple(field.name for field in fields(HistoryLaunch) if field.name not in ("facts", "commit"))

Row = TypeVar("Row")
Decode = Callable[[sqlite3.Row], Row]


class Rows:
    """Decodes rows, and keeps what is to be said of those that are left out."""

    def __init__(self) -> None:
        self._left_out: list[str] = []

    @property
    def said(self) -> str:
        """How many rows are left out, and which; empty where none is."""
        num = len(self._left_out)
        if not num:
            return ""
        more = f"; and {num - NUM_NAMED} more" if num > NUM_NAMED else ""
        what = "row of the history cannot be read and is" if num == 1 else "rows of the history cannot be read and are"
        return f"{num} {what} left out: {'; '.join(self._left_out[:NUM_NAMED])}{more}"

    def cells(self, rows: Sequence[sqlite3.Row]) -> dict[str, Mapping[str, str] | None]:
        """Facts by cell; None for facts that cannot be read."""
        found: dict[str, Mapping[str, str] | None] = {row["cell"]: None for row in rows}
        return {**found, **dict(self._each(rows, _facts, "cell", "cell"))}

    def launches(
        self, rows: Sequence[sqlite3.Row], cells: Mapping[str, Mapping[str, str] | None]
    ) -> tuple[HistoryLaunch, ...]:
        """
        Launches, in the order of their rows.

        Args:
            rows: Of their table.
            cells: From `cells`.
        """
        return self._each(rows, lambda row: _launch(row, cells), "launch", "run_id")

    def gates(self, rows: Sequence[sqlite3.Row]) -> tuple[HistoryGate, ...]:
        """Gates, in the order of their rows."""
        return self._each(rows, _gate, "gate", "gate")

    def acknowledgements(self, rows: Sequence[sqlite3.Row]) -> tuple[Acknowledgement, ...]:
        """What somebody accepted, in the order of the rows."""
        return self._each(rows, lambda row: from_json(Acknowledgement, dict(row), "row"), "acceptance of", "run_id")

    def baselines(self, rows: Sequence[sqlite3.Row]) -> tuple[Baseline, ...]:
        """Levels with a name, in the order of their rows."""
        return self._each(rows, _baseline, "baseline", "name")

    def _each(self, rows: Sequence[sqlite3.Row], decode: Decode[Row], noun: str, key: str) -> tuple[Row, ...]:
        found = []
        for row in rows:
            try:
                found.append(decode(row))
            except (ValueError, TypeError, OverflowError, LookupError) as error:
                name = printable(str(dict(row).get(key)), most=60)
                self._left_out.append(f"{noun} {name} ({printable(str(error))})")
        return tuple(found)


def _facts(row: sqlite3.Row) -> tuple[str, Mapping[str, str]]:
    facts = _parsed(row["facts"])
    if not isinstance(facts, dict) or not all(isinstance(text, str) for text in facts.values()):
        raise TypeError("its facts are no texts")
    return row["cell"], facts


def _launch(row: sqlite3.Row, cells: Mapping[str, Mapping[str, str] | None]) -> HistoryLaunch:
    facts = cells.get(row["cell"], {})
    if facts is None:
        raise ValueError("the facts of its cell cannot be read")
    values = {name: row[name] for name in LAUNCH_COLUMNS}
    values |= {"commit": row["commit_id"], "phases_ns_per_token": _parsed(row["phases_ns_per_token"])}
    launch = from_json(HistoryLaunch, values, "row")
    _check_finite(launch.log_tok_per_s, launch.error, launch.startup_s, *launch.phases_ns_per_token.values())
    if launch.log_tok_per_s is not None and abs(launch.log_tok_per_s) > MAX_LOG_RATE:
        raise ValueError(f"a tok/s of e^{launch.log_tok_per_s:.4g}")
    return replace(launch, facts=facts)


def _gate(row: sqlite3.Row) -> HistoryGate:
    change = _parsed(row["change"]) if row["change"] else None
    gate = from_json(HistoryGate, {**dict(row), "change": change, "is_failed": bool(row["is_failed"])}, "row")
    Verdict(gate.verdict)
    _check_finite(gate.spent_s)
    return gate


def _baseline(row: sqlite3.Row) -> Baseline:
    return from_json(Baseline, {**dict(row), "run_ids": _parsed(row["run_ids"])}, "row")


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _check_finite(*numbers: float | None) -> None:
    if any(number is not None and math.isinf(number) for number in numbers):
        raise ValueError("a number is too large")
