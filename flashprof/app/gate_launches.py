"""
The arms of a gate: two trees, base in a worktree of the gate's own, head as it lies there or in another.

What runs is what either tree holds: its sources, the libraries that its dependency files ask for (`--setup`), and
today's emitter in both, so that a change of the instrument is no change of the subject.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flashprof.app.commits import CommitSubject, check_builds, commit_subject
from flashprof.app.declared_commits import at_commit, check_declared
from flashprof.app.foreign import DeclaredLauncher
from flashprof.app.search_subjects import Start
from flashprof.app.session import Ports
from flashprof.app.source import CODE
from flashprof.contracts.comparison import Arm
from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.experiment import SubjectSpec
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.gate import GateRequest
from flashprof.launch.environments import Environment, Environments
from flashprof.launch.git import ask_git, find_top, fork_point, refuse_submodules, resolve_commit
from flashprof.launch.worktrees import SHORT, Worktrees

WORKTREES, ENVIRONMENTS = "worktrees", "environments"
"""In a gate's folder."""
SOURCES = CODE | {".toml", ".yaml", ".yml", ".cfg"}
"""What of the files that git does not know may be part of a program: trainers leave logs and weights in their trees."""
UNCOMMITTED = "with changes that are in no commit"
NAMES: Mapping[Arm, str] = {Arm.BASE: "base", Arm.CANDIDATE: "head"}
"""How a gate calls its arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One arm."""

    commit: str
    """Full id; of head as it lies there, the one that is checked out."""
    label: str
    """For a person: short commit and subject."""
    changes: str = ""
    """Fingerprint of what is in no commit; empty for a commit as it is."""
    is_here: bool = False
    """Whether it is the user's own tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Both arms of a gate."""

    top: Path
    """Of the user's tree."""
    base: Tree
    head: Tree
    notes: tuple[str, ...] = ()

    def of(self, arm: Arm) -> Tree:
        """That of one arm."""
        return self.base if arm is Arm.BASE else self.head


def find_trees(request: GateRequest) -> Trees:
    """
    What base and head are.

    Base is the commit where head left *base_ref*: what others have landed there since is not head's doing.

    Raises:
        UsageError: No repository, a clone that does not reach so far back, or submodules.
        UnknownNameError: No such revision.
    """
    top = _top(request.repo)
    head = _head(top, request)
    asked = resolve_commit(top, request.base_ref)
    base = fork_point(top, asked, head.commit)
    refuse_submodules(top, [base] if head.is_here else [base, head.commit])
    notes = []
    if base != asked:
        notes.append(f"{request.base_ref} has gone on since head left it at {base[:SHORT]}, which is the base here")
    if base == head.commit and not head.changes:
        notes.append("base and head are the same commit: a difference would be noise")
    return Trees(top=top, base=Tree(commit=base, label=_label(top, base)), head=head, notes=tuple(notes))


def find_head(request: GateRequest) -> tuple[Path, Tree]:
    """
    Top of the user's tree, and head.

    Raises:
        UsageError: No repository.
        UnknownNameError: No such revision.
    """
    top = _top(request.repo)
    return top, _head(top, request)


