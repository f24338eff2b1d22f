"""Tables of several runs, as pandas and spreadsheets read them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from flashprof.store import export_tables
from flashprof.store.export_tables import TABLES, TableFormat, TableSink, read_table

GAUGE = {"role": "drafter", "rank": 0, "name": "loss", "step": 1, "at_s": 0.5, "value": 2.5}


def write(folder: Path, kind: TableFormat, rows: dict[str, list[dict[str, Any]]]) -> dict[str, Path]:
    paths = {table: folder / f"{table}.{kind}" for table in TABLES}
    with TableSink(paths, kind) as sink:
        for run_id, of_run in rows.items():
            sink.add("gauges", run_id, of_run)
    return paths


@pytest.mark.parametrize("kind", TableFormat)
def test_rows_of_several_runs_are_one_table(tmp_path: Path, kind: TableFormat) -> None:
    path = write(tmp_path, kind, {"one": [GAUGE], "two": [{**GAUGE, "value": 3.0, "more": "x"}]})["gauges"]
    frame = pd.read_csv(path) if kind is TableFormat.CSV else pd.read_parquet(path)

    assert [{"run_id": "one", **GAUGE}, {"run_id": "two", **GAUGE, "value": 3.0}] == frame.to_dict("records")


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    paths = write(tmp_path, TableFormat.PARQUET, {})

    assert {table: list(columns) for table, columns in TABLES.items()} == {
        table: pq.read_schema(path).names for table, path in paths.items()
    }


def test_columns_say_what_they_hold(tmp_path: Path) -> None:
    schema = pq.read_schema(write(tmp_path, TableFormat.PARQUET, {})["gauges"])

    assert b"s after the launch" == schema.field("at_s").metadata[b"description"]


def test_more_rows_than_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_tables, "ROWS_AT_ONCE", 3)
    rows = [{**GAUGE, "step": step} for step in range(8)]
    path = write(tmp_path, TableFormat.PARQUET, {"one": rows})["gauges"]

    assert list(range(8)) == pd.read_parquet(path)["step"].tolist()
    assert 3 == pq.ParquetFile(path).num_row_groups


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=10))
@settings(max_examples=30)
def test_no_name_breaks_a_csv_file(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = write(tmp_path_factory.mktemp("out"), TableFormat.CSV, {"one": [{**GAUGE, "name": name}]})["gauges"]
    with path.open(encoding="utf-8", newline="") as file:
        head, row = csv.reader(file)

    assert name == row[head.index("name")]


@pytest.mark.parametrize("row", [{}, {**GAUGE, "value": "high"}, {**GAUGE, "step": 2**70}])
def test_a_value_of_another_type_is_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, OverflowError)):
        write(tmp_path, TableFormat.PARQUET, {"one": [row]})


def test_a_runs_own_table_comes_back(tmp_path: Path) -> None:
    pd.DataFrame([{"a": 1, "b": "x"}]).to_parquet(tmp_path / "t.parquet")

    assert [{"a": 1, "b": "x"}] == list(read_table(tmp_path / "t.parquet"))
    assert [] == list(read_table(tmp_path / "absent.parquet"))


def bad_tables(folder: Path) -> Iterator[Path]:
    (folder / "text").write_text("no parquet")
    yield folder / "text"
    pd.DataFrame([{"a": 1}]).to_parquet(folder / "whole")
    (folder / "cut").write_bytes((folder / "whole").read_bytes()[:-5])
    yield folder / "cut"
    (folder / "link").symlink_to(folder / "whole")
    yield folder / "link"
    (folder / "folder").mkdir()
    yield folder / "folder"


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    for path in bad_tables(tmp_path):
        with pytest.raises(FormatError, match=path.name):
            list(read_table(path))


def test_the_page_about_exporting_names_every_column_with_its_meaning() -> None:
    page = (Path(__file__).parents[3] / "docs" / "exporting.md").read_text(encoding="utf-8")
    rows = {line.strip() for line in page.splitlines()}

    assert [] == [
        (table, name)
        for table, columns in TABLES.items()
        for name, (kind, what) in columns.items()
        if f"| `{name}` | {kind} | {what} |" not in rows
    ]
