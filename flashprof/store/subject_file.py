"""`flashprof.toml`: the file in which anybody's trainer declares its command, its toggles and its throughput."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.foreign import ADAPTERS, ARGS, VALUE, Edit, ForeignSubject, ForeignToggle, Setting
from flashprof.contracts.toggles import Toggle, Value, format_value
from flashprof.store.subject_checks import check_subject
from flashprof.store.toml_table import Table

FILE_NAME = "flashprof.toml"
NEEDS = ("cuda", "compiler")
COMMON = ("help", "default", "needs", "requires", "changes_numbers")
SETTING = ("args", "env", "edit")
KINDS: Mapping[str, tuple[str, ...]] = {
    "switch": (*COMMON, "on", "off"),
    "values": (*COMMON, "values", "on"),
    "number": (*COMMON, "arg", *SETTING, "on", "minimum", "maximum"),
}
KINDS_TEXT = (
    'on = {args = ["--flash"]}; or arg = "--workers={value}" with default and on; or values = {"0" = {}, "4" = {}}'
)
NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,39}")
RESERVED = ("all", "none", "good", "bad")
"""Words of toggle expressions, and of a bisection's cells."""


def find_subject_file(folder: Path) -> Path | None:
    """The declaration in *folder*, if there is one."""
    path = folder / FILE_NAME
    return path if path.is_file() else None


