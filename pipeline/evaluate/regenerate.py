"""
Conversations whose assistant is the target itself: every answer is replaced by the target's own greedy one.

A drafter that learns from them learns what it will be asked to draft. Conversations are answered turn by turn, a batch
of them at a time, and each batch is on the disk before the next begins: a run that ends early is continued by the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pipeline.data.conversations import ASSISTANT, Conversation
from pipeline.evaluate.answer_file import Regenerated
from pipeline.evaluate.taps import stop_ids


@dataclass(frozen=True)
class Answer:
    """What the target says."""

    text: str
    is_cut: bool
    """It would have gone on: small models loop, and are cut at the limit."""
    num_tokens: int


class Answerer(Protocol):
    """Answers many conversations at once."""

    def answer(self, prompts: Sequence[Conversation]) -> list[Answer | None]:
        """The next words of the assistant in each; None where the conversation is too long already."""
        ...


class TargetAnswerer:
    """
    Greedy answers of a causal LM of transformers.

    Args:
        model: On its device.
        tokenizer: With a chat template; its padding side is set to the left.
        max_new_tokens: An answer's length at most.
        max_length: Tokens; a prompt this long gets no answer.
    """

    def __init__(self, model: Any, tokenizer: Any, *, max_new_tokens: int, max_length: int) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._max_new_tokens = max_new_tokens
        self._max_length = max_length
        self._stop_ids = stop_ids(model)
        self._pad_id = next((i for i in (tokenizer.pad_token_id, *sorted(self._stop_ids)) if i is not None), 0)

    def answer(self, prompts: Sequence[Conversation]) -> list[Answer | None]:
        """The next words of the assistant in each; None where the conversation is too long already."""
        texts = [self._tokenizer.apply_chat_template(p, tokenize=False, add_generation_prompt=True) for p in prompts]
        # Not `apply_chat_template(tokenize=True)`: a template writes its own special tokens, none may be added.
        ids = self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        fitting = [index for index, prompt_ids in enumerate(ids) if len(prompt_ids) < self._max_length]
        answers: list[Answer | None] = [None] * len(prompts)
        if fitting:
            for index, answer in zip(fitting, self._generate([ids[index] for index in fitting]), strict=True):
                answers[index] = answer
        return answers

    @torch.no_grad()
    def _generate(self, ids: list[list[int]]) -> list[Answer]:
        longest = max(len(prompt_ids) for prompt_ids in ids)
        input_ids_BS = torch.full((len(ids), longest), self._pad_id)
        is_token_BS = torch.zeros(len(ids), longest, dtype=torch.int64)
        # On the left: what is generated must follow the prompt's last token at once.
        for row, prompt_ids in enumerate(ids):
            input_ids_BS[row, longest - len(prompt_ids) :] = torch.tensor(prompt_ids)
            is_token_BS[row, longest - len(prompt_ids) :] = 1
        said_BS = self._model.generate(
            input_ids=input_ids_BS.to(self._model.device),
            attention_mask=is_token_BS.to(self._model.device),
            do_sample=False,
            # A generation config may set these for sampling, and is then warned of at every call.
            temperature=None,
            top_p=None,
            top_k=None,
            # Qwen2.5's penalises repetition by 1.05 to 1.1, under which the likeliest token is another one.
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            num_beams=1,
            max_new_tokens=self._max_new_tokens,
            pad_token_id=self._pad_id,
        )[:, longest:]
        return [self._to_answer(row) for row in said_BS.tolist()]

    def _to_answer(self, said: list[int]) -> Answer:
        end = next((index for index, token in enumerate(said) if token in self._stop_ids), None)
        words = said[:end]
        text = self._tokenizer.decode(words, skip_special_tokens=True)
        return Answer(text=text, is_cut=end is None, num_tokens=len(words))


def plan_conversation_batches(
    conversations: Sequence[Conversation], done_ids: frozenset[int], *, batch_size: int, max_turns: int
) -> list[list[int]]:
    """
    What is left to do, as batches of positions: of as many turns and of like length, the longest first.

    Longest first, so that a batch that does not fit the memory fails at once.
    """

    def cost(index: int) -> tuple[int, int]:
        conversation = conversations[index]
        turns = _answer_positions(conversation)[:max_turns]
        return len(turns), sum(len(message["content"]) for message in conversation[: turns[-1]])

    left = [i for i, c in enumerate(conversations) if i not in done_ids and _answer_positions(c)]
    left.sort(key=cost, reverse=True)
    return [left[start : start + batch_size] for start in range(0, len(left), batch_size)]


def answer_batch(
    conversations: Sequence[Conversation], ids: Sequence[int], answerer: Answerer, *, max_turns: int
) -> Iterator[Regenerated]:
    """
    Answer each conversation turn by turn; later turns see the new answers.

    A conversation ends early where it has become too long; one without any answer is left out.

    Args:
        conversations: All of the source.
        ids: Positions of those in this batch.
        answerer: Is asked once a turn, for all that have one.
        max_turns: Answers of a conversation; what follows the last is dropped.
    """
    said: dict[int, Conversation] = {i: [] for i in ids}
    answers: dict[int, list[Answer]] = {i: [] for i in ids}
    going = list(ids)
    for turn in range(max_turns):
        prompts = {i: prompt for i in going if (prompt := _prompt(conversations[i], said[i], turn)) is not None}
        given = answerer.answer(list(prompts.values())) if prompts else []
        going = []
        for (i, prompt), answer in zip(prompts.items(), given, strict=True):
            if answer is not None:
                said[i] = [*prompt, {"role": ASSISTANT, "content": answer.text}]
                answers[i].append(answer)
                going.append(i)
    for i in ids:
        if answers[i]:
            yield Regenerated(
                id=i,
                messages=said[i],
                num_answers=len(answers[i]),
                num_cut=sum(answer.is_cut for answer in answers[i]),
                num_empty=sum(not answer.text for answer in answers[i]),
                num_tokens=sum(answer.num_tokens for answer in answers[i]),
            )


def _prompt(conversation: Conversation, said: Conversation, turn: int) -> Conversation | None:
    """What the assistant is to answer in this turn: all that was said, and what came behind it in the original."""
    positions = _answer_positions(conversation)
    return None if turn >= len(positions) else [*said, *conversation[len(said) : positions[turn]]]


def _answer_positions(conversation: Conversation) -> list[int]:
    return [i for i, message in enumerate(conversation) if message["role"] == ASSISTANT]
