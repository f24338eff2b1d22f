"""Whether a declaration fits together and fits the files around it: what no single key of it shows."""

from __future__ import annotations

from collections.abc import Mapping

from flashprof.contracts.errors import UsageError
from flashprof.contracts.foreign import PLACEHOLDER, ForeignSubject
from flashprof.store.config_file import SUFFIXES, check_edits
from flashprof.store.toml_table import Table

RESERVED_VARIABLES = ("PYTHONPATH", "FLASHPROF_RUN_DIR", "PYTHONUNBUFFERED")
"""FlashProf sets them for each launch, or loses sight of it."""


def check_subject(subject: ForeignSubject, declared: Table, toggles: Mapping[str, Table]) -> None:
    """
    Make sure that every launch could be made.

    Args:
        subject: As it was read.
        declared: The table that describes its command, for messages.
        toggles: Those that describe its toggles, by name.

    Raises:
        UsageError: A folder or a config file is missing, a copy is never used, or two toggles set the same thing.
    """
    if not subject.cwd.is_dir():
        raise declared.wrong("cwd", "is no folder", str(subject.cwd), f"a folder, seen from {subject.path.parent}")
    _refuse_reserved(subject, declared)
    _refuse_shared(subject, toggles)
    _check_config_files(subject, toggles)
    _check_placeholders(subject, declared)
    try:
        subject.parse("none")
    except UsageError as error:
        raise declared.wrong(
            "default", f"contradicts a requirement: {error.what}", "the cell `none`", "defaults that go together"
        ) from error


def _refuse_reserved(subject: ForeignSubject, declared: Table) -> None:
    settings = [setting for item in subject.toggles for setting in item.all_settings]
    for name, _ in (*subject.env, *(pair for setting in settings for pair in setting.env)):
        if name in RESERVED_VARIABLES:
            raise declared.wrong(
                f"env.{name}", "is set by FlashProf itself", name, "other variables; or set it around flashprof"
            )


def _refuse_shared(subject: ForeignSubject, toggles: Mapping[str, Table]) -> None:
    """Where two toggles set one thing, the later would win, and neither would be what it is called."""
    owners: dict[object, str] = {}
    for item in subject.toggles:
        name = item.toggle.name
        for setting in item.all_settings:
            things = [*((f"variable {key}") for key, _ in setting.env)]
            things += [f"key {edit.key} of {edit.file}" for edit in setting.edits]
            for thing in things:
                other = owners.setdefault(thing, name)
                if other != name:
                    raise toggles[name].wrong("", f"sets what toggle {other!r} sets", thing, "one toggle a thing")


def _check_config_files(subject: ForeignSubject, toggles: Mapping[str, Table]) -> None:
    for item in subject.toggles:
        table = toggles[item.toggle.name]
        for setting in item.all_settings:
            for edit in setting.edits:
                path = subject.cwd / edit.file
                if path.suffix not in SUFFIXES:
                    raise table.wrong("edit.file", "is of a kind that cannot be edited", edit.file, ", ".join(SUFFIXES))
                if not path.is_file():
                    raise table.wrong("edit.file", "does not exist", str(path), f"a file, seen from {subject.cwd}")
            check_edits(subject.cwd, setting.edits, where=table.where)


def _check_placeholders(subject: ForeignSubject, declared: Table) -> None:
    used = {match for text in subject.texts for match in PLACEHOLDER.findall(text)}
    known = {text for file in subject.config_files for text in subject.placeholders(file)}
    for text in sorted(used - known):
        allowed = ", ".join(sorted(known)) or "none: no toggle edits a file"
        raise declared.wrong("command", "names a copy that is not made", text, allowed)
    for file in subject.config_files:
        if not used & set(subject.placeholders(file)):
            raise declared.wrong(
                "command",
                f"does not say where the edited copy of {file} goes",
                " ".join(subject.command),
                f"{' or '.join(subject.placeholders(file))} in it, as in --config {subject.placeholders(file)[-1]}",
            )
