"""
A git history with planted regressions: `make_history` writes it in a second, the same ids from the same source.

The root is today's source (`good`). Neutral commits of the usual kinds follow, merges of side branches among them, and
stretches in which the pipeline cannot be imported until somebody repairs it; the case's own commits lie at random
places in between, never in such a stretch or right behind one.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.regressions.case import Case, Files, PlantedCommit, Role
from benchmarks.regressions.neutral import FILLERS, NOTES, Change
from benchmarks.regressions.trees import good_files, source_files

FIRST_S = 1_790_000_000
"""Seconds since the epoch at the root: dates are part of a commit's id."""
APART_S = 5400
COMMITS_A_MERGE = 16
COMMITS_A_BREAK = 24
LONGEST_BREAK = 3
MOST_DRAWS = 200
BREAKS = (
    ("pipeline/cli/main.py", "\n\ndef _unfinished(:\n"),
    ("pipeline/toggles.py", "\n\nfrom pipeline.not_there import NOTHING\n"),
    ("pipeline/topology.py", "\n\nNUM_PARTS = = 2\n"),
)
"""Files that every start imports, and what is written at their end."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A history, and what is true of it."""

    repo: Path
    good: str
    """Full commit ids."""
    bad: str
    losses: tuple[str, ...]
    gains: tuple[str, ...]
    broken: frozenset[str]
    """Commits that do not start."""
    num_commits: int
    """That `good..bad` holds."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One in the order in which they are written; the root is the first."""

    change: Change
    parents: tuple[int, ...]
    """Places in that order; the first is the one that the change is made to."""
    role: Role = Role.NEUTRAL
    is_broken: bool = False


@dataclass(kw_only=True)
class _Line:
    """The main line as it grows."""

    rng: random.Random
    fillers: tuple[str, ...]
    pending: list[PlantedCommit]
    files: Files
    commits: list[Commit]
    tips: list[int] = field(default_factory=lambda: [0])
    """Places of its commits, the root first."""

    def add(
        self, change: Change, *, role: Role = Role.NEUTRAL, is_broken: bool = False, merged: int | None = None
    ) -> None:
        parents = (self.tips[-1],) if merged is None else (self.tips[-1], merged)
        self.files.update(change.files)
        self.commits.append(Commit(change=change, parents=parents, role=role, is_broken=is_broken))
        self.tips.append(len(self.commits) - 1)

    def neutral(self, spared: str = "") -> Change:
        """One that leaves the planted edits to come, and the file *spared*, alone."""
        edits = [edit for commit in self.pending for edit in commit.edits]
        for _ in range(MOST_DRAWS):
            change = FILLERS[self.rng.choice(self.fillers)](self.rng, self._without(spared), len(self.commits))
            if change is None:
                continue
            after = self.files | change.files
            # Of several edits of one file, a later one may need an earlier one: what fits now has to fit then.
            if all(edit.fits(after) for edit in edits if edit.fits(self.files)):
                return change
        raise ValueError("no neutral commit leaves the planted ones alone")

    def _without(self, spared: str) -> Mapping[str, str]:
        return {name: text for name, text in self.files.items() if name != spared} if spared else self.files

    def plant(self) -> None:
        planted = self.pending.pop(0)
        files = dict(self.files)
        for edit in planted.edits:
            edit.apply(files)
        changed = {name: text for name, text in files.items() if text != self.files.get(name)}
        self.add(Change(planted.subject, changed), role=planted.role)

    def break_and_repair(self, length: int, max_commits: int) -> None:
        """*length* commits that do not start, the first of which did it; then the repair."""
        name, text = self.rng.choice(BREAKS)
        self.add(Change(f"Tidy {name.rpartition('/')[2]}", {name: self.files[name] + text}), is_broken=True)
        while length > 1 and len(self.commits) < max_commits - 1:
            self.add(self.neutral(spared=name), is_broken=True)
            length -= 1
        self.add(Change("Repair the start", {name: self.files[name].removesuffix(text)}))

    def merge(self) -> None:
        """A side branch of one commit, from two commits ago."""
        number = len(self.commits)
        text = f"# Side {number}\n\nWhat was tried on the side.\n"
        change = Change(f"Docs: what was tried on the side, {number}", {f"docs/side-{number}.md": text})
        fork = self.tips[max(0, len(self.tips) - 3)]
        self.commits.append(Commit(change=change, parents=(fork,), is_broken=self.commits[fork].is_broken))
        self.add(Change(f"Merge branch 'side-{number}'", change.files), merged=number)


