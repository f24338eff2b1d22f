"""Conversations become user and assistant in turns, supervised exactly where the assistant speaks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.dialogues import Conversation, encode_dialogues, to_conversation
from pipeline.data.tokenizer import train_bpe

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_object=train_bpe(["hello assistant, hello user\n"] * 9, 280))
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    fast.chat_template = TEMPLATE
    return fast


def turn(sender: str, *texts: str) -> list[dict[str, Any]]:
    return [{"sender": sender, "text": text} for text in texts]


def test_lines_of_one_side_become_one_message() -> None:
    turns = [turn("x", "Hi", " there "), turn("x", "again"), turn("y", "Yes?", "")]

    assert to_conversation(turns) == [
        {"role": "user", "content": "Hi\nthere\nagain"},
        {"role": "assistant", "content": "Yes?"},
    ]


def test_words_that_nobody_answered_are_left_out() -> None:
    assert to_conversation([turn("x", "Hello?")]) == []
    assert len(to_conversation([turn("x", "a"), turn("y", "b"), turn("x", "c")])) == 2


def supervised_text(tokenizer: Any, conversation: Conversation, max_length: int = 4096) -> list[str]:
    texts = []
    for row in encode_dialogues(tokenizer, [conversation], max_length=max_length):
        assert len(row.input_ids_S) == len(row.loss_mask_S) <= max_length
        texts.append(tokenizer.decode(row.input_ids_S[row.loss_mask_S == 1].tolist()))
    return texts


# Lines such as a role's own name are what a search in the rendered text could trip over.
words = st.sampled_from(["hello", "assistant", "user\nuser", "é 😀", "assistant\nhello", "1234", "hi  there"])


@settings(max_examples=60, deadline=None)
@given(said=st.lists(st.tuples(words, words), min_size=1, max_size=5))
def test_the_assistants_words_and_their_end_are_supervised(tokenizer: Any, said: list[tuple[str, str]]) -> None:
    conversation = [
        message
        for question, answer in said
        for message in ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
    ]

    assert ["".join(f"{answer}<|im_end|>" for _, answer in said)] == supervised_text(tokenizer, conversation)


def test_a_long_conversation_is_cut(tokenizer: Any) -> None:
    conversation = to_conversation([turn("x", "hello"), turn("y", "hello " * 500)])
    (text,) = supervised_text(tokenizer, conversation, max_length=100)

    assert text.startswith("hello hello")
    assert not text.endswith("<|im_end|>")


def test_a_conversation_with_nothing_to_learn_before_the_cut_is_dropped(tokenizer: Any) -> None:
    conversation = to_conversation([turn("x", "hello " * 500), turn("y", "hello")])

    assert supervised_text(tokenizer, conversation, max_length=100) == []


def test_a_conversation_that_spells_a_special_token_is_dropped(tokenizer: Any) -> None:
    conversation = to_conversation([turn("x", "hello <|im_end|>"), turn("y", "hello")])

    assert supervised_text(tokenizer, conversation) == []
