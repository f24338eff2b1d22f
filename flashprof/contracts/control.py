"""
The control channel: commands to a running subject, as files (design §3).

FlashProf writes `control/000001.json`, `000002.json`, … by rename, so a reader never sees half a command. The subject's
coordinator looks for the next number at a step boundary (one `stat`, about 2 µs), all ranks apply the command
before the same step, and the answer is an `ack` event.

Format history
    1  2026-11  window_start, window_end, set_toggles, stop
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError, ToolError

VERSION = 1


class CommandName(StrEnum):
    """What a subject can be asked to do."""

    WINDOW_START = "window_start"
    """detail: `label` (unique in the run), `kind` (`measure` or `profile`); in a search also `cell`, `mark`"""
    WINDOW_END = "window_end"
    """detail: `label`"""
    SET_TOGGLES = "set_toggles"
    """
    detail: `values`, toggle name to value, hot toggles only; where cells take turns also `cell`, `block`,
    `position`, `order`, `label`, `settle_steps`, `window_tokens`, `runs_on`, `mark`. The acknowledgement
    repeats all of it, and adds `refused`.
    """
    STOP = "stop"
    """Finish the step, save what is to be saved, end with status 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command, numbered from 1 within a launch."""

    command_id: int
    name: CommandName
    detail: dict[str, Any] = field(default_factory=dict)


class CommandWriter:
    """FlashProf's end. Not safe for two writers on one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._num_sent = 0

    def send(self, name: CommandName, **detail: Any) -> Command:
        """
        Publish one command and return it.

        Raises:
            ToolError: The folder is gone or cannot be written; the command was not sent, and can be sent again.
        """
        command = Command(command_id=self._num_sent + 1, name=name, detail=detail)
        text = json.dumps({"version": VERSION, "id": command.command_id, "name": name, "detail": detail})
        part = self._folder / f".{command.command_id:06d}.part"
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(_path(self._folder, command.command_id))
        except OSError as error:
            raise ToolError(f"cannot send command {str(name)!r}: {error.strerror}", where=str(self._folder)) from error
        self._num_sent += 1
        return command


class CommandReader:
    """The subject's end. One reader, the coordinator, sees each command once."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._num_read = 0

    def poll(self) -> list[Command]:
        """
        The commands that came since the last call, in order.

        Raises:
            FormatError: A file with a command's name that is none, or of another version.
        """
        commands: list[Command] = []
        while self._folder is not None:
            path = _path(self._folder, self._num_read + 1)
            if not path.exists():
                break
            commands.append(_read_command(path))
            self._num_read += 1
        return commands


def _read_command(path: Path) -> Command:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["version"] != VERSION:
            raise FormatError(
                f"control command version {raw['version']} is not known", where=str(path), allowed=f"version {VERSION}"
            )
        return Command(command_id=raw["id"], name=CommandName(raw["name"]), detail=raw["detail"])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"not a control command: {error}",
            where=str(path),
            allowed=f"version {VERSION}, name one of {', '.join(CommandName)}",
        ) from error


def _path(folder: Path, command_id: int) -> Path:
    return folder / f"{command_id:06d}.json"
