"""What each cell of a search is started as: our pipeline or a declared trainer at some toggles, or a commit's tree."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from flashprof.app.commits import CommitSubject, check_builds, commit_subject
from flashprof.app.declared_commits import at_commit, check_declared
from flashprof.app.foreign import at_values
from flashprof.app.session import Ports
from flashprof.app.subject import launch_command
from flashprof.contracts.errors import SubjectError
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.toggles import Toggle, ToggleValues, format_toggles, format_value
from flashprof.decide.commit_space import WITHOUT
from flashprof.decide.search_observations import Built
from flashprof.decide.toggle_space import ToggleSpace
from flashprof.launch.environments import Environment, Environments
from flashprof.launch.git import Range
from flashprof.launch.worktrees import SHORT, Worktrees


class Start(NamedTuple):
    """How a cell is started, and in which world."""

    subject: SubjectSpec
    ports: Ports


class Subjects(Protocol):
    """The cells of one search, as programs."""

    def start(self, cell: str, ports: Ports) -> Start:
        """
        How to start *cell*.

        Raises:
            SubjectError: It cannot be made.
        """
        ...

    def build(self, cell: str) -> Built:
        """Make what the launches of *cell* need."""
        ...

    def switched(self, cell: str) -> ToggleValues:
        """What a running subject is told to be *cell*: hot toggles only; empty where nothing can be switched."""
        ...

    def values(self, cell: str) -> ToggleValues:
        """The toggles that the subject must honour in *cell*: those that differ somewhere in the search."""
        ...

    def label(self, cell: str) -> str:
        """A cell for a person."""
        ...

    def members(self) -> dict[str, str]:
        """What causes are made of, for a person."""
        ...

    def clear_away(self) -> None:
        """
        Remove what a finished search needs no more.

        Raises:
            ToolError: It cannot be removed.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ToggleSubjects:
    """Cells of toggles."""

    subject: SubjectSpec
    """What all cells share."""
    space: ToggleSpace
    registry: Sequence[Toggle]

    def start(self, cell: str, ports: Ports) -> Start:
        """Our pipeline, or a declared trainer, with the cell's toggles."""
        subject = replace(self.subject, toggles=self.label(cell))
        ports = at_values(ports, self.space.values(cell))
        return Start(replace(subject, command=launch_command(subject)), ports)

    def build(self, cell: str) -> Built:
        """Nothing is built."""
        return Built(group=self.space.group(cell), outcome=Outcome.COMPLETED, length_s=0.0)

    def switched(self, cell: str) -> ToggleValues:
        """All hot toggles that differ somewhere in the search."""
        return {name: value for name, value in self.values(cell).items() if name in self.space.hot}

    def values(self, cell: str) -> ToggleValues:
        """Those of the space."""
        values = self.space.values(cell)
        return {name: values[name] for name in self.space.names}

    def label(self, cell: str) -> str:
        """The shortest toggle expression."""
        return format_toggles(self.space.values(cell), self.registry)

    def members(self) -> dict[str, str]:
        """Each toggle with its two values: `queue: 8 → 1`."""
        good, bad = self.space.good_values, self.space.bad_values
        return {name: f"{name}: {format_value(good[name])} → {format_value(bad[name])}" for name in self.space.names}

    def clear_away(self) -> None:
        """Nothing was built."""


@dataclass(frozen=True, kw_only=True)
class CommitSubjects:
    """Cells of commits, each in a worktree of its own."""

    subject: SubjectSpec
    commits: Range
    good_label: str
    """The good commit is not in the range."""
    command: tuple[str, ...]
    """The user's, or that of the declaration; empty for our own pipeline."""
    declared: ForeignSubject | None = None
    """The declaration in the user's tree: it holds for all commits."""
    worktrees: Worktrees
    environments: Environments
    cwd: Path
    env: Mapping[str, str]

    def start(self, cell: str, ports: Ports) -> Start:
        """The commit's own tree, its environment, today's emitter."""
        worktree = self._worktree(cell)
        found = self._commit_subject(worktree, self.environments.prepare(worktree))
        ports = replace(ports, env={**ports.env, **found.env}, cwd=found.cwd)
        if self.declared is not None:
            ports = at_commit(ports, found, self.declared.parse(self.subject.toggles))
        return Start(found.spec, ports)

    def build(self, cell: str) -> Built:
        """Check the commit out, prepare its environment, and see whether it can be started at all."""
        start_s = time.monotonic()
        note = ""
        try:
            worktree = self._worktree(cell)
            environment = self.environments.prepare(worktree)
            outcome, reason = self._check(cell, worktree, environment)
            note = environment.note if outcome.is_measurement else ""
        except SubjectError as error:
            outcome, reason = error.outcome, error.what
        return Built(group=cell, outcome=outcome, reason=reason, length_s=time.monotonic() - start_s, note=note)

    def switched(self, cell: str) -> ToggleValues:  # noqa: ARG002 (that of toggles depends on it)
        """Nothing: each commit has a launch of its own."""
        return {}

    def values(self, cell: str) -> ToggleValues:  # noqa: ARG002
        """No toggle is searched."""
        return {}

    def label(self, cell: str) -> str:
        """Short id and subject."""
        if cell.startswith(WITHOUT):
            return f"{self._short(self.commits.bad)} without {self.label(cell.removeprefix(WITHOUT))}"
        return self.members().get(cell, self._short(cell))

    def members(self) -> dict[str, str]:
        """Each commit with its subject."""
        return {self.commits.good: self.good_label, **{commit.id: commit.label for commit in self.commits.commits}}

    def clear_away(self) -> None:
        """The worktrees; environments are kept, which take minutes to make."""
        self.worktrees.remove_all()

    def _check(self, cell: str, worktree: Path, environment: Environment) -> tuple[Outcome, str]:
        commit = self.commits.bad if cell.startswith(WITHOUT) else cell
        changed = self.commits.changed_to(commit)
        subject = self._commit_subject(worktree, environment)
        outcome, reason = check_builds(worktree, environment, subject, changed=changed, env=self.env)
        if self.declared is None or not outcome.is_measurement:
            return outcome, reason
        return check_declared(self.declared, subject, self.declared.parse(self.subject.toggles))

    def _commit_subject(self, worktree: Path, environment: Environment) -> CommitSubject:
        return commit_subject(
            self.subject,
            worktree,
            environment,
            self.command,
            repo=self.commits.repo,
            cwd=self.cwd,
            env=self.env,
        )

    def _worktree(self, cell: str) -> Path:
        if not cell.startswith(WITHOUT):
            return self.worktrees.add(cell)
        commit = cell.removeprefix(WITHOUT)
        found = self.worktrees.without(self.commits.bad, commit)
        if found is None:
            what = f"{self.label(commit)} cannot be taken back on top of {self._short(self.commits.bad)}"
            raise SubjectError(what, outcome=Outcome.LOAD_FAILED)
        return found

    @staticmethod
    def _short(commit: str) -> str:
        return commit[:SHORT]
