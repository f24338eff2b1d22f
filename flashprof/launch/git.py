"""
What git knows of a range of commits. It only reads: no file, index, HEAD or branch of the user's changes.

Hooks, other programs' `GIT_*` variables, and housekeeping that git starts by itself are switched off.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from flashprof.contracts.errors import FlashProfError, ToolError, UnknownNameError, UsageError
from flashprof.launch.git_errors import foreign_repository, no_commit, shallow_clone

TIMEOUT_S = 600.0
"""A checkout of a large tree on a slow network disk takes minutes."""
NUM_OFFERED = 8
"""Branches and tags that a message offers."""
NUM_NAMED = 3
"""Files that a note names."""
EXAMPLE = "--commits v1.0..HEAD"
QUIET = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "i18n.logOutputEncoding=UTF-8"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a range."""

    id: str
    """Full, as all ids here."""
    parents: tuple[str, ...]
    subject: str
    authored_s: int
    """Seconds since the epoch."""
    paths: tuple[str, ...]
    """What it changes, from the repository's top; of a merge, what it brings to its first parent."""

    @property
    def is_merge(self) -> bool:
        """Whether it has two parents or more."""
        return len(self.parents) > 1

    @property
    def label(self) -> str:
        """For a person: short id and subject."""
        return f"{self.id[:12]} {self.subject}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Two commits and what lies between."""

    repo: Path
    """Top of the user's working tree."""
    good: str
    bad: str
    commits: tuple[Commit, ...]
    """All that can be reached from *bad* and not from *good*, parents before children; the last one is *bad*."""

    def changed_to(self, commit: str) -> tuple[str, ...]:
        """Paths that the commits up to and with *commit* change, sorted: what may differ from *good* in its tree."""
        by_id = {each.id: each for each in self.commits}
        paths: set[str] = set()
        seen: set[str] = set()
        todo = [commit]
        while todo:
            at = todo.pop()
            if at in by_id and at not in seen:
                seen.add(at)
                paths.update(by_id[at].paths)
                todo.extend(by_id[at].parents)
        return tuple(sorted(paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeState:
    """What of the user's working tree is in no commit, and so is not measured."""

    changed: tuple[str, ...]
    untracked: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind that there is."""
        kinds = (
            ("with uncommitted changes: commits are measured, those changes are not", self.changed),
            ("not known to git: no commit has it, so no commit is measured with it", self.untracked),
        )
        return tuple(f"{_count(paths)} {what} ({_some(paths)})" for what, paths in kinds if paths)


def resolve_range(repo: Path, text: str) -> Range:
    """
    The commits that `GOOD..BAD` means.

    Args:
        repo: A folder in the repository.
        text: Two revisions, in any form that git reads; `GOOD..` ends at HEAD.

    Raises:
        UsageError: No repository; not of that form; nothing between the two; *GOOD* is no ancestor of *BAD*; a clone
            that does not reach so far back; submodules.
        UnknownNameError: No such revision; offers branches and tags.
    """
    left, right = _split(text)
    top = find_top(repo)
    good, bad = resolve_commit(top, left), resolve_commit(top, right)
    _check_ancestor(top, text, good, bad)
    refuse_submodules(top, (good, bad))
    commits = _read_commits(top, good, bad)
    shallow = _shallow_ids(top)
    if any(commit.id in shallow for commit in commits):
        raise shallow_clone(top, text)
    return Range(repo=top, good=good, bad=bad, commits=commits)


def find_top(folder: Path) -> Path:
    """
    Top of the working tree that a folder lies in.

    Raises:
        UsageError: It lies in none, or in somebody else's, in which git does nothing before it is told to.
    """
    done = call_git(folder, "rev-parse", "--show-toplevel")
    if b"dubious ownership" in done.stderr:
        raise foreign_repository(folder, done.stderr)
    if done.returncode:
        raise UsageError(
            "not a git repository with a working tree",
            where=str(folder),
            offered=last_line(done.stderr),
            allowed="a folder in a git checkout",
            next_command="flashprof bisect --commits GOOD..BAD --repo DIRECTORY",
        )
    return Path(os.fsdecode(done.stdout.removesuffix(b"\n")))


def tree_state(repo: Path) -> TreeState:
    """What is changed or new in the user's working tree, paths from its top."""
    told = ask_git(repo, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
    entries = [os.fsdecode(entry) for entry in told.split(b"\0") if entry]
    return TreeState(
        changed=tuple(entry[3:] for entry in entries if not entry.startswith("??")),
        untracked=tuple(entry[3:] for entry in entries if entry.startswith("??")),
    )


def call_git(folder: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """
    Run git there, whatever it answers.

    Raises:
        ToolError: There is no git, or it does not come back.
    """
    command = ("git", "--no-optional-locks", *QUIET, "-C", str(folder), *words)
    try:
        return subprocess.run(command, input=stdin, env=_env(), capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise ToolError("git is not installed", next_command="apt-get install git") from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"git {words[0]} has not ended after {TIMEOUT_S:.0f} s", where=str(folder), next_command="git status"
        ) from error


def ask_git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    """
    What git prints.

    Raises:
        ToolError: It fails.
    """
    done = call_git(folder, *words, stdin=stdin)
    if done.returncode:
        raise ToolError(
            f"git {words[0]} failed: {last_line(done.stderr)}",
            where=str(folder),
            next_command=f"git -C {folder} {' '.join(words)}",
        )
    return done.stdout


def last_line(said: bytes) -> str:
    """The last line of what a program printed that is not empty."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _env() -> Mapping[str, str]:
    """In a hook, `GIT_DIR` and its like mean another repository than the one that is asked about."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**env, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}


def _split(text: str) -> tuple[str, str]:
    good, dots, bad = text.partition("..")
    if bad.startswith("."):
        raise UsageError(
            "three dots mean what two branches do not share; a bisection needs a range with two",
            offered=text,
            allowed="GOOD..BAD, the fast commit first",
            next_command=f"--commits {good}..{bad.lstrip('.')}",
        )
    if not (good and dots) or ".." in bad:
        raise UsageError(
            f"{text!r} is no range of commits",
            offered=text,
            allowed="GOOD..BAD, the fast commit first; GOOD.. ends at HEAD",
            next_command=EXAMPLE,
        )
    return good, bad or "HEAD"


def resolve_commit(top: Path, name: str) -> str:
    """
    The full id of a commit.

    Args:
        top: Of a working tree.
        name: Of a revision, in any form that git reads.

    Raises:
        UnknownNameError: No such revision; offers branches and tags.
        UsageError: A shallow clone, which may not reach so far back, or a repository without a commit.
    """
    # With its ending, a name that begins with a dash is no option of git's.
    done = call_git(top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.returncode == 0:
        return done.stdout.decode().strip()
    if _shallow_ids(top):
        raise shallow_clone(top, name)
    if not ask_git(top, "rev-list", "--all", "--max-count=1"):
        raise no_commit(top, name)
    told = ask_git(top, "for-each-ref", "--sort=-creatordate", "--format=%(refname:short)")
    refs = told.decode(errors="replace").split()
    near = get_close_matches(name, refs, n=NUM_NAMED)
    raise UnknownNameError(
        "revision",
        name,
        dict.fromkeys(("HEAD", *near, *refs[:NUM_OFFERED])),
        next_command=f"git -C {top} log --oneline",
    )


def _check_ancestor(top: Path, text: str, good: str, bad: str) -> None:
    if good == bad:
        raise UsageError(
            "there is no commit between the two: both are the same",
            offered=f"{text} = {good[:12]}",
            allowed="GOOD..BAD, where BAD is a later commit",
            next_command=EXAMPLE,
        )
    if _is_ancestor(top, good, bad):
        return
    if _is_ancestor(top, bad, good):
        left, right = _split(text)
        raise UsageError(
            "the good commit comes after the bad one: the older one stands first",
            offered=text,
            allowed="GOOD..BAD, where GOOD is an ancestor of BAD",
            next_command=f"--commits {right}..{left}",
        )
    raise _unrelated(top, text, good, bad)


def _unrelated(top: Path, text: str, good: str, bad: str) -> FlashProfError:
    if _shallow_ids(top):
        return shallow_clone(top, text)
    base = call_git(top, "merge-base", good, bad).stdout.decode().strip()
    shared = f"they part at {base[:12]}" if base else "they share no commit"
    _, right = _split(text)
    return UsageError(
        f"the good commit is no ancestor of the bad one: {shared}",
        where=str(top),
        offered=f"{text} = {good[:12]}..{bad[:12]}",
        allowed="GOOD..BAD, where GOOD is an ancestor of BAD",
        next_command=f"--commits {base[:12]}..{right}" if base else EXAMPLE,
    )


def fork_point(top: Path, base: str, head: str) -> str:
    """
    The commit where *head* left *base*; *base* itself where head has nothing of its own, or they share no commit.

    Raises:
        UsageError: The clone is shallow and does not hold it: the tip of base holds what others landed since.
    """
    done = call_git(top, "merge-base", base, head)
    if done.returncode and _shallow_ids(top):
        raise shallow_clone(top, f"where {head[:12]} left {base[:12]}")
    fork = done.stdout.decode().strip()
    return fork if done.returncode == 0 and fork != head else base


def _is_ancestor(top: Path, old: str, new: str) -> bool:
    return call_git(top, "merge-base", "--is-ancestor", old, new).returncode == 0


def _shallow_ids(top: Path) -> frozenset[str]:
    """Commits whose parents a shallow clone left behind; empty in a full one."""
    path = Path(os.fsdecode(ask_git(top, "rev-parse", "--git-path", "shallow").removesuffix(b"\n")))
    try:
        return frozenset((top / path).read_text(encoding="ascii").split())
    except FileNotFoundError:
        return frozenset()


def refuse_submodules(top: Path, commits: Iterable[str]) -> None:
    """
    A worktree has submodules empty; filling them would fetch, and not from the user's own copies.

    Raises:
        UsageError: One of the commits has any.
    """
    for commit in commits:
        entries = ask_git(top, "ls-tree", "-r", "-z", commit).split(b"\0")
        modules = [os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(b"160000 ")]
        if modules:
            raise UsageError(
                f"commits with submodules cannot be bisected in worktrees ({_some(modules)})",
                where=f"{top} at {commit[:12]}",
                allowed="commits without submodules; or git's own bisection, in your own checkout",
                next_command="git bisect run flashprof bisect here --help",
            )


def _read_commits(top: Path, good: str, bad: str) -> tuple[Commit, ...]:
    told = ask_git(
        *(top, "log", "--topo-order", "--reverse", "--no-show-signature", "--no-decorate", "-z"),
        *("--format=%H%x00%P%x00%at%x00%s", f"{good}..{bad}"),
    )
    fields = told.decode(errors="replace").removesuffix("\0").split("\0")
    rows = [fields[start : start + 4] for start in range(0, len(fields), 4)]
    paths = _read_paths(top, [(row[0], *row[1].split()[:1]) for row in rows])
    return tuple(
        Commit(
            id=commit,
            parents=tuple(parents.split()),
            authored_s=int(authored_s),
            subject=subject,
            paths=tuple(paths.get(commit, ())),
        )
        for commit, parents, authored_s, subject in rows
    )


def _read_paths(top: Path, pairs: Sequence[tuple[str, ...]]) -> dict[str, list[str]]:
    """
    Changed paths by commit.

    Args:
        top: The repository.
        pairs: A commit and its first parent; without a parent all its files count.
    """
    asked = "".join(" ".join(pair) + "\n" for pair in pairs).encode()
    told = ask_git(top, "diff-tree", "--stdin", "--root", "-r", "-z", "--name-only", "--no-renames", stdin=asked)
    return _group(told, [pair[0] for pair in pairs])


def _group(told: bytes, commits: Sequence[str]) -> dict[str, list[str]]:
    """Each commit's id is followed by its paths; one without changes is left out."""
    found: dict[str, list[str]] = {}
    to_come: Iterator[str] = iter(commits)
    ahead = set(commits)
    paths: list[str] = []
    for word in told.split(b"\0")[:-1]:
        name = os.fsdecode(word)
        if name in ahead:
            paths = found.setdefault(name, [])
            # What was passed over cannot come any more: a file may bear the name of a commit.
            ahead.difference_update(iter(lambda: next(to_come), name))
            ahead.discard(name)
        else:
            paths.append(name)
    return found


def _count(paths: Sequence[str]) -> str:
    return f"{len(paths)} file{'' if len(paths) == 1 else 's'}"


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - NUM_NAMED
    return ", ".join(paths[:NUM_NAMED]) + (f", and {more} more" if more > 0 else "")
