"""Lines of a chat become user and assistant in turns."""

from __future__ import annotations

from typing import Any

from pipeline.data.dialogues import join_turns


def turn(sender: str, *texts: str) -> list[dict[str, Any]]:
    return [{"sender": sender, "text": text} for text in texts]


def test_lines_of_one_side_become_one_message() -> None:
    turns = [turn("x", "Hi", " there "), turn("x", "again"), turn("y", "Yes?", "")]

    assert join_turns(turns) == [
        {"role": "user", "content": "Hi\nthere\nagain"},
        {"role": "assistant", "content": "Yes?"},
    ]


def test_words_that_nobody_answered_are_left_out() -> None:
    assert join_turns([turn("x", "Hello?")]) == []
    assert len(join_turns([turn("x", "a"), turn("y", "b"), turn("x", "c")])) == 2
