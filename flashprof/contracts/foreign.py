"""A foreign subject: what `flashprof.toml` says of anybody's trainer and its toggles. Frozen, standard library."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import LIST_COMMAND, Toggle, ToggleValues, Value, format_value, parse_toggles

ARGS = "{args}"
"""A word of the command in whose place the toggles' arguments go; without it they go to the end."""
FILE = "{file}"
"""Stands for the copy of the config file that toggles edit; `{file:NAME}` where they edit several."""
PLACEHOLDER = re.compile(r"(?<!\$)\{file(?::[^}]*)?\}")
"""`{file}` in either form, but not a shell's `${file}`."""
VALUE = "{value}"
"""Stands for the number that a numeric toggle is set to."""
ADAPTERS: Mapping[str, str] = MappingProxyType(
    {
        "auto": "",
        "hf-trainer": r"'train_tokens_per_second': '?([\d.]+)",
        "torchtitan": r"\btps: ([\d,.]+)",
        "torchtune": r"\btokens_per_second_per_gpu:([\d,.]+)",
    }
)
"""Name → regular expression; `auto` knows these forms and others. `hf-trainer` prints a mean since its own start."""

EditValue = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a config file, made on a copy."""

    file: str
    """As declared: relative to the subject's folder, or absolute."""
    key: str
    """Dotted: `model.attn`, `layers.0.kind`."""
    value: EditValue
    may_create: bool = False
    """Whether the key may be missing: a misspelt one would change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a launch gets of one toggle at one value."""

    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    edits: tuple[Edit, ...] = ()

    def filled(self, value: Value) -> Setting:
        """With the number in the place of `{value}`; an edit of just `{value}` gets the number, not its text."""
        text = str(value)
        return Setting(
            args=tuple(word.replace(VALUE, text) for word in self.args),
            env=tuple((name, word.replace(VALUE, text)) for name, word in self.env),
            edits=tuple(replace(edit, value=_filled(edit.value, value)) for edit in self.edits),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignToggle:
    """A toggle, and what a launch gets at each of its values."""

    toggle: Toggle
    settings: tuple[tuple[Value, Setting], ...] = ()
    """By value; empty where there is a template."""
    template: Setting | None = None
    """Of a numeric toggle: `{value}` in it stands for the number."""

    def setting(self, value: Value) -> Setting:
        """
        What a launch gets.

        Raises:
            UsageError: A number between those that are declared.
        """
        if self.template is not None:
            return self.template.filled(value)
        found = dict(self.settings).get(value)
        if found is None:
            name = self.toggle.name
            raise UsageError(
                f"toggle {name!r} does not take {format_value(value)!r}",
                offered=f"{name}={format_value(value)}",
                allowed=", ".join(format_value(known) for known, _ in self.settings),
                next_command=LIST_COMMAND,
            )
        return found

    @property
    def all_settings(self) -> tuple[Setting, ...]:
        """Of every value."""
        return (self.template,) if self.template is not None else tuple(setting for _, setting in self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSubject:
    """Anybody's trainer: how it is started, what can be switched in it, where it prints its throughput."""

    path: Path
    """The file that declares it."""
    command: tuple[str, ...]
    """As declared, with `{args}` and `{file}` in it."""
    cwd: Path
    """Absolute; where it is started, and what file names are relative to."""
    env: tuple[tuple[str, str], ...] = ()
    tok_per_s: str = ""
    """Regular expression with one group; empty for the forms that FlashProf knows."""
    needs: tuple[str, ...] = ()
    """`cuda`, `compiler`."""
    files: tuple[str, ...] = ()
    """That must be there."""
    packages: tuple[str, ...] = ()
    """That its Python must have."""
    toggles: tuple[ForeignToggle, ...] = ()

    @property
    def config_files(self) -> tuple[str, ...]:
        """Those that a toggle edits at any of its values, each once; every launch gets copies of them all."""
        found = (edit.file for item in self.toggles for setting in item.all_settings for edit in setting.edits)
        return tuple(dict.fromkeys(found))

    def placeholders(self, file: str) -> tuple[str, ...]:
        """The texts that stand for the copy of a config file."""
        named = f"{FILE[:-1]}:{file}}}"
        return (named, FILE) if len(self.config_files) == 1 else (named,)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in which the copy of a config file may be named: of the command and of all settings."""
        settings = [setting for item in self.toggles for setting in item.all_settings]
        variables = [*self.env, *(pair for setting in settings for pair in setting.env)]
        return (
            *self.command,
            *(word for setting in settings for word in setting.args),
            *(text for _, text in variables),
        )

    @property
    def title(self) -> str:
        """What is measured, for people: `python train.py (flashprof.toml)`."""
        return f"{' '.join(self.command)} ({self.path})"

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits of all that a launch depends on; help texts and the file's own place are no part."""
        told: dict[str, Any] = asdict(self)
        for item in told["toggles"]:
            del item["toggle"]["help"]
        del told["path"], told["cwd"]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]

    def registry(self) -> tuple[Toggle, ...]:
        """Its toggles; all cold, for only a launch can set them."""
        return tuple(item.toggle for item in self.toggles)

    def parse(self, expression: str) -> ToggleValues:
        """
        Turn a toggle expression into a value for every toggle.

        Raises:
            UnknownNameError: A name that is not declared.
            UsageError: A value that a toggle does not take, or a toggle without one that it requires.
        """
        values = parse_toggles(expression, self.registry())
        self.settings(values)
        return values

    def settings(self, values: Mapping[str, Value]) -> tuple[Setting, ...]:
        """
        What a launch gets, one setting a toggle, in the order of the declaration.

        Raises:
            UsageError: A value that is not declared.
        """
        return tuple(item.setting(values[item.toggle.name]) for item in self.toggles)


def _filled(template: EditValue, value: Value) -> EditValue:
    if template == VALUE:
        return value
    return template.replace(VALUE, str(value)) if isinstance(template, str) else template
