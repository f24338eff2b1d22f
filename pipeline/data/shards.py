"""A user's files: found, told apart by suffix, and read record by record, each with the place it came from."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from flashprof.contracts.errors import FormatError, UsageError
from pipeline.data.paths import missing_path

LINE_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
COLUMN_SUFFIXES = (".arrow", ".parquet")
ALLOWED = f"{', '.join(LINE_SUFFIXES + COLUMN_SUFFIXES)}, a folder of these, or one of `datasets.save_to_disk`"
STATE_FILE = "state.json"
"""Of `save_to_disk`: lists the shards. Other Arrow files in such a folder are left-overs of `map`."""
NUM_ROWS_A_READ = 1024

Record = tuple[str, dict[str, Any]]
"""Its place, such as `chats.jsonl:17`, and its fields."""
TOKEN_COLUMNS = ("input_ids", "loss_mask")
CHAT_COLUMNS = ("messages", "conversations")


def find_shards(path: Path) -> tuple[Path, ...]:
    """
    The files to read, in order.

    Raises:
        UsageError: There is no such path, or nothing in it that can be read; offers a near match.
    """
    if not path.exists():
        raise missing_path(path, "file or folder", allowed=ALLOWED)
    shards = _in_folder(path) if path.is_dir() else (path,) * _is_readable(path)
    if not shards:
        raise UsageError("no samples or conversations here, by the files' suffixes", where=str(path), allowed=ALLOWED)
    return shards


def fingerprint(shards: tuple[Path, ...]) -> list[tuple[str, int, int]]:
    """
    Path, bytes and time of change (ns) of each file: what tells a cache that it is out of date.

    Raises:
        UsageError: A shard that a folder lists is not there.
    """
    try:
        stats = [path.stat() for path in shards]
    except OSError as error:
        raise UsageError(f"cannot read a shard: {error.strerror}", where=str(error.filename)) from error
    return [(str(path.resolve()), stat.st_size, stat.st_mtime_ns) for path, stat in zip(shards, stats, strict=True)]


def read_shard(path: Path) -> Iterator[Record]:
    """
    Every record of a file, one at a time, as Python objects.

    Raises:
        FormatError: The file is empty, broken, or has none of the known columns.
    """
    records = _read_columns(path) if path.suffix in COLUMN_SUFFIXES else _read_lines(path)
    is_empty = True
    for record in records:
        is_empty = False
        yield record
    if is_empty:
        raise FormatError("the file holds no record", where=str(path), allowed="at least one line or row")


def _in_folder(folder: Path) -> tuple[Path, ...]:
    state = folder / STATE_FILE
    if not state.exists():
        return tuple(sorted(path for path in folder.iterdir() if _is_readable(path)))
    try:
        names = [entry["filename"] for entry in json.loads(state.read_text(encoding="utf-8"))["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "cannot read the list of shards", where=str(state), allowed="as `datasets.save_to_disk` writes it"
        ) from error
    return tuple(folder / name for name in names)


def _is_readable(path: Path) -> bool:
    return path.is_file() and path.name.endswith(LINE_SUFFIXES + COLUMN_SUFFIXES) and not path.name.startswith(".")


def _read_lines(path: Path) -> Iterator[Record]:
    number = 0
    try:
        with _open_lines(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parse_line(line, f"{path}:{number}")
    # gzip raises EOFError where a file was cut off, and zlib's error where it is damaged.
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FormatError(f"cannot read the file: {error}", where=f"{path}:{number + 1}") from error


def _open_lines(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _parse_line(line: str, where: str) -> Record:
    if line.lstrip().startswith("["):
        path = where.rpartition(":")[0]
        raise FormatError(
            "this is one JSON array, which would have to lie in memory as a whole",
            where=where,
            allowed="JSON Lines: an object a line",
            next_command=f"jq -c '.[]' {path} > {Path(path).with_suffix('.jsonl')}",
        )
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise FormatError(
            f"broken JSON: {error}", where=where, offered=line.strip()[:60], allowed="JSON Lines: an object a line"
        ) from error
    if not isinstance(fields, dict):
        raise FormatError("this is no object", where=where, offered=line.strip()[:60], allowed="an object a line")
    _check_columns(fields, where)
    return where, fields


def _read_columns(path: Path) -> Iterator[Record]:
    number = 0
    try:
        for batch in _batches(path):
            columns = _check_columns(batch.schema.names, str(path))
            for row in zip(*(batch.column(name) for name in columns), strict=True):
                yield f"{path}, row {number}", {name: value.as_py() for name, value in zip(columns, row, strict=True)}
                number += 1
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"cannot read the file: {error}", where=f"{path}, row {number}") from error


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The record batches, as few columns as will do."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            known = [name for name in file.schema_arrow.names if name in TOKEN_COLUMNS + CHAT_COLUMNS]
            # Without a known column, all of them: the message names what is there.
            yield from file.iter_batches(NUM_ROWS_A_READ, columns=known or None)
        return
    with pa.memory_map(str(path)) as source:
        # However large, a batch is only mapped: its rows are read as they are asked for.
        yield from _arrow_batches(source)


def _arrow_batches(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    if is_file:
        reader = pa.ipc.open_file(source)
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return iter(pa.ipc.open_stream(source))


def _check_columns(names: Any, where: str) -> tuple[str, ...]:
    """The columns that are read: both of a sample, or one of a conversation."""
    if all(name in names for name in TOKEN_COLUMNS):
        return TOKEN_COLUMNS
    for name in CHAT_COLUMNS:
        if name in names:
            return (name,)
    raise FormatError(
        "neither a sample nor a conversation",
        where=where,
        offered=", ".join(map(str, names)) or "no columns",
        allowed="input_ids and loss_mask, or messages, or conversations (ShareGPT)",
    )
