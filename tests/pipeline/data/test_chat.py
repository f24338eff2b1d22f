"""In each kind of template, exactly the assistant's words and their end are supervised, token by token."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import UsageError
from pipeline.data.chat import ChatEncoder, Dropped, special_tokens
from pipeline.data.conversations import Conversation

MakeTokenizer = Callable[[str], Any]


def say(*texts: str) -> Conversation:
    """User and assistant in turns."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def marked(tokenizer: Any, conversation: Conversation, *, max_length: int = 4096) -> str:
    """The text of every token, each that is supervised in brackets of its own."""
    row = ChatEncoder(tokenizer, max_length=max_length, where="t").encode(conversation)
    assert not isinstance(row, Dropped), row
    assert len(row.input_ids_S) == len(row.loss_mask_S) <= max_length
    tokens = [(tokenizer.decode([token]), bit) for token, bit in zip(row.input_ids_S, row.loss_mask_S, strict=True)]
    return "".join(f"[{text}]" if bit else text for text, bit in tokens)


EXPECTED = {
    "thinking": (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n[h][i][<|im_end|>]\n"
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n"
        "[<think>][\n][\n][</think>][\n][\n][o][k][<|im_end|>]\n"
    ),
    "headers": (
        "<|start|><|start_header|>user<|end_header|>\n\nhello<|eot|>"
        "<|start_header|>assistant<|end_header|>\n\n[h][i][<|eot|>]"
        "<|start_header|>user<|end_header|>\n\n1<|eot|>"
        "<|start_header|>assistant<|end_header|>\n\n[o][k][<|eot|>]"
    ),
    "two ends": (
        "<|im_start|>user:hello<|im_end|><|im_start|>assistant:[h][i][<|im_end|>]"
        "<|im_start|>user:1<|im_end|><|im_start|>assistant:[o][k][<|eot|>]"
    ),
    "marked": (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n[h][i][<|im_end|>]\n"
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n[o][k][<|im_end|>]\n"
    ),
}


@pytest.mark.parametrize("template", EXPECTED)
def test_every_token_of_two_turns(make_tokenizer: MakeTokenizer, template: str) -> None:
    assert EXPECTED[template] == marked(make_tokenizer(template), say("hello", "hi", "1", "ok"))


def test_a_past_thought_is_gone_and_the_last_one_is_learnt(make_tokenizer: MakeTokenizer) -> None:
    said = say("1", "<think>2</think>3", "4", "<think>5</think>6")

    assert marked(make_tokenizer("thinking"), said) == (
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n[3][<|im_end|>]\n"
        "<|im_start|>user\n4<|im_end|>\n<|im_start|>assistant\n[<think>][5][</think>][6][<|im_end|>]\n"
    )


@pytest.mark.parametrize("template", EXPECTED)
def test_a_system_message_and_a_tool_are_not_supervised(make_tokenizer: MakeTokenizer, template: str) -> None:
    said = [
        {"role": "system", "content": "assistant"},
        *say("1", "2"),
        {"role": "tool", "content": "3"},
        *say("", "4")[1:],
    ]
    text = marked(make_tokenizer(template), said)

    assert "[2]" in text
    assert "[4]" in text
    assert not any(f"[{letter}]" in text for letter in "3as")


# Lines such as a role's own name are what a search in the rendered text could trip over.
words = st.sampled_from(["hello", "assistant", "user\nuser", "é 😀", "assistant\nhello", "1234", "hi  there", "x\n"])


@settings(max_examples=60, deadline=None)
@given(said=st.lists(st.tuples(words, words), min_size=1, max_size=5), template=st.sampled_from(["headers", "marked"]))
def test_the_assistants_words_and_their_end_are_supervised_and_nothing_else(
    make_tokenizer: MakeTokenizer, said: list[tuple[str, str]], template: str
) -> None:
    tokenizer = make_tokenizer(template)
    row = ChatEncoder(tokenizer, max_length=4096, where="t").encode(say(*(text for pair in said for text in pair)))
    assert not isinstance(row, Dropped)
    end = "<|eot|>" if template == "headers" else "<|im_end|>"
    answers = [answer.strip() if template == "headers" else answer for _, answer in said]

    assert "".join(f"{answer}{end}" for answer in answers) == tokenizer.decode(row.input_ids_S[row.loss_mask_S == 1])


@pytest.mark.parametrize("template", EXPECTED)
def test_a_cut_conversation_is_the_beginning_of_the_whole(make_tokenizer: MakeTokenizer, template: str) -> None:
    tokenizer = make_tokenizer(template)
    said = say(*("hello " * 9, "user " * 9) * 3)
    whole = ChatEncoder(tokenizer, max_length=4096, where="t").encode(said)
    cut = ChatEncoder(tokenizer, max_length=150, where="t").encode(said)
    assert not isinstance(whole, Dropped)
    assert not isinstance(cut, Dropped)

    assert whole.input_ids_S[:150].tolist() == cut.input_ids_S.tolist()
    assert whole.loss_mask_S[:150].tolist() == cut.loss_mask_S.tolist()


@pytest.mark.parametrize(
    ("template", "said", "reason"),
    [
        ("headers", say("hello <|eot|>", "hi"), Dropped.SPECIAL_TOKEN),
        ("marked", say("hello", "<|im_end|>"), Dropped.SPECIAL_TOKEN),
        ("headers", say("hello", "<|mask|>"), Dropped.SPECIAL_TOKEN),
        ("headers", [], Dropped.NO_ASSISTANT),
        ("headers", say("1" * 500, "hi"), Dropped.NOTHING_TO_LEARN),
        ("marked", say("1" * 500, "hi"), Dropped.NOTHING_TO_LEARN),
        ("unstable", say("hello", "hi"), Dropped.UNSTABLE),
    ],
)
def test_what_cannot_be_learnt_from_is_dropped_with_its_reason(
    make_tokenizer: MakeTokenizer, template: str, said: Conversation, reason: Dropped
) -> None:
    assert reason == ChatEncoder(make_tokenizer(template), max_length=200, where="t").encode(said)


def test_an_added_token_that_is_not_special_is_text(make_tokenizer: MakeTokenizer) -> None:
    names = special_tokens(make_tokenizer("headers"))

    assert "<think>" not in names
    assert {"<|eot|>", "<|pad|>", "<|eos|>", "<|mask|>"} <= set(names)
    assert all(a != b for a, b in pairwise(sorted(names)))


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("none", "conversations need a fast tokenizer with a chat template"),
        ("endless", "the chat template puts no special token behind the assistant's words"),
    ],
)
def test_a_template_without_ends_is_refused(make_tokenizer: MakeTokenizer, template: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        ChatEncoder(make_tokenizer(template), max_length=200, where="/models/x")

    assert (what, "/models/x") == (caught.value.what, caught.value.where)
    assert "chat_template.jinja" in str(caught.value.next_command)


def test_what_a_template_refuses_is_named(make_tokenizer: MakeTokenizer) -> None:
    encoder = ChatEncoder(make_tokenizer("refusing"), max_length=200, where="t")
    with pytest.raises(UsageError, match="refuses a conversation: no system") as caught:
        encoder.encode([{"role": "system", "content": "S"}, *say("a", "b")], "chats.jsonl:3")

    assert caught.value.where == "chats.jsonl:3"
