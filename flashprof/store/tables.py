"""The tables of a run folder as Parquet, for pandas and everything else that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashprof.contracts.results import LaneRow, PhaseRow, Window


def write_windows(path: Path, windows: Iterable[Window]) -> None:
    """One row a window, as `Window.row`."""
    _write(path, [window.row() for window in windows])


def write_phases(path: Path, rows: Iterable[tuple[str, PhaseRow]]) -> None:
    """One row a window and phase; the window's label is in `window`, the lane in four columns."""
    _write(path, [_flat(label, row) for label, row in rows])


def write_lanes(path: Path, rows: Iterable[tuple[str, LaneRow]]) -> None:
    """One row a window and lane, with `covered_share`."""
    _write(path, [{**_flat(label, row), "covered_share": row.covered_share} for label, row in rows])


def _flat(label: str, row: PhaseRow | LaneRow) -> dict[str, Any]:
    fields = asdict(row)
    return {"window": label, **fields.pop("lane"), **fields}


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    import pandas as pd

    plain = pd.DataFrame([{name: _plain(value) for name, value in row.items()} for row in rows])
    part = path.with_name(f".{path.name}.tmp")
    plain.to_parquet(part, index=False)
    part.replace(path)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value
