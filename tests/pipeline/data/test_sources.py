"""From a user's file to the columns that training reads, for conversations and for samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashprof.contracts.errors import FlashProfError, UsageError
from pipeline.data.samples import Samples, open_samples
from pipeline.presets import Preset

CHATS = [
    {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]},
    {"conversations": [{"from": "human", "value": "1"}, {"from": "gpt", "value": "ok"}]},
    {"messages": [{"role": "user", "content": "nobody answers"}]},
    {"messages": [{"role": "user", "content": "<|eot|>"}, {"role": "assistant", "content": "hi"}]},
]


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def open_file(preset: Preset, path: Path, cache: Path) -> Samples:
    return open_samples(replace(preset, data=replace(preset.data, path=str(path))), cache=cache)


def test_conversations_become_samples_and_the_rest_is_counted(
    tmp_path: Path, chat_preset: Preset, make_tokenizer: Callable[[str], Any]
) -> None:
    samples = open_file(chat_preset, write_lines(tmp_path / "c.jsonl", CHATS), tmp_path / "cache")
    tokenizer = make_tokenizer("headers")
    rows = list(samples.dataset)
    said = [
        tokenizer.decode([token for token, bit in zip(row["input_ids"], row["loss_mask"], strict=True) if bit])
        for row in rows
    ]

    assert said == ["hi<|eot|>", "ok<|eot|>"]
    assert [row["loss_mask"].index(1) for row in rows] == samples.first_supervised_N.tolist()
    assert samples.info.dropped == {"have no assistant turn": 1, "spell a special token": 1}
    assert (samples.info.vocab_size, samples.info.mask_token_id) == (320, 319)


def test_conversations_in_parquet_read_as_those_in_lines(tmp_path: Path, chat_preset: Preset) -> None:
    pq.write_table(pa.Table.from_pylist(CHATS[:1]), tmp_path / "c.parquet")
    lines = open_file(chat_preset, write_lines(tmp_path / "c.jsonl", CHATS[:1]), tmp_path / "cache")
    columns = open_file(chat_preset, tmp_path / "c.parquet", tmp_path / "cache")

    assert lines.dataset[:] == columns.dataset[:]
    assert lines.info.cache_path != columns.info.cache_path


def test_a_folder_may_hold_conversations_and_samples(tmp_path: Path, chat_preset: Preset) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write_lines(folder / "1.jsonl", [{"input_ids": [5, 6], "loss_mask": [0, 1]}])
    write_lines(folder / "2.jsonl", CHATS)

    assert open_file(chat_preset, folder, tmp_path / "cache").info.num_samples == 3


WRONG: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "id": ([{"input_ids": [1, 2000], "loss_mask": [1, 1]}], "a token id is not in the vocabulary", ":1"),
    "length": ([{"input_ids": [1, 2], "loss_mask": [1]}], "not of one length", ":1"),
    "columns": ([{"text": "x"}], "neither a sample nor a conversation", ":1"),
    "tokenizer": (CHATS, "conversations need a target with a tokenizer", ""),
    "empty": ([], "the file holds no record", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_named_and_leaves_nothing_half_built(tmp_path: Path, token_preset: Preset, name: str) -> None:
    records, what, line = WRONG[name]
    path = write_lines(tmp_path / "x.jsonl", [{"input_ids": [1], "loss_mask": [1]}] * 2000 * bool(records) + records)
    with pytest.raises(FlashProfError) as caught:
        open_file(token_preset, path, tmp_path / "cache")

    assert what in caught.value.what
    assert not line or str(caught.value.where).startswith(f"{path}:2001")
    assert [entry for entry in (tmp_path / "cache").rglob("*") if entry.suffix != ".lock"] == [
        tmp_path / "cache" / "samples"
    ]


def test_no_answer_anywhere_is_an_error(tmp_path: Path, chat_preset: Preset) -> None:
    with pytest.raises(UsageError) as caught:
        open_file(chat_preset, write_lines(tmp_path / "c.jsonl", [CHATS[2]] * 3), tmp_path / "cache")

    assert caught.value.offered == "3 have no assistant turn"


def test_a_target_without_a_mask_says_how_to_choose_one(tmp_path: Path, chat_preset: Preset) -> None:
    preset = replace(chat_preset, target=replace(chat_preset.target, mask_token_id=None))
    with pytest.raises(UsageError, match="no mask token is known") as caught:
        open_file(preset, write_lines(tmp_path / "c.jsonl", CHATS), tmp_path / "cache")

    assert str(caught.value.next_command).startswith("--mask-token-id ")
