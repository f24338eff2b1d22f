"""Real dialogues between people, out of a PyPI package: who speaks first is the user."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from flashprof.contracts.errors import ToolError
from pipeline.data.conversations import Conversation
from pipeline.data.smollm2 import NEXT_COMMAND, package_folder

ROLES = ("user", "assistant")


def read_dialogues() -> list[Conversation]:
    """
    The conversations of chitchat-dataset in which both sides speak.

    Raises:
        UsageError: The extra `smollm2` is not installed.
        ToolError: The package's data cannot be read.
    """
    path = package_folder("chitchat_dataset") / "dataset.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        conversations = [join_turns(item["messages"]) for item in raw.values()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(f"cannot read the dialogues: {error}", where=str(path), next_command=NEXT_COMMAND) from error
    return [conversation for conversation in conversations if conversation]


def join_turns(turns: list[list[dict[str, Any]]]) -> Conversation:
    """Lines sent one after the other by one side become one message."""
    lines = [(line["sender"], line["text"].strip()) for turn in turns for line in turn if line["text"].strip()]
    said = ["\n".join(text for _, text in group) for _, group in groupby(lines, key=lambda line: line[0])]
    # A last message that the user had no answer to would be unsupervised tokens at the end.
    num_answered = len(said) // 2 * 2
    return [{"role": ROLES[i % 2], "content": content} for i, content in enumerate(said[:num_answered])]
