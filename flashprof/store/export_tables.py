"""
The tables of runs as CSV or Parquet, several runs in one table each, columns with their units.

Column descriptions go into Parquet as field metadata (`description`), and into `docs/exporting.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from enum import StrEnum
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from flashprof.contracts.errors import FormatError

ROWS_AT_ONCE = 50_000
"""Of a table that is written while it is read; some 10 MB."""
MAX_TABLE_BYTES = 64 * 2**20
"""Of a run folder's own tables; those of the tiny preset take 0.02 MB."""

Row = Mapping[str, Any]
Columns = Mapping[str, tuple[str, str]]
"""Name → type of Arrow, and what it holds."""

_RUN: Columns = {"run_id": ("string", "name of the run folder")}
_LANE: Columns = {
    "window": ("string", "label of the window"),
    "host": ("string", "name of the machine"),
    "role": ("string", "target, drafter, dispatcher, or what a trainer calls itself"),
    "rank": ("int64", "within the role, from 0"),
    "thread": ("string", "`main`, another thread, or a device stream"),
}
_PROCESS: Columns = {name: _LANE[name] for name in ("role", "rank")}

TABLES: Mapping[str, Columns] = MappingProxyType(
    {
        "windows": {
            **_RUN,
            "label": ("string", "of the window"),
            "kind": ("string", "warmup, measure, profile, or between"),
            "start_ns": ("int64", "ns, by the host's monotonic clock"),
            "end_ns": ("int64", "ns, by the host's monotonic clock"),
            "start_s": ("float64", "s after the launch"),
            "length_s": ("float64", "s, wall time"),
            "num_steps": ("int64", "training steps, the most that one rank finished"),
            "num_tokens": ("int64", "input tokens of all ranks, padding excluded"),
            "num_supervised_tokens": ("int64", "tokens that the loss counts"),
            "num_padding_tokens": ("int64", "tokens of padding"),
            "tok_per_s": ("float64", "tokens/s of wall time"),
            "disturbances": ("string", "what the machine did meanwhile, joined by `; `; empty where nothing did"),
        },
        "phases": {
            **_RUN,
            **_LANE,
            "phase": ("string", "name of the phase"),
            "kind": ("string", "work or wait"),
            "num_calls": ("int64", "spans that ended within a complete cycle"),
            "num_steps": ("int64", "complete cycles of the lane in the window"),
            "self_ns": ("int64", "ns of own time in the window: spans less those within them"),
            "step_p50_ns": ("float64", "ns of own time a cycle, median"),
            "step_p95_ns": ("float64", "ns of own time a cycle, 95th percentile"),
            "share": ("float64", "own time over wall time, 0 to 1"),
        },
        "lanes": {
            **_RUN,
            **_LANE,
            "wall_ns": ("int64", "ns, length of the window"),
            "work_ns": ("int64", "ns of work"),
            "wait_ns": ("int64", "ns of waiting"),
            "num_steps": ("int64", "complete cycles in the window"),
            "num_tokens": ("int64", "tokens of those cycles"),
            "tok_per_s": ("float64", "tokens/s that the lane did"),
            "capacity_tok_per_s": ("float64", "tokens/s if it never waited"),
            "is_limiting": ("bool", "whether it limits the launch"),
            "covered_share": ("float64", "wall time that phases account for, 0 to 1"),
        },
        "frames": {
            **_RUN,
            "window": ("string", "label of the profile window"),
            **_PROCESS,
            "thread": ("string", "`main`, or the thread's name"),
            "view": ("string", "all: wall time; gil: holding the GIL; idle: waiting"),
            "phase": ("string", "phase that the function ran in; empty outside of all"),
            "name": ("string", "of the function"),
            "file": ("string", "shortened path"),
            "line": ("int64", "seen most; 0 where unknown"),
            "self_samples": ("int64", "samples in which it is innermost"),
            "total_samples": ("int64", "samples in which it appears at all"),
            "thread_samples": ("int64", "all samples of the thread in this view and window"),
        },
        "threads": {
            **_RUN,
            "window": ("string", "label of the profile window"),
            **_PROCESS,
            "pid": ("int64", "process id"),
            "tid": ("int64", "thread id"),
            "thread": ("string", "name, at most 15 characters"),
            "usr_pct": ("float64", "% of one core in user code"),
            "system_pct": ("float64", "% of one core in the kernel"),
            "wait_pct": ("float64", "% of the time runnable and not running"),
            "voluntary_switches_per_s": ("float64", "context switches/s, the thread's own"),
            "involuntary_switches_per_s": ("float64", "context switches/s, forced"),
            "seconds": ("float64", "s that it was seen"),
        },
        "gauges": {
            **_RUN,
            **_PROCESS,
            "name": ("string", "of the gauge: queue, loss, …"),
            "step": ("int64", "of the process"),
            "at_s": ("float64", "s after the launch"),
            "value": ("float64", "in the gauge's own unit"),
        },
    }
)


class TableFormat(StrEnum):
    """How tables are written; also the ending of their files."""

    CSV = "csv"
    PARQUET = "parquet"


class _Writer(Protocol):
    def write_batch(self, batch: Any) -> None: ...


class TableSink:
    """Writes all tables of some runs; used as a context manager."""

    def __init__(self, paths: Mapping[str, Path], kind: TableFormat) -> None:
        """*paths*: a file for each of `TABLES`."""
        self._paths = paths
        self._kind = kind
        self._writers: dict[str, tuple[_Writer, Any]] = {}
        self._stack = ExitStack()
        self.num_rows = dict.fromkeys(paths, 0)

    def __enter__(self) -> TableSink:
        """Begin every file: a table without rows has its columns all the same."""
        for table, path in self._paths.items():
            schema = _schema(TABLES[table])
            self._writers[table] = (self._stack.enter_context(self._open(path, schema)), schema)
        return self

    def __exit__(self, *_error: object) -> None:
        """End every file."""
        self._stack.close()

    def add(self, table: str, run_id: str, rows: Iterable[Row]) -> None:
        """
        Append rows of one run; columns that the table does not have are left out.

        Raises:
            ValueError, TypeError, LookupError: A value is not of its column's type, or a column is missing.
        """
        import pyarrow as pa

        writer, schema = self._writers[table]
        names = [name for name in TABLES[table] if name not in _RUN]
        whole = ({"run_id": run_id, **{name: row[name] for name in names}} for row in rows)
        while chunk := list(islice(whole, ROWS_AT_ONCE)):
            writer.write_batch(pa.RecordBatch.from_pylist(chunk, schema=schema))
            self.num_rows[table] += len(chunk)

    def _open(self, path: Path, schema: Any) -> Any:
        if self._kind is TableFormat.CSV:
            from pyarrow.csv import CSVWriter

            return CSVWriter(path, schema)
        from pyarrow.parquet import ParquetWriter

        return ParquetWriter(path, schema)


def read_table(path: Path) -> Iterator[Row]:
    """
    The rows of a Parquet table of a run folder; none where there is no such file.

    Raises:
        FormatError: It is a link, no plain file, larger than such a table is, or no Parquet.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_TABLE_BYTES:
        raise FormatError(
            f"{path.name} is no plain file of a table's size", where=str(path), next_command="measure again"
        )
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise FormatError(f"{path.name} is damaged", where=str(path), next_command="measure again") from error


def _schema(columns: Columns) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(name, pa.type_for_alias(kind), metadata={"description": what})
            for name, (kind, what) in columns.items()
        ]
    )
