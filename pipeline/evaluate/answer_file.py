"""
The file that answered conversations are appended to: a batch is on the disk before the next begins.

Version history of a line
    1  2026-11  messages; id (position in the source); num_cut; settings (digest of what the answers depend on)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from pipeline.data.conversations import Conversation

LINE_VERSION = 1
LINE_START = b'{"messages": '


@dataclass(frozen=True, kw_only=True)
class Regenerated:
    """One conversation, answered anew."""

    id: int
    """Position in the source."""
    messages: Conversation
    num_answers: int
    num_cut: int
    num_empty: int
    num_tokens: int
    """Generated ones, all answers together."""


class AnswerFile:
    """
    The JSONL file that answered conversations are appended to.

    Args:
        path: Made with the first batch; what an earlier run of the same settings wrote is kept.
        settings: All that the answers depend on.

    Raises:
        UsageError: The file was written with other settings, or by something else.
        ToolError: It cannot be read or repaired.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        facts = json.dumps([LINE_VERSION, dict(settings)], sort_keys=True, default=str)
        self._settings = hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()
        self.done_ids = self._read() if path.exists() else frozenset()

    def append(self, conversations: Sequence[Regenerated]) -> None:
        """
        Add a batch; on the disk when this returns.

        Raises:
            ToolError: The disk is full, or the file cannot be written.
        """
        lines = [
            json.dumps(
                {"messages": c.messages, "id": c.id, "num_cut": c.num_cut, "settings": self._settings},
                ensure_ascii=False,
            )
            for c in conversations
        ]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ToolError(f"cannot write the answers: {error.strerror}", where=str(self._path)) from error

    def _read(self) -> frozenset[int]:
        try:
            raw = self._path.read_bytes()
            end = raw.rfind(b"\n") + 1
            lines = raw[:end].splitlines()
            done_ids = frozenset(self._read_id(line, number) for number, line in enumerate(lines, start=1))
            if raw[end:]:
                self._check_torn(raw[end:], len(lines) + 1)
                # The next batch would be glued to it.
                os.truncate(self._path, end)
        except OSError as error:
            raise ToolError(f"cannot read the answers: {error.strerror}", where=str(self._path)) from error
        return done_ids

    def _check_torn(self, line: bytes, number: int) -> None:
        """A kill in the middle of a write leaves half a line; somebody else's without a line end is not to be cut."""
        is_ours = line.startswith(LINE_START) or LINE_START.startswith(line)
        if not is_ours or line.endswith(b"}]}"):
            self._read_id(line, number)

    def _read_id(self, line: bytes, number: int) -> int:
        where = f"{self._path}:{number}"
        try:
            fields = json.loads(line)
            settings, identity = str(fields["settings"]), int(fields["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(
                "the output file exists, and this line is not one of `regenerate`",
                where=where,
                next_command="another --out",
            ) from error
        if settings != self._settings:
            raise UsageError(
                "the output file was made from other conversations or with other options",
                where=where,
                next_command=f"another --out, or rm {self._path}",
            )
        return identity


def conversations_digest(conversations: Sequence[Conversation]) -> str:
    """Tells one source of conversations from another."""
    digest = hashlib.blake2b(digest_size=8)
    for conversation in conversations:
        digest.update(json.dumps(conversation).encode())
    return digest.hexdigest()
