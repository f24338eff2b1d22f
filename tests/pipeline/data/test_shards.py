"""Every kind of file gives the same records, and a wrong one is named with its line or row."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FlashProfError, FormatError, UsageError
from pipeline.data.shards import find_shards, fingerprint, read_shard

Records = Sequence[dict[str, Any]]


def write_lines(path: Path, records: Records) -> None:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_stream(path: Path, records: Records) -> None:
    table = pa.Table.from_pylist(list(records))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_file(path: Path, records: Records) -> None:
    table = pa.Table.from_pylist(list(records))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_parquet(path: Path, records: Records) -> None:
    pq.write_table(pa.Table.from_pylist(list(records)), path, row_group_size=2)


def save_to_disk(path: Path, records: Records) -> None:
    datasets.Dataset.from_list(list(records)).save_to_disk(path, num_shards=min(2, len(records)))
    # What `map` leaves behind in such a folder is no shard.
    write_stream(path / "cache-0123.arrow", [{"input_ids": [99], "loss_mask": [1]}])


WRITERS: dict[str, Callable[[Path, Records], None]] = {
    "x.jsonl": write_lines,
    "x.json": write_lines,
    "x.jsonl.gz": write_lines,
    "x.arrow": write_stream,
    "y.arrow": write_file,
    "x.parquet": write_parquet,
}

token_records = st.lists(
    st.lists(st.integers(0, 99), min_size=1, max_size=4).map(
        lambda ids: {"input_ids": ids, "loss_mask": [1] * len(ids)}
    ),
    min_size=1,
    max_size=7,
)
chat_records = st.lists(
    st.lists(st.text(max_size=4), min_size=1, max_size=3).map(
        lambda texts: {"messages": [{"role": "user", "content": text} for text in texts]}
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=20, deadline=None)
@given(records=token_records | chat_records)
def test_records_read_back_from_every_kind_of_file(
    tmp_path_factory: pytest.TempPathFactory, name: str, records: Records
) -> None:
    path = tmp_path_factory.mktemp("shards") / name
    WRITERS[name](path, records)

    assert find_shards(path) == (path,)
    assert list(records) == [fields for _, fields in read_shard(path)]


def test_a_saved_data_set_reads_back_in_order_without_left_overs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    records = [{"input_ids": [i], "loss_mask": [1]} for i in range(7)]
    save_to_disk(tmp_path / "saved", records)

    assert records == [fields for shard in find_shards(tmp_path / "saved") for _, fields in read_shard(shard)]


def test_a_folder_is_its_readable_files_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.parquet", "README.md", ".hidden.jsonl", "c.arrow"):
        (tmp_path / name).touch()
    (tmp_path / "d.jsonl").mkdir()

    assert [shard.name for shard in find_shards(tmp_path)] == ["a.parquet", "b.jsonl", "c.arrow"]


def test_places_are_lines_from_one_and_rows_from_zero(tmp_path: Path) -> None:
    records = [{"input_ids": [1], "loss_mask": [1]}] * 3
    (tmp_path / "x.jsonl").write_text("\n" + "\n\n".join(map(json.dumps, records)))
    write_parquet(tmp_path / "x.parquet", records)

    assert [f"{tmp_path}/x.jsonl:{line}" for line in (2, 4, 6)] == [
        place for place, _ in read_shard(tmp_path / "x.jsonl")
    ]
    assert [f"{tmp_path}/x.parquet, row {row}" for row in range(3)] == [
        place for place, _ in read_shard(tmp_path / "x.parquet")
    ]


def test_columns_that_are_not_needed_are_not_read(tmp_path: Path) -> None:
    write_parquet(tmp_path / "x.parquet", [{"input_ids": [1], "loss_mask": [1], "hidden": [0.5] * 9}])

    assert [fields for _, fields in read_shard(tmp_path / "x.parquet")] == [{"input_ids": [1], "loss_mask": [1]}]


GOOD = '{"input_ids": [1], "loss_mask": [1]}\n'
WRONG_LINES = {
    "broken": (GOOD + '{"input_ids": [1', 2, "broken JSON"),
    "array": ('[\n{"messages": []}]', 1, "one JSON array"),
    "number": (GOOD + "5\n", 2, "this is no object"),
    "columns": (GOOD + '{"text": "x", "input_ids": [1]}\n', 2, "neither a sample nor a conversation"),
    "bytes": (GOOD.encode() + b'{"messages": "\xff"}', 1, "cannot read the file"),
    "gzip": (gzip.compress((GOOD * 9).encode())[:-9], 1, "cannot read the file"),
    "no gzip": (GOOD, 1, "cannot read the file"),
}


@pytest.mark.parametrize("name", WRONG_LINES)
def test_a_wrong_line_is_named(tmp_path: Path, name: str) -> None:
    content, line, what = WRONG_LINES[name]
    path = tmp_path / ("x.jsonl.gz" if "gzip" in name else "x.jsonl")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FormatError) as caught:
        list(read_shard(path))

    assert what in caught.value.what
    assert str(caught.value.where).startswith(f"{path}:")
    if what != "cannot read the file":
        assert f"{path}:{line}" == caught.value.where


def test_an_array_says_how_to_make_lines_of_it(tmp_path: Path) -> None:
    (tmp_path / "chats.json").write_text('[{"messages": []}]')
    with pytest.raises(FormatError) as caught:
        list(read_shard(tmp_path / "chats.json"))

    assert f"jq -c '.[]' {tmp_path}/chats.json > {tmp_path}/chats.jsonl" == caught.value.next_command


def test_wrong_columns_name_those_that_are_there(tmp_path: Path) -> None:
    write_parquet(tmp_path / "x.parquet", [{"text": "x", "tokens": [1]}])
    with pytest.raises(FormatError) as caught:
        list(read_shard(tmp_path / "x.parquet"))

    assert (caught.value.offered, caught.value.where) == ("text, tokens", str(tmp_path / "x.parquet"))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("content", [b"", b"ARROW1 but no more", b"PAR1 and so on"])
def test_what_is_no_such_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FlashProfError) as caught:
        list(read_shard(tmp_path / name))

    assert str(caught.value.where).startswith(str(tmp_path / name))


def test_a_file_without_rows_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"input_ids": [], "loss_mask": []}), tmp_path / "x.parquet")
    with pytest.raises(FormatError, match="holds no record"):
        list(read_shard(tmp_path / "x.parquet"))


def test_a_missing_path_offers_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").touch()
    with pytest.raises(UsageError, match=r"did you mean 'chats\.jsonl'"):
        find_shards(tmp_path / "chat.jsonl")


@pytest.mark.parametrize("name", ["notes.txt", "."])
def test_nothing_readable_names_what_would_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError) as caught:
        find_shards(tmp_path / name)

    assert ".jsonl" in str(caught.value.allowed)
    assert "save_to_disk" in str(caught.value.allowed)


@pytest.mark.parametrize("state", ["{}", "[", '{"_data_files": [{}]}'])
def test_a_broken_list_of_shards_is_named(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(FormatError) as caught:
        find_shards(tmp_path)

    assert str(tmp_path / "state.json") == caught.value.where


def test_a_listed_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data-0.arrow"}]}')
    with pytest.raises(UsageError) as caught:
        fingerprint(find_shards(tmp_path))

    assert str(tmp_path / "data-0.arrow") == caught.value.where