@dataclass(frozen=True, kw_only=True)
class TreeStarts:
    """Starts either tree; implements `ArmStarts`."""

    subject: SubjectSpec
    """What both have in common."""
    command: tuple[str, ...]
    """The user's, or that of the declaration; empty for our own pipeline."""
    declared: ForeignSubject | None
    trees: Trees
    worktrees: Worktrees
    environments: Environments
    ports: Ports

    def start(self, arm: Arm) -> Start:
        """The tree, its environment, today's emitter."""
        found = self._commit_subject(arm)[0]
        ports = replace(self.ports, env={**self.ports.env, **found.env}, cwd=found.cwd)
        if self.declared is not None:
            ports = at_commit(ports, found, self.declared.parse(self.subject.toggles))
        return Start(found.spec, ports)

    def build(self, arm: Arm) -> str:
        """
        Make an arm's tree and environment, and see whether it can be started at all.

        Returns:
            What to know of its environment; empty for nothing.

        Raises:
            SubjectError: It cannot; says which arm.
        """
        name, tree = NAMES[arm], self.trees.of(arm)
        try:
            found, environment, place = self._commit_subject(arm)
            outcome, why = check_builds(place, environment, found, changed=self._changed(arm), env=self.ports.env)
            if self.declared is not None and outcome.is_measurement:
                outcome, why = check_declared(self.declared, found, self.declared.parse(self.subject.toggles))
        except SubjectError as error:
            outcome, why, environment = error.outcome, error.what, None
        if not outcome.is_measurement:
            raise SubjectError(f"{name} does not run ({tree.label}): {why}", outcome=outcome)
        return f"{name}: {environment.note}" if environment is not None and environment.note else ""

    def clear_away(self) -> None:
        """The worktrees; environments are kept, which take minutes to make."""
        self.worktrees.remove_all()

    def _commit_subject(self, arm: Arm) -> tuple[CommitSubject, Environment, Path]:
        tree = self.trees.of(arm)
        place = self.trees.top if tree.is_here else self.worktrees.add(tree.commit)
        environment = self.environments.prepare(place)
        found = commit_subject(
            self.subject,
            place,
            environment,
            self.command,
            repo=self.trees.top,
            cwd=self.ports.cwd,
            env=self.ports.env,
        )
        return found, environment, place

    def _changed(self, arm: Arm) -> tuple[str, ...]:
        """Paths of head that are unlike base: base was built before, by somebody."""
        if arm is Arm.BASE:
            return ()
        ends = [self.trees.base.commit, *([] if self.trees.head.is_here else [self.trees.head.commit])]
        told = ask_git(self.trees.top, "diff", "--name-only", "-z", "--no-renames", *ends, "--")
        return tuple(os.fsdecode(name) for name in told.split(b"\0") if name)


def make_starts(request: GateRequest, trees: Trees, ports: Ports, folder: Path) -> TreeStarts:
    """
    The arms of one gate.

    Args:
        request: Of the gate.
        trees: Its arms.
        ports: The world outside.
        folder: Of the gate, where worktrees and environments go.
    """
    declared = ports.launcher.subject if isinstance(ports.launcher, DeclaredLauncher) else None
    return TreeStarts(
        subject=request.subject,
        command=request.command if declared is None else declared.command,
        declared=declared,
        trees=trees,
        worktrees=Worktrees(trees.top, folder / WORKTREES),
        environments=Environments(folder / ENVIRONMENTS, trees.top, ports.env, setup=shlex.split(request.setup)),
        ports=ports,
    )


def clear_aside(folder: Path) -> None:
    """Remove the worktrees of gates that `--fresh` has put aside."""
    for aside in folder.parent.glob(f"{folder.name}.old-*/{WORKTREES}"):
        shutil.rmtree(aside, ignore_errors=True)


def _top(repo: Path) -> Path:
    try:
        return find_top(repo)
    except UsageError as error:
        raise UsageError(
            error.what,
            where=error.where,
            offered=error.offered,
            allowed=error.allowed,
            next_command="flashprof gate --base-ref main --repo DIRECTORY",
        ) from error


def _head(top: Path, request: GateRequest) -> Tree:
    commit = resolve_commit(top, request.head_ref or "HEAD")
    if request.head_ref:
        return Tree(commit=commit, label=_label(top, commit))
    # The declaration is one for both trees, and part of the question by itself.
    changes = _fingerprint(top, [request.reports, *([Path(request.subject_file)] if request.subject_file else [])])
    label = f"{_label(top, commit)}, {UNCOMMITTED}" if changes else _label(top, commit)
    return Tree(commit=commit, label=label, changes=changes, is_here=True)


def _label(top: Path, commit: str) -> str:
    return ask_git(top, "log", "-1", "--format=%h %s", f"--abbrev={SHORT}", commit).decode(errors="replace").strip()


def _fingerprint(top: Path, own: Sequence[Path]) -> str:
    """Of all that is in no commit, but for FlashProf's *own* files and folders; empty where there is nothing."""
    where = top.resolve()
    within = [path.resolve() for path in own if where in path.resolve().parents]
    but = [f":(exclude,literal){path.relative_to(where).as_posix()}" for path in within]
    changed = ask_git(top, "diff", "--binary", "--no-ext-diff", "HEAD", "--", ".", *but)
    told = ask_git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", ".", *but)
    paths = [top / os.fsdecode(name) for name in sorted(told.split(b"\0")) if name]
    sources = [path for path in paths if path.suffix in SOURCES and path.is_file()]
    if not changed and not sources:
        return ""
    digest = hashlib.sha256(changed)
    for path in sources:
        digest.update(os.fsencode(path.relative_to(top)) + b"\0" + path.read_bytes())
    return digest.hexdigest()[:SHORT]