def read_subject(path: Path) -> ForeignSubject:
    """
    Read a declaration and make sure that it fits together.

    Raises:
        UsageError: The file is missing, is no TOML, or says something that means nothing; names table and key.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        # Dotted tables nest deeper than the messages that would show them.
        repr(raw)
    except OSError as error:
        raise UsageError(
            f"the subject's declaration cannot be read: {error.strerror}",
            offered=str(path),
            allowed="a file like flashprof.toml",
            next_command="flashprof run --subject FILE",
        ) from error
    except (ValueError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else error
        raise FormatError(
            f"not a TOML file: {what}", where=str(path), allowed="TOML 1.0", next_command="docs/foreign.md"
        ) from error
    top = Table(raw, path)
    top.refuse_unknown(("subject", "toggles"))
    declared = top.table("subject")
    declared.refuse_unknown(("command", "cwd", "env", "tok_per_s", "needs", "files", "packages"))
    toggles = top.tables("toggles")
    subject = ForeignSubject(
        path=path,
        command=declared.texts("command", required=True),
        cwd=(path.parent / declared.text("cwd", ".")).resolve(),
        env=declared.variables("env"),
        tok_per_s=_pattern(declared),
        needs=_needs(declared),
        files=declared.texts("files"),
        packages=declared.texts("packages"),
        toggles=tuple(_toggle(name, table, toggles) for name, table in toggles.items()),
    )
    check_subject(subject, declared, toggles)
    return subject


def _pattern(declared: Table) -> str:
    """An adapter's name, or a regular expression with a group."""
    text = declared.text("tok_per_s", "auto")
    if text in ADAPTERS:
        return ADAPTERS[text]
    if re.fullmatch(r"[\w-]+", text):
        raise declared.unknown("adapter", text, ADAPTERS, also="or a regular expression with a group for the number")
    try:
        num_groups = re.compile(text).groups
    except (re.error, OverflowError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else error
        raise declared.wrong("tok_per_s", f"is no regular expression: {what}", text, "one with one group") from error
    if not num_groups:
        raise declared.wrong("tok_per_s", "has no group for the number", text, r"as in 'tok/s=([\d,.]+)'")
    return text


def _needs(table: Table) -> tuple[str, ...]:
    words = table.texts("needs")
    for word in words:
        if word not in NEEDS:
            raise table.unknown("need", word, NEEDS, also="files and packages have keys of their own")
    return words


def _toggle(name: str, table: Table, known: Collection[str]) -> ForeignToggle:
    if not NAME_PATTERN.fullmatch(name) or name in RESERVED:
        raise table.wrong(
            "", "cannot be a toggle's name", name, f"letters, digits, - and _, at most 40; not {', '.join(RESERVED)}"
        )
    for other in table.texts("requires"):
        if other not in known or other == name:
            raise table.unknown("toggle", other, [item for item in known if item != name])
    if "values" in table.raw:
        return _valued(name, table)
    if any(key in table.raw for key in ("arg", *SETTING)):
        return _numbered(name, table)
    return _switch(name, table)


def _switch(name: str, table: Table) -> ForeignToggle:
    table.refuse_unknown(KINDS["switch"])
    if not ({"on", "off"} & set(table.raw)):
        raise table.wrong("", "sets nothing", "no on, no off, no arg, no values", KINDS_TEXT)
    settings = {value: _setting_of(table.table(format_value(value), required=False)) for value in (False, True)}
    if settings[False] == settings[True]:
        raise table.wrong("on", "is the same as off", str(table.raw.get("on", {})), "settings that differ")
    toggle = _shared(name, table, default=table.boolean("default", default=False), on=True)
    return ForeignToggle(toggle=toggle, settings=tuple(settings.items()))


def _valued(name: str, table: Table) -> ForeignToggle:
    table.refuse_unknown(KINDS["values"])
    settings: list[tuple[Value, Setting]] = []
    for text, item in table.tables("values").items():
        if not re.fullmatch("-?[0-9]{1,18}", text):
            raise table.wrong("values", "has a key that is no whole number", text, "numbers; a toggle for each word")
        settings.append((int(text), _setting_of(item)))
    numbers = [int(value) for value, _ in settings]
    if len(set(numbers)) < 2:
        raise table.wrong("values", "has fewer than two values", str(numbers), "at least two")
    default, on = table.number("default", required=True), table.number("on", required=True)
    for key, value in (("default", default), ("on", on)):
        if value not in numbers:
            raise table.wrong(key, "is not among its values", str(value), ", ".join(map(str, numbers)))
    _refuse_equal(table, default, on)
    toggle = _shared(name, table, default=default, on=on, minimum=min(numbers), maximum=max(numbers))
    return ForeignToggle(toggle=toggle, settings=tuple(settings))


def _numbered(name: str, table: Table) -> ForeignToggle:
    table.refuse_unknown(KINDS["number"])
    template = _setting(table, word=table.text("arg", ""))
    texts = (*template.args, *(text for _, text in template.env), *(str(edit.value) for edit in template.edits))
    if not any(VALUE in text for text in texts):
        raise table.wrong("arg", f"has no {VALUE} in it", " ".join(texts), f"as in --num-workers={VALUE}")
    default, on = table.number("default", required=True), table.number("on", required=True)
    low, high = table.number("minimum"), table.number("maximum")
    for key, value in (("default", default), ("on", on)):
        if (low is not None and value < low) or (high is not None and value > high):
            raise table.wrong(key, "is out of its range", str(value), f"{low}..{high}")
    _refuse_equal(table, default, on)
    toggle = _shared(name, table, default=default, on=on, minimum=low, maximum=high)
    return ForeignToggle(toggle=toggle, template=template)


def _refuse_equal(table: Table, default: int, on: int) -> None:
    if default == on:
        raise table.wrong("on", "is the default", str(on), "another value: it is what the bare name stands for")


def _shared(name: str, table: Table, **fields: Any) -> Toggle:
    return Toggle(
        name=name,
        help=table.text("help", f"Declared in {table.path.name}."),
        needs=_needs(table),
        requires=table.texts("requires"),
        changes_numbers=table.boolean("changes_numbers", default=False),
        **fields,
    )


def _setting_of(table: Table) -> Setting:
    table.refuse_unknown(SETTING)
    return _setting(table)


def _setting(table: Table, *, word: str = "") -> Setting:
    """What `on`, `off` or a value sets; *word* is the one of `arg`."""
    args = (*((word,) if word else ()), *table.texts("args"))
    if ARGS in args:
        raise table.wrong("args", f"holds {ARGS}", ARGS, "that in the command only")
    return Setting(args=args, env=table.variables("env"), edits=tuple(_edit(item) for item in table.listed("edit")))


def _edit(table: Table) -> Edit:
    table.refuse_unknown(("file", "key", "value", "create"))
    value = table.raw.get("value")
    if not isinstance(value, bool | int | float | str):
        raise table.wrong("value", "is no single value", str(value), "a text, a number, true or false")
    return Edit(
        file=table.text("file"),
        key=table.text("key"),
        value=value,
        may_create=table.boolean("create", default=False),
    )
