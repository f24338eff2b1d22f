"""Real conversations in a model's chat template, supervised where the assistant speaks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import ToolError
from pipeline.data.arrow import Row
from pipeline.data.smollm2 import NEXT_COMMAND, package_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Conversation = list[dict[str, str]]
"""Messages with `role` and `content`, user first, alternating, the last one the assistant's."""

ROLES = ("user", "assistant")


def read_conversations() -> list[Conversation]:
    """
    The conversations of chitchat-dataset in which both sides speak.

    Raises:
        UsageError: The extra `smollm2` is not installed.
        ToolError: The package's data cannot be read.
    """
    path = package_folder("chitchat_dataset") / "dataset.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        conversations = [to_conversation(item["messages"]) for item in raw.values()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"cannot read the dialogues: {error}", where=str(path), next_command=NEXT_COMMAND) from error
    return [conversation for conversation in conversations if conversation]


def to_conversation(turns: list[list[dict[str, Any]]]) -> Conversation:
    """Who speaks first is the user. Lines sent one after the other by one side become one message."""
    lines = [(line["sender"], line["text"].strip()) for turn in turns for line in turn if line["text"].strip()]
    said = ["\n".join(text for _, text in group) for _, group in groupby(lines, key=lambda line: line[0])]
    # A last message that the user had no answer to would be unsupervised tokens at the end.
    num_answered = len(said) // 2 * 2
    return [{"role": ROLES[i % 2], "content": content} for i, content in enumerate(said[:num_answered])]


def encode_dialogues(
    tokenizer: PreTrainedTokenizerBase, conversations: Iterable[Conversation], *, max_length: int
) -> Iterator[Row]:
    """
    Rows of ids and assistant-only masks; the token that ends the assistant's turn is supervised too.

    Args:
        tokenizer: A fast one with a chat template.
        conversations: As `to_conversation` makes them.
        max_length: Tokens; longer conversations are cut there.

    Skipped: a conversation that spells a special token, and one whose assistant comes only after the cut.
    """
    special_tokens = tuple(tokenizer.all_special_tokens) + tuple(tokenizer.get_added_vocab())
    turn_start = _turn_start(tokenizer)
    for conversation in conversations:
        if any(token in message["content"] for message in conversation for token in special_tokens):
            continue
        text = _render(tokenizer, conversation)
        encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        spans = _assistant_spans(text, conversation, turn_start)
        loss_mask_S = _supervised(np.asarray(encoding["offset_mapping"])[:max_length], spans)
        if loss_mask_S.any():
            yield Row(np.asarray(encoding["input_ids"][:max_length], dtype=np.int32), loss_mask_S)


def _turn_start(tokenizer: PreTrainedTokenizerBase) -> str:
    """What the template puts before the assistant's words, such as `<|im_start|>assistant` and a line break."""
    message = [{"role": "user", "content": "x"}]
    return _render(tokenizer, message, prompted=True).removeprefix(_render(tokenizer, message))


def _render(tokenizer: PreTrainedTokenizerBase, conversation: Conversation, *, prompted: bool = False) -> str:
    return str(tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=prompted))


def _assistant_spans(text: str, conversation: Conversation, turn_start: str) -> list[tuple[int, int]]:
    spans = []
    end = 0
    for message in conversation:
        if message["role"] == "assistant":
            start = text.index(turn_start, end) + len(turn_start)
            line_end = text.find("\n", start + len(message["content"]))
            # What follows the words up to the line break is the template's end of turn.
            end = len(text) if line_end < 0 else line_end
            spans.append((start, end))
    return spans


def _supervised(offsets_S2: NDArray[np.int64], spans: list[tuple[int, int]]) -> NDArray[np.uint8]:
    """Tokens that lie wholly in a span of characters."""
    span_starts, span_ends = np.asarray(spans).T
    span_of_S = np.searchsorted(span_starts, offsets_S2[:, 0], side="right") - 1
    inside_S: NDArray[np.bool_] = (span_of_S >= 0) & (offsets_S2[:, 1] <= span_ends[span_of_S])
    return inside_S.astype(np.uint8)
