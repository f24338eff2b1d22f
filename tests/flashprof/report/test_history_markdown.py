"""The history as Markdown keeps its tables whole, whatever is in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from histories import steps, stored

from flashprof.app.history import show
from flashprof.report.history_markdown import render_history_markdown


def test_each_row_has_as_many_cells_as_its_header(tmp_path: Path) -> None:
    history = show(stored(tmp_path / "h.sqlite", steps((20, 0.0), (12, -0.06))))
    (series,) = history.series
    spoilt = replace(series, changes=tuple(replace(change, run_id="a|b\nc") for change in series.changes))
    lines = render_history_markdown(replace(history, series=(spoilt,))).splitlines()
    rows = [line.replace("\\|", "") for line in lines if line.startswith("|")]

    assert 3 == len(rows)
    assert {7} == {row.count("|") for row in rows}