def make_history(
    case: Case, repo: Path, *, num_commits: int = 64, seed: int = 0, source: Mapping[str, str] | None = None
) -> Planted:
    """
    Write the history of *case* into *repo*, a folder that is made, with its last commit checked out.

    Args:
        case: One of kind `commits`.
        repo: It must not exist.
        num_commits: That `good..bad` holds; enough for the planted ones.
        seed: Of where they lie and what surrounds them.
        source: Text of today's files; None: read.
    """
    commits = plan_history(case, source_files() if source is None else source, num_commits=num_commits, seed=seed)
    ids = _write(commits, repo)
    of_role = {role: tuple(i for i, commit in zip(ids, commits, strict=True) if commit.role is role) for role in Role}
    return Planted(
        repo=repo,
        good=ids[0],
        bad=ids[-1],
        losses=of_role[Role.LOSS],
        gains=of_role[Role.GAIN],
        broken=frozenset(i for i, commit in zip(ids, commits, strict=True) if commit.is_broken),
        num_commits=len(commits) - 1,
    )


def plan_history(case: Case, source: Mapping[str, str], *, num_commits: int, seed: int) -> list[Commit]:
    """
    The commits, the root first, each behind its parents.

    Raises:
        ValueError: An edit does not fit the source, or there is no room for the planted commits.
    """
    # A string seeds by its bytes, in every process alike.
    rng = random.Random(f"{case.name} {num_commits} {seed}")
    root = good_files(case, source) | {NOTES: "# Notes\n\n"}
    line = _Line(
        rng=rng,
        fillers=case.fillers or tuple(FILLERS),
        pending=list(case.commits),
        files=dict(root),
        commits=[Commit(change=Change("The trainer", root), parents=())],
    )
    places = sorted(rng.sample(range(1, num_commits + 1), len(case.commits)))
    events = {} if case.fillers else _draw_events(rng, num_commits)
    while len(line.commits) <= num_commits:
        _grow(line, events, places, num_commits)
    return line.commits


def _draw_events(rng: random.Random, num_commits: int) -> dict[int, str]:
    """Where merges and breaks begin."""
    num_merges, num_breaks = num_commits // COMMITS_A_MERGE, num_commits // COMMITS_A_BREAK
    drawn = rng.sample(range(2, num_commits), num_merges + num_breaks)
    return {place: "merge" if order < num_merges else "break" for order, place in enumerate(drawn)}


def _grow(line: _Line, events: dict[int, str], places: list[int], num_commits: int) -> None:
    """Add what is due at this place; several commits where a break or a merge fits before what is due next."""
    here = len(line.commits)
    if places and here >= places[0]:
        places.pop(0)
        line.plant()
        return
    # A culprit's parent must start, or nobody could tell the two apart; nor may a break be the end.
    room = (places[0] if places else num_commits + 1) - here - 1
    event = events.pop(here, "")
    if event == "merge" and room >= 2:
        line.merge()
    elif event == "break" and room >= LONGEST_BREAK + 1:
        line.break_and_repair(line.rng.randint(1, LONGEST_BREAK), num_commits)
    else:
        line.add(line.neutral())


def _write(commits: Sequence[Commit], repo: Path) -> tuple[str, ...]:
    """Through `git fast-import`, in one process: to plan and write 128 commits takes 1.3 s on a busy machine."""
    repo.mkdir(parents=True)
    _git(repo, "init", "--quiet", "--initial-branch", "main")
    marks = repo / ".git" / "planted-marks"
    _git(repo, "fast-import", "--quiet", f"--export-marks={marks}", stdin=_stream(commits))
    ids = dict(line.split() for line in marks.read_text(encoding="utf-8").splitlines())
    marks.unlink()
    _git(repo, "reset", "--quiet", "--hard", "main")
    return tuple(ids[f":{number + 1}"] for number in range(len(commits)))


def _stream(commits: Sequence[Commit]) -> bytes:
    parts: list[bytes] = []
    sides = {parent for commit in commits for parent in commit.parents[1:]}
    for number, commit in enumerate(commits):
        who = f"A Person <person@example.org> {FIRST_S + number * APART_S} +0000"
        # The last one written under a name keeps it. A side branch's own name is taken away again.
        branch = "side" if number in sides else "main"
        parts.append(f"commit refs/heads/{branch}\nmark :{number + 1}\nauthor {who}\ncommitter {who}\n".encode())
        parts.append(_data(commit.change.subject))
        words = ("from", "merge")
        parts += [f"{word} :{parent + 1}\n".encode() for word, parent in zip(words, commit.parents, strict=False)]
        for name, text in sorted(commit.change.files.items()):
            parts += [f"M 100644 inline {name}\n".encode(), _data(text)]
        parts.append(b"\n")
    if sides:
        parts.append(b"reset refs/heads/side\nfrom 0000000000000000000000000000000000000000\n\n")
    return b"".join(parts)


def _data(text: str) -> bytes:
    raw = text.encode()
    return b"data %d\n%s\n" % (len(raw), raw)


def _git(repo: Path, *words: str, stdin: bytes = b"") -> None:
    """Without the user's configuration, whose hooks and signatures would change ids."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(("git", "-C", str(repo), *words), input=stdin, env=env, check=True, stdout=subprocess.DEVNULL)
