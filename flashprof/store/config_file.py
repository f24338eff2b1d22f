"""Edits of a config file by dotted key, made on a copy: YAML, TOML or JSON. The user's own file is only read."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import ToolError, UnknownNameError, UsageError
from flashprof.contracts.foreign import Edit

SUFFIXES = (".yaml", ".yml", ".toml", ".json")


def write_copy(source: Path, edits: Sequence[Edit], target: Path) -> None:
    """
    Write *source* with *edits* made to it as *target*.

    Without edits the copy is written anew all the same: two cells must not differ in how their file was written.

    Raises:
        UsageError: The file cannot be read, or has no such key.
        ToolError: A library for its format is missing, or the copy cannot be written.
    """
    content = _read(source)
    for edit in edits:
        _apply(content, edit, where=str(source))
    text = _written(content, source.suffix)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Half a character, which JSON can spell and UTF-8 cannot, is spelt as JSON does it.
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ToolError(
            f"the edited copy of {source.name} cannot be written: {error.strerror}", where=str(target)
        ) from error


def check_edits(folder: Path, edits: Sequence[Edit], *, where: str) -> None:
    """
    Make sure, before anything is started, that *edits* could be made.

    Args:
        folder: That the names of the files are relative to.
        edits: Of one setting.
        where: They are declared, for messages.

    Raises:
        UsageError: A file cannot be read, or has no such key.
    """
    contents: dict[str, Any] = {}
    for edit in edits:
        if edit.file not in contents:
            contents[edit.file] = _read(folder / edit.file)
        _apply(contents[edit.file], edit, where=f"{where}, {folder / edit.file}")


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the config file cannot be read: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            allowed="a readable text file",
            next_command=f"ls -l {path}",
        ) from error
    try:
        content = _parsed(text, path.suffix)
        # What cannot be written again is refused before anything is started with it.
        _written(content, path.suffix)
    except RecursionError as error:
        raise UsageError(
            "the config file is nested too deep",
            where=str(path),
            allowed="one document of plain values",
            next_command=f"ls -l {path}",
        ) from error
    except ValueError as error:
        said = str(error).splitlines()[0]
        raise UsageError(
            f"the config file is no {path.suffix[1:].upper()}: {said}",
            where=str(path),
            allowed="one document of plain values",
        ) from error
    return content


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(text)
    if suffix == ".toml":
        return tomllib.loads(text)
    yaml = _library("yaml", "pyyaml")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _written(content: Any, suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if suffix == ".toml":
        return str(_library("tomli_w", "tomli-w").dumps(content))
    return str(_library("yaml", "pyyaml").safe_dump(content, sort_keys=False, allow_unicode=True))


def _library(name: str, package: str) -> Any:
    """Only a subject whose config is of that format needs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ToolError(
            f"a config file of this format needs {package}, which is not installed",
            next_command=f"pip install {package}",
        ) from error


def _apply(content: Any, edit: Edit, *, where: str) -> None:
    *above, last = edit.key.split(".")
    node = content
    for name in above:
        node = node[_key(node, name, edit, where, made={})]
    node[_key(node, last, edit, where, made=None)] = edit.value


def _key(node: Any, name: str, edit: Edit, where: str, *, made: Any) -> Any:
    """The key or index of *node* that is written *name*: YAML knows keys that are numbers."""
    if isinstance(node, dict):
        known: dict[str, Any] = {str(key): key for key in node}
        if name not in known and edit.may_create:
            node[name] = made
            return name
    else:
        known = {str(index): index for index in range(len(node))} if isinstance(node, list) else {}
    if name not in known:
        error = UnknownNameError(
            f"key of {edit.file}", name, known, next_command="correct the key, or add create = true to the edit"
        )
        error.where, error.offered = where, edit.key
        raise error
    return known[name]
