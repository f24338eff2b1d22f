"""Conversations as people store them: `messages` (role, content) or ShareGPT's `conversations` (from, value)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from flashprof.contracts.errors import FormatError

Conversation = list[dict[str, str]]
"""Messages with `role` and `content`; a user speaks before the assistant, and the assistant last."""

ASSISTANT = "assistant"
ROLES = MappingProxyType(
    {
        "user": "user",
        "human": "user",
        ASSISTANT: ASSISTANT,
        "gpt": ASSISTANT,
        "system": "system",
        "tool": "tool",
    }
)
"""Both spellings, to the one that chat templates know."""


def to_conversation(fields: dict[str, Any], where: str) -> Conversation:
    """
    The conversation in a record, without an assistant that speaks unasked and without what nobody answered.

    The first is how ShareGPT exports begin that were cut from longer ones; the second would only be unsupervised
    tokens at the end.

    Args:
        fields: With `messages` or `conversations`.
        where: The record's place, for messages.

    Returns:
        Empty where the assistant never answers.

    Raises:
        FormatError: No conversation, a turn without role or text, or one with a role that is not known.
    """
    column = "messages" if "messages" in fields else "conversations"
    if column not in fields:
        raise FormatError(
            "not a conversation",
            where=where,
            offered=", ".join(map(str, fields)),
            allowed="messages, or conversations (ShareGPT)",
        )
    turns = fields[column]
    if not isinstance(turns, list):
        raise FormatError(f"{column} is not a list", where=where, offered=str(turns)[:60])
    messages = [_to_message(turn, f"{where}, turn {number}") for number, turn in enumerate(turns)]
    return _answered([message for i, message in enumerate(messages) if not _is_unasked(messages, i)])


def _to_message(turn: Any, where: str) -> dict[str, str]:
    role, text = _role_and_text(turn if isinstance(turn, dict) else {})
    if not isinstance(role, str) or not isinstance(text, str):
        raise FormatError(
            "a turn without a role or without text",
            where=where,
            offered=str(turn)[:80],
            allowed='{"role": "user", "content": "…"} or {"from": "human", "value": "…"}',
        )
    if role not in ROLES:
        raise FormatError(f"unknown role {role!r}", where=where, offered=role, allowed=", ".join(ROLES))
    return {"role": ROLES[role], "content": text}


def _role_and_text(turn: dict[str, Any]) -> tuple[Any, Any]:
    # Both columns take both spellings: converted data sets mix them.
    return turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))


def _is_unasked(messages: Conversation, index: int) -> bool:
    roles_before = {message["role"] for message in messages[:index]}
    return messages[index]["role"] == ASSISTANT and "user" not in roles_before


def _answered(messages: Conversation) -> Conversation:
    last = max((i for i, message in enumerate(messages) if message["role"] == ASSISTANT), default=-1)
    return messages[: last + 1]
