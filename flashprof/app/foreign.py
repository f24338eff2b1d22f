"""
Launching a foreign subject whose toggles are declared: what its command line, environment and config files become.

    declaration + toggle values → copies of config files, command, variables

`foreign_launch` does it for any folder. For a measured launch `DeclaredLauncher` does it on the way to the launcher, in
the run folder, and leaves there as events what a subject of ours says of itself: its toggles, and its files' hashes.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flashprof.app.log_readings import DEFAULT_PATTERN
from flashprof.app.session import Ports
from flashprof.contracts.events import Header, Mark, encode, encode_header
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.foreign import ARGS, PLACEHOLDER, ForeignSubject
from flashprof.contracts.ports import Launcher, LaunchSpec, Subject
from flashprof.contracts.toggles import ToggleValues, Value, format_toggles
from flashprof.store.config_file import write_copy

EVENTS_FILE = Path("events", "declaration-0.jsonl")
CONFIG_FOLDER = "config"
LAST_RANK = 10**6
"""What a subject says itself, by `flashprof.emit`, comes before what is declared of it."""
MAX_HASHED_BYTES = 2**20
"""Scripts and config files, but not the data that a command may also name."""


def foreign_launch(
    subject: ForeignSubject, values: Mapping[str, Value], folder: Path
) -> tuple[tuple[str, ...], dict[str, str]]:
    """
    Make what one launch needs.

    Args:
        subject: As declared.
        values: Of all its toggles.
        folder: Where the copies of config files go; it must last as long as the launch.

    Returns:
        The command line, and the variables to add to the environment.

    Raises:
        UsageError: A value that is not declared, or a config file that cannot be read or has no such key.
        ToolError: A copy cannot be written.
    """
    settings = subject.settings(values)
    edits = [edit for setting in settings for edit in setting.edits]
    copies: dict[str, str] = {}
    for number, file in enumerate(subject.config_files, start=1):
        # A folder each: two files may have one name, and some trainers go by the name.
        copy = (folder / CONFIG_FOLDER / str(number) / Path(file).name).resolve()
        write_copy(subject.cwd / file, [edit for edit in edits if edit.file == file], copy)
        copies |= dict.fromkeys(subject.placeholders(file), str(copy))

    def filled(text: str) -> str:
        return PLACEHOLDER.sub(lambda match: copies.get(match.group(), match.group()), text)

    args = [word for setting in settings for word in setting.args]
    template = subject.command if ARGS in subject.command else (*subject.command, ARGS)
    command = [word for item in template for word in (args if item == ARGS else (item,))]
    variables = (*subject.env, *(pair for setting in settings for pair in setting.env))
    return tuple(map(filled, command)), {name: filled(text) for name, text in variables}


def declared_spec(subject: ForeignSubject, expression: str, *, pattern: str = "") -> SubjectSpec:
    """
    The subject as an experiment knows it; its command is the declared one, the same for all toggle values.

    Args:
        subject: As declared.
        expression: Its toggles.
        pattern: In place of the declared one.

    Raises:
        UsageError: The expression names what is not declared.
    """
    return SubjectSpec(
        kind=SubjectKind.FOREIGN,
        command=subject.command,
        toggles=format_toggles(subject.parse(expression), subject.registry()),
        # Never empty: a declared subject is waited for until it prints its throughput.
        tok_per_s_pattern=pattern or subject.tok_per_s or DEFAULT_PATTERN,
        facts=tuple(file_facts(subject).items()),
    )


def file_facts(subject: ForeignSubject) -> dict[str, str]:
    """The declaration, the config files and the files that the command names, by their hashes: facts of the cell."""
    named = (*subject.command[1:], *subject.config_files)
    facts = {"workload.declaration": subject.fingerprint}
    for name in dict.fromkeys(named):
        path = subject.cwd / name
        if _is_small_file(path):
            facts[f"workload.file.{name}"] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return facts


@dataclass(frozen=True, kw_only=True)
class DeclaredLauncher:
    """Starts a declared subject with some of its toggles set; implements the launcher's port."""

    subject: ForeignSubject
    values: ToggleValues
    inner: Launcher
    """What starts the process."""

    def launch(self, spec: LaunchSpec) -> Subject:
        """
        Start it; the command of *spec* is replaced, its environment completed.

        Raises:
            UsageError: The command does not exist, or a config file cannot be edited.
        """
        folder = spec.log_path.parent
        command, variables = foreign_launch(self.subject, self.values, folder)
        self._tell(folder / EVENTS_FILE, command, variables)
        return self.inner.launch(replace(spec, command=command, env={**spec.env, **variables}))

    def _tell(self, path: Path, command: tuple[str, ...], variables: Mapping[str, str]) -> None:
        now_ns = time.monotonic_ns()
        header = Header(
            role="declaration",
            rank=LAST_RANK,
            host=socket.gethostname(),
            pid=os.getpid(),
            trains=False,
            wall_ns=time.time_ns(),
            monotonic_ns=now_ns,
        )
        marks = (
            Mark("cell", now_ns, file_facts(self.subject)),
            Mark("toggles", now_ns, {"values": self.values}),
            Mark("launch", now_ns, {"command": list(command), "env": dict(variables)}),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in (encode_header(header), *map(encode, marks))), encoding="utf-8")


def declared_ports(ports: Ports, subject: ForeignSubject, expression: str = "none") -> Ports:
    """The same world, in which launches start the declared subject in its folder."""
    launcher = DeclaredLauncher(subject=subject, values=subject.parse(expression), inner=ports.launcher)
    return replace(ports, launcher=launcher, cwd=subject.cwd)


def at_values(ports: Ports, values: ToggleValues) -> Ports:
    """The same world, in which a declared subject starts with these values; any other subject is left as it is."""
    launcher = ports.launcher
    if not isinstance(launcher, DeclaredLauncher):
        return ports
    return replace(ports, launcher=replace(launcher, values=values))


def _is_small_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= MAX_HASHED_BYTES
    except OSError:
        # A word too long for a name, as a script behind `bash -c`.
        return False
