"""One table of a TOML file, read key by key: what is wrong is said with file, table, key and what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

from flashprof.contracts.errors import UnknownNameError, UsageError
from flashprof.store.safe_read import printable


@dataclass(frozen=True, slots=True)
class Table:
    """A table, and where it stands."""

    raw: Mapping[str, Any]
    path: Path
    name: str = ""
    """Dotted: `toggles.flash.on`; empty for the whole file."""

    @property
    def where(self) -> str:
        """File and table, for messages."""
        return f"{self.path} [{self.name}]" if self.name else str(self.path)

    @property
    def next_command(self) -> str:
        """What shows whether it is right now."""
        return f"flashprof run --subject {self.path} --list-toggles, when it is corrected (docs/foreign.md)"

    def wrong(self, key: str, what: str, offered: str, allowed: str) -> UsageError:
        """The error for a value that means nothing."""
        return UsageError(
            f"{key or f'[{self.name}]'} {what}",
            where=self.where,
            offered=offered,
            allowed=allowed,
            next_command=self.next_command,
        )

    def unknown(self, kind: str, name: str, known: Collection[str], *, also: str = "") -> UsageError:
        """The error for a name that is not in a closed list, with the nearest."""
        error = UnknownNameError(kind, name, known, next_command=self.next_command)
        error.where = self.where
        if also:
            error.allowed = f"{error.allowed}; {also}"
        return error

    def refuse_unknown(self, allowed: Collection[str]) -> None:
        """
        Make sure that every key means something.

        Raises:
            UnknownNameError: One does not.
        """
        for key in self.raw:
            if key not in allowed:
                raise self.unknown("key", key, allowed)

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty; without a default it must be there."""
        value = self.raw.get(key, default)
        if value == default and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise self._wrong_type(key, "a text")
        self._refuse_nul(key, value)
        return value

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        """A list of texts."""
        value = self.raw.get(key, [])
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not is_list or (required and not value):
            raise self._wrong_type(key, 'a list of texts, ["python", "train.py"]')
        self._refuse_nul(key, *value)
        return tuple(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.raw.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong_type(key, "true or false")
        return value

    @overload
    def number(self, key: str, *, required: Literal[True]) -> int: ...

    @overload
    def number(self, key: str) -> int | None: ...

    def number(self, key: str, *, required: bool = False) -> int | None:
        """A whole number, or None where it may be missing and is."""
        value = self.raw.get(key)
        if value is None and not required:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong_type(key, "a whole number")
        return value

    def variables(self, key: str) -> tuple[tuple[str, str], ...]:
        """A table of environment variables; a number counts as its text."""
        found = []
        for name, value in self.table(key, required=False).raw.items():
            if isinstance(value, bool) or not isinstance(value, str | int) or not name or "=" in name:
                raise self.wrong(f"{key}.{name}", "is no variable", repr(value), "a text or a whole number")
            self._refuse_nul(f"{key}.{printable(name)}", name, str(value))
            found.append((name, str(value)))
        return tuple(found)

    def table(self, key: str, *, required: bool = True) -> Table:
        """The table of that key; an empty one where it may be missing and is."""
        value = self.raw.get(key, None if required else {})
        if not isinstance(value, dict):
            raise self._wrong_type(key, f"a table [{self._below(key)}]")
        return Table(value, self.path, self._below(key))

    def tables(self, key: str) -> dict[str, Table]:
        """The tables within the table of that key, by name."""
        outer = self.table(key, required=False)
        return {name: outer.table(name) for name in outer.raw}

    def listed(self, key: str) -> Sequence[Table]:
        """The tables of that key: one, or a list of them."""
        value = self.raw.get(key, [])
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in items):
            raise self._wrong_type(key, "a table, or a list of tables")
        return [Table(item, self.path, self._below(key)) for item in items]

    def _below(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _refuse_nul(self, key: str, *texts: str) -> None:
        """The system ends paths, arguments and variables there, and starts nothing with one within."""
        for text in texts:
            if "\0" in text:
                raise self.wrong(key, "holds a NUL character", repr(text), "text without \\u0000")

    def _wrong_type(self, key: str, allowed: str) -> UsageError:
        if key not in self.raw:
            return self.wrong(key, "is missing", "nothing", allowed)
        return self.wrong(key, f"is not {allowed.partition(',')[0]}", repr(self.raw[key]), allowed)
