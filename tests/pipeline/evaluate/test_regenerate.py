"""Every answer is the target's own greedy one, in the light of the new answers before it; what is lost is counted."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import make_tiny_llama

from pipeline.data.conversations import Conversation
from pipeline.data.tokenizer import train_bpe
from pipeline.evaluate.regenerate import Answer, TargetAnswerer, answer_batch, plan_conversation_batches

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCAB_SIZE = 300


def say(*contents: str, system: bool = False) -> Conversation:
    head = [{"role": "system", "content": "be kind"}] if system else []
    return head + [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


class Echo:
    """Answers with what it was asked; a prompt that mentions `long` is too long."""

    def __init__(self) -> None:
        self.asked: list[list[Conversation]] = []

    def answer(self, prompts: Sequence[Conversation]) -> list[Answer | None]:
        self.asked.append(list(prompts))
        return [
            None
            if "long" in prompt[-1]["content"]
            else Answer(text=f"<{prompt[-1]['content']}>", is_cut="cut" in prompt[-1]["content"], num_tokens=2)
            for prompt in prompts
        ]


def test_later_turns_see_the_new_answers_and_no_old_one() -> None:
    conversations = [say("a", "old", "b", "old"), say("c", "old", system=True)]
    echo = Echo()
    first, second = answer_batch(conversations, [0, 1], echo, max_turns=3)

    assert say("a", "<a>", "b", "<b>") == first.messages
    assert say("c", "<c>", system=True) == second.messages
    assert [say("a"), say("c", system=True)] == echo.asked[0]
    assert [say("a", "<a>", "b")] == echo.asked[1]
    assert (2, 1) == (first.num_answers, second.num_answers)


@pytest.mark.parametrize(
    ("contents", "max_turns", "expected"),
    [
        (("a", "x", "b", "x", "c", "x"), 2, ("a", "<a>", "b", "<b>")),
        (("a", "x", "long", "x", "c", "x"), 3, ("a", "<a>")),
        (("a", "x", "b"), 3, ("a", "<a>")),
    ],
)
def test_a_conversation_ends_with_its_last_new_answer(
    contents: tuple[str, ...], max_turns: int, expected: tuple[str, ...]
) -> None:
    (regenerated,) = answer_batch([say(*contents)], [0], Echo(), max_turns=max_turns)

    assert say(*expected) == regenerated.messages


def test_what_is_cut_and_what_is_left_out_is_counted() -> None:
    conversations = [say("long", "x"), say("cut", "x", "cut", "x", "b", "x")]
    (regenerated,) = answer_batch(conversations, [0, 1], Echo(), max_turns=3)

    assert (1, 2, 3, 6) == (regenerated.id, regenerated.num_cut, regenerated.num_answers, regenerated.num_tokens)


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=12),
    done=st.sets(st.integers(0, 11)),
    batch_size=st.integers(1, 5),
    max_turns=st.integers(1, 3),
)
def test_batches_hold_all_that_is_left_once_and_the_longest_first(
    shapes: list[list[int]], done: set[int], batch_size: int, max_turns: int
) -> None:
    conversations = [say(*("x" * n for n in lengths)) for lengths in shapes]
    batches = plan_conversation_batches(conversations, frozenset(done), batch_size=batch_size, max_turns=max_turns)
    order = [i for ids in batches for i in ids]

    def cost(i: int) -> tuple[int, int]:
        num_turns = min(max_turns, len(shapes[i]) // 2)
        return num_turns, sum(shapes[i][: 2 * num_turns - 1])

    assert {i for i, lengths in enumerate(shapes) if len(lengths) > 1} - done == set(order)
    assert len(set(order)) == len(order)
    assert all(0 < len(ids) <= batch_size for ids in batches)
    assert sorted(map(cost, order), reverse=True) == [cost(i) for i in order]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_object=train_bpe(["hello assistant, hello user\n"] * 9, 280))
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    fast.chat_template = TEMPLATE
    return fast


@pytest.fixture(scope="module")
def model() -> Any:
    return make_tiny_llama(VOCAB_SIZE).eval()


PROMPTS = [say("hello user"), say("hi"), say("hello assistant, hello user, hello assistant", "x", "y")]


@torch.no_grad()
def alone(model: Any, tokenizer: Any, prompt: Conversation, num_tokens: int) -> list[int]:
    """Greedy ids by whole passes over one unpadded text."""
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    num_prompt = len(ids)
    for _ in range(num_tokens):
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return [int(token) for token in ids[num_prompt:]]


def test_batched_answers_are_those_that_each_prompt_gets_alone(model: Any, tokenizer: Any) -> None:
    answerer = TargetAnswerer(model, tokenizer, max_new_tokens=6, max_length=99)
    answers = answerer.answer(PROMPTS)
    expected = [alone(model, tokenizer, prompt, 6) for prompt in PROMPTS]

    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in expected] == [
        answer.text if answer else None for answer in answers
    ]
    assert [(True, 6)] * 3 == [(answer.is_cut, answer.num_tokens) for answer in answers if answer]


def test_an_answer_ends_before_its_stop_token_and_what_others_still_say_is_not_in_it(
    model: Any, tokenizer: Any
) -> None:
    own = [alone(model, tokenizer, prompt, 6) for prompt in PROMPTS]
    stop_id = own[0][2]
    stopping = copy.deepcopy(model)
    stopping.generation_config.eos_token_id = [stop_id, 1]
    answers = TargetAnswerer(stopping, tokenizer, max_new_tokens=6, max_length=99).answer(PROMPTS)
    first = answers[0]

    assert first is not None
    assert not first.is_cut
    assert own[0].index(stop_id) == first.num_tokens
    assert tokenizer.decode(own[0][: first.num_tokens], skip_special_tokens=True) == first.text


def test_a_generation_config_that_changes_the_likeliest_token_is_not_followed(model: Any, tokenizer: Any) -> None:
    penalising = copy.deepcopy(model)
    penalising.generation_config.repetition_penalty = 9.0
    penalising.generation_config.no_repeat_ngram_size = 1
    penalising.generation_config.num_beams = 2
    answerers = [TargetAnswerer(m, tokenizer, max_new_tokens=12, max_length=99) for m in (model, penalising)]
    plain, penalised = (answerer.answer(PROMPTS) for answerer in answerers)

    assert plain == penalised


def test_a_prompt_that_is_too_long_gets_no_answer_and_the_others_theirs(model: Any, tokenizer: Any) -> None:
    everyone = TargetAnswerer(model, tokenizer, max_new_tokens=3, max_length=99).answer(PROMPTS)
    lengths = [
        len(tokenizer(tokenizer.apply_chat_template(p, tokenize=False, add_generation_prompt=True))["input_ids"])
        for p in PROMPTS
    ]
    some = TargetAnswerer(model, tokenizer, max_new_tokens=3, max_length=max(lengths)).answer(PROMPTS)
    nobody = TargetAnswerer(model, tokenizer, max_new_tokens=3, max_length=1).answer(PROMPTS)

    assert [*everyone[:2], None] == some
    assert [None] * 3 == nobody
