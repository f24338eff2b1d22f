"""What is in the file stays, is not answered again, and never mixes with answers of other settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from pipeline.data.conversations import to_conversation
from pipeline.data.shards import read_shard
from pipeline.evaluate.answer_file import AnswerFile, Regenerated, conversations_digest

SETTINGS = {"target": "x", "max_turns": 3}


def answered(number: int, *, said: str = "gut, 你好\n“”") -> Regenerated:
    messages = [{"role": "user", "content": "wie geht es?"}, {"role": "assistant", "content": said}]
    return Regenerated(id=number, messages=messages, num_answers=1, num_cut=0, num_empty=0, num_tokens=2)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), batches=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_a_file_cut_off_anywhere_keeps_its_whole_lines_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, batches: list[int]
) -> None:
    path = tmp_path_factory.mktemp("answers") / "out.jsonl"
    file = AnswerFile(path, SETTINGS)
    number = 0
    for size in batches:
        file.append([answered(number + i) for i in range(size)])
        number += size
    raw = path.read_bytes()
    cut = data.draw(st.integers(0, len(raw)))
    path.write_bytes(raw[:cut])
    whole = raw[:cut].count(b"\n")

    again = AnswerFile(path, SETTINGS)

    assert frozenset(range(whole)) == again.done_ids
    again.append([answered(i) for i in range(whole, number)])

    assert raw == path.read_bytes()


def test_lines_are_conversations_that_the_trainer_reads(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.jsonl"
    AnswerFile(path, SETTINGS).append([answered(0), answered(4)])

    assert [answered(0).messages, answered(4).messages] == [
        to_conversation(fields, where) for where, fields in read_shard(path)
    ]


@pytest.mark.parametrize("other", [{"target": "y", "max_turns": 3}, {"target": "x", "max_turns": 2}])
def test_answers_of_other_settings_are_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    path = tmp_path / "out.jsonl"
    AnswerFile(path, SETTINGS).append([answered(0)])
    with pytest.raises(UsageError, match="other options") as caught:
        AnswerFile(path, other)

    assert "another --out" in str(caught.value.next_command)


OTHER_LINES = ['{"messages": [{"role": "user"}]}', "prose", "[1]", "7", '{"id": "x", "settings": "y"}']


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("line", OTHER_LINES)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, line: str, end: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(line + end, encoding="utf-8")
    with pytest.raises(FormatError, match="not one of `regenerate`"):
        AnswerFile(path, SETTINGS)

    assert line + end == path.read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ToolError, match="cannot write"):
        AnswerFile(tmp_path / "file" / "out.jsonl", SETTINGS).append([answered(0)])


def test_sources_are_told_apart_by_any_word() -> None:
    one, other = ([answered(0, said=word).messages] for word in ("a", "b"))

    assert conversations_digest(one) != conversations_digest(other)
    assert conversations_digest(one) == conversations_digest(json.loads(json.dumps(one)))
