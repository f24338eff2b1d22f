"""
A declared trainer at a commit: the declaration of the user's tree, the files as the commit has them.

One declaration holds for all commits, or its changes would be measured with theirs, and commits from before it could
not be measured at all.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from flashprof.app.commits import CommitSubject
from flashprof.app.foreign import DeclaredLauncher, declared_spec, foreign_launch
from flashprof.app.session import Ports
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import ToggleValues

DECLARATION = "workload.declaration"
"""The fact that says which declaration it was."""


def spec_of_every_commit(subject: ForeignSubject, expression: str, *, pattern: str = "") -> SubjectSpec:
    """
    What all commits have in common; not the contents of files, which are each commit's own.

    Args:
        subject: As declared.
        expression: Its toggles.
        pattern: In place of the declared one.

    Raises:
        UsageError: The expression names what is not declared.
    """
    spec = declared_spec(subject, expression, pattern=pattern)
    return replace(spec, facts=((DECLARATION, subject.fingerprint),))


def at_commit(ports: Ports, commit: CommitSubject, values: ToggleValues) -> Ports:
    """
    The same world, in which launches start the declared trainer in a commit's tree.

    Args:
        ports: Whose launcher is that of the declaration.
        commit: How its command is started there.
        values: Of its toggles.
    """
    launcher = ports.launcher
    assert isinstance(launcher, DeclaredLauncher), "a declared trainer is started by its launcher"
    return replace(ports, launcher=replace(launcher, subject=_there(launcher.subject, commit), values=values))


def check_declared(subject: ForeignSubject, commit: CommitSubject, values: ToggleValues) -> tuple[Outcome, str]:
    """
    Whether a commit has what the declaration names: its files, and the keys of config files that toggles edit.

    Returns:
        `COMPLETED` and an empty reason; or how it fails, and why.
    """
    for name in dict.fromkeys((*subject.files, *subject.config_files)):
        if not (commit.cwd / name).exists():
            remedy = "what git does not keep is declared by its full path"
            return Outcome.LOAD_FAILED, f"it does not build: {name} is not in this commit ({remedy})"
    with tempfile.TemporaryDirectory(prefix="flashprof-") as folder:
        try:
            foreign_launch(_there(subject, commit), values, Path(folder))
        except UsageError as error:
            return Outcome.LOAD_FAILED, f"it does not build: {error.what}"
    return Outcome.COMPLETED, ""


def refuse_changed_declaration(subject: SubjectSpec, ports: Ports) -> None:
    """
    Make sure that a search goes on with the declaration that it began with.

    Args:
        subject: Of the request, with the facts of its first call.
        ports: Whose launcher has the declaration as it is now.

    Raises:
        UsageError: It has changed.
    """
    launcher = ports.launcher
    if not isinstance(launcher, DeclaredLauncher):
        return
    now = launcher.subject.fingerprint
    before = dict(subject.facts).get(DECLARATION, now)
    if before != now:
        raise UsageError(
            "the declaration has changed since the search began",
            where=str(launcher.subject.path),
            offered=f"{now}, not {before}",
            allowed="the same command, toggles and needs; help texts may change",
            next_command="the search's first command again: it is another question now",
        )


def _there(subject: ForeignSubject, commit: CommitSubject) -> ForeignSubject:
    return replace(subject, cwd=commit.cwd, command=commit.spec.command)
