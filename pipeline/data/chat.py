"""Conversations in a model's own chat template, supervised where the assistant speaks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flashprof.contracts.errors import UsageError
from pipeline.data.arrow import Row
from pipeline.data.conversations import ASSISTANT, Conversation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
PROBE = "xqzxqz"
"""An assistant's words whose end is looked for in the rendered text."""


class Dropped(Enum):
    """Why a sample is left out."""

    SPECIAL_TOKEN = "spell a special token"  # noqa: S105, no password
    NO_ASSISTANT = "have no assistant turn"
    NOTHING_TO_LEARN = "have nothing supervised within max_length"
    UNSTABLE = "are rendered by the chat template otherwise once they go on"


class ChatEncoder:
    """
    Encodes conversations for one tokenizer.

    Masks come from the template's `{% generation %}` marks. Without them, an answer begins where the rendered prompt
    for it ends, and ends with the special token that the template puts behind an assistant's words: no message can
    spell that one, since a conversation with a special token is dropped.

    Args:
        tokenizer: A fast one with a chat template.
        max_length: Tokens; longer conversations are cut there.
        where: The tokenizer's place, for messages.

    Raises:
        UsageError: No template, or one whose answers have no end that can be found.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_length: int, where: str) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        if not tokenizer.is_fast or not tokenizer.chat_template:
            raise UsageError(
                "conversations need a fast tokenizer with a chat template",
                where=where,
                offered="no chat template" if tokenizer.is_fast else "no tokenizer.json",
                next_command="add chat_template.jinja to the folder, or pre-tokenise: input_ids and loss_mask",
            )
        self._special_tokens = special_tokens(tokenizer)
        self._has_marks = GENERATION_MARK.search(str(tokenizer.get_chat_template())) is not None
        self._ends = ("", "") if self._has_marks else self._find_ends(where)

    def encode(self, conversation: Conversation, where: str = "") -> Row | Dropped:
        """
        The conversation's tokens and mask, or why it is left out.

        Args:
            conversation: As `to_conversation` makes them.
            where: Its place, for messages.

        Raises:
            UsageError: The template refuses it.
        """
        if not conversation:
            return Dropped.NO_ASSISTANT
        if any(token in message["content"] for message in conversation for token in self._special_tokens):
            return Dropped.SPECIAL_TOKEN
        try:
            encoded = self._encode_marked(conversation) if self._has_marks else self._encode_searched(conversation)
        # Templates are programs of others: what they raise on a role or an order that they do not take is theirs.
        except Exception as error:
            raise UsageError(f"the chat template refuses a conversation: {error}", where=where) from error
        if encoded is None:
            return Dropped.UNSTABLE
        input_ids_S, loss_mask_S = encoded
        return Row(input_ids_S, loss_mask_S, where) if loss_mask_S.any() else Dropped.NOTHING_TO_LEARN

    def _encode_marked(self, conversation: Conversation) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        encoding: Any = self._tokenizer.apply_chat_template(
            conversation,
            return_dict=True,
            return_assistant_tokens_mask=True,
            tokenizer_kwargs={"verbose": False},
        )
        input_ids_S = np.asarray(encoding["input_ids"][: self._max_length], dtype=np.int32)
        return input_ids_S, np.asarray(encoding["assistant_masks"][: self._max_length], dtype=np.uint8)

    def _encode_searched(self, conversation: Conversation) -> tuple[NDArray[np.int32], NDArray[np.uint8]] | None:
        text = self._render(conversation)
        encoding = self._tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        offsets_S2 = np.asarray(encoding["offset_mapping"])[: self._max_length]
        spans = []
        for span in self._spans(text, conversation):
            if span is None:
                return None
            # What lies beyond the cut is not rendered: long conversations would cost the square of their turns.
            if span[0] >= offsets_S2[-1, 1]:
                break
            spans.append(span)
        return np.asarray(encoding["input_ids"][: self._max_length], dtype=np.int32), _supervised(offsets_S2, spans)

    def _spans(self, text: str, conversation: Conversation) -> Iterator[tuple[int, int] | None]:
        """Each answer's first character and its end, in order; None where the template does not let it be found."""
        end_inside, end_of_last = self._ends
        for index, message in enumerate(conversation):
            if message["role"] == ASSISTANT:
                prompt = self._render(conversation[:index], prompted=True)
                is_last = index == len(conversation) - 1
                end_token = end_of_last if is_last else end_inside
                end = text.find(end_token, len(prompt))
                yield (len(prompt), end + len(end_token)) if end >= 0 and text.startswith(prompt) else None

    def _find_ends(self, where: str) -> tuple[str, str]:
        """The special token behind an assistant's words, where a user follows and where nobody does."""
        question, answer = {"role": "user", "content": "x"}, {"role": ASSISTANT, "content": PROBE}
        ends = []
        for conversation in ([question, answer, question], [question, answer]):
            behind = self._render(conversation).rpartition(PROBE)[2]
            found = [(behind.find(token), token) for token in self._special_tokens if token in behind]
            # Special tokens may begin alike: the longest of those that come first is the one that is meant.
            ends.append(min(found, key=lambda pair: (pair[0], -len(pair[1])), default=(0, ""))[1])
        if not all(ends):
            raise UsageError(
                "the chat template puts no special token behind the assistant's words",
                where=where,
                next_command="mark the words in chat_template.jinja: {% generation %}…{% endgeneration %}",
            )
        return ends[0], ends[1]

    def _render(self, conversation: Conversation, *, prompted: bool = False) -> str:
        rendered = self._tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=prompted)
        return str(rendered)


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """
    Tokens that stand for structure, and that text must not spell.

    Added tokens that are not special, such as Qwen3's `<think>`, are text that the assistant may write.
    """
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    return tuple(dict.fromkeys((*tokenizer.all_special_tokens, *added)))


def _supervised(offsets_S2: NDArray[np.int64], spans: list[tuple[int, int]]) -> NDArray[np.uint8]:
    """Tokens that lie wholly in a span of characters."""
    if not spans:
        return np.zeros(len(offsets_S2), dtype=np.uint8)
    span_starts, span_ends = np.asarray(spans).T
    span_of_S = np.searchsorted(span_starts, offsets_S2[:, 0], side="right") - 1
    inside_S: NDArray[np.bool_] = (span_of_S >= 0) & (offsets_S2[:, 1] <= span_ends[span_of_S])
    return inside_S.astype(np.uint8)
