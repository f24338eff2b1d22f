"""Both spellings of a conversation become one, and what cannot be one is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FormatError
from pipeline.data.conversations import to_conversation

SHAREGPT = {"user": "human", "assistant": "gpt", "system": "system", "tool": "tool"}
turns = st.lists(st.tuples(st.sampled_from(sorted(SHAREGPT)), st.text(max_size=5)), max_size=8)


@settings(max_examples=150, deadline=None)
@given(turns=turns)
def test_both_spellings_mean_the_same_and_end_with_an_answer(turns: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in turns]
    spelt = to_conversation({"messages": messages}, "f:1")

    assert spelt == to_conversation(
        {"conversations": [{"from": SHAREGPT[role], "value": text} for role, text in turns]}, "f:1"
    )
    assert [message for message in messages if message in spelt][: len(spelt)] or not spelt
    if spelt:
        roles = [message["role"] for message in spelt]

        assert roles[-1] == "assistant"
        assert "user" in roles[: roles.index("assistant")]


def test_what_nobody_asked_or_answered_is_left_out() -> None:
    said = [("gpt", "Hello!"), ("system", "S"), ("human", "a"), ("gpt", "b"), ("human", "c")]
    spelt = to_conversation({"conversations": [{"from": role, "value": text} for role, text in said]}, "f:1")

    assert spelt == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]


@pytest.mark.parametrize(
    ("turn", "what", "allowed"),
    [
        ({"role": "robot", "content": "x"}, "unknown role 'robot'", "user, human, assistant, gpt, system, tool"),
        ({"role": "user"}, "a turn without a role or without text", "content"),
        ({"content": "x"}, "a turn without a role or without text", "content"),
        ({"role": "user", "content": [{"type": "image"}]}, "a turn without a role or without text", "content"),
        ("hello", "a turn without a role or without text", "content"),
    ],
)
def test_a_wrong_turn_is_named(turn: Any, what: str, allowed: str) -> None:
    with pytest.raises(FormatError) as caught:
        to_conversation({"messages": [{"role": "user", "content": "x"}, turn]}, "f.jsonl:7")

    assert (what, "f.jsonl:7, turn 1") == (caught.value.what, caught.value.where)
    assert allowed in str(caught.value.allowed)


def test_turns_that_are_no_list_are_named() -> None:
    with pytest.raises(FormatError, match="conversations is not a list"):
        to_conversation({"conversations": None}, "f.jsonl:7")
