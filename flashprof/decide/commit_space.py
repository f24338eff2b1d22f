"""
The commits between a good and a bad one, as cells of a search: each holds its own change and those of its ancestors.

A cell's id is a full commit id, or `bad-without:<id>`: the bad commit with one change taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from flashprof.contracts.search import Cause

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flashprof.stats.terms import Terms

WITHOUT = "bad-without:"
NEAR = 3.0
"""How much likelier a commit is that names the phase which slowed. No more: most are named after what they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """A commit that may be the cause."""

    id: str
    parents: tuple[str, ...] = ()
    """Full ids, the first parent first; those outside the range too."""
    weight: float = 1.0
    """How likely it is beside the others, before anything is measured."""
    subject: str = ""
    """First line of its message."""
    words: frozenset[str] = frozenset()
    """What it is about: of its subject and of its paths, in lower case."""


@dataclass(frozen=True, kw_only=True)
class CommitSpace:
    """What is reachable from the bad commit and not from the good one, and the good one."""

    commits: tuple[CommitInfo, ...]
    """Without the good one, which is the base of all."""
    good: str
    bad: str
    revertible: frozenset[str] = frozenset()
    """Ids of commits that can be taken back on top of the bad one."""

    def __post_init__(self) -> None:
        """The bad commit is one of them, the good one is not."""
        ids = {commit.id for commit in self.commits}
        assert self.bad in ids, "the bad commit is the last change"
        assert self.good not in ids, "the good commit is no suspect"

    @cached_property
    def terms(self) -> Terms:
        """Each commit, in the order given."""
        return self.terms_near(())

    def terms_near(self, phases: Collection[str]) -> Terms:
        """Commits whose subject or paths name one of *phases* are likelier: `pipeline/model/masks.py` and `mask`."""
        import numpy as np

        from flashprof.stats.terms import commit_terms

        names = {phase.rstrip("s") for phase in phases}
        near = [any(word.rstrip("s") in names for word in commit.words) for commit in self.commits]
        weights = [
            commit.weight * (NEAR if is_near else 1.0) for commit, is_near in zip(self.commits, near, strict=True)
        ]
        return commit_terms([commit.id for commit in self.commits], np.array(weights, dtype=float))

    def rows(self, cells: Sequence[str]) -> NDArray[np.float64]:
        """A commit is there where the cell is it or comes after it: (num_cells, num_terms)."""
        import numpy as np

        rows = np.zeros((len(cells), len(self.commits)))
        for index, cell in enumerate(cells):
            mask = self._mask(cell)
            rows[index] = [mask >> place & 1 for place in range(len(self.commits))]
        return rows

    def group(self, cell: str) -> str:
        """Each commit is built and started by itself."""
        return cell

    def candidates(self, measured: Collection[str]) -> Sequence[str]:  # noqa: ARG002 a toggle space has too many
        """All commits, the good one first."""
        return (self.good, *(commit.id for commit in self.commits))

    def cause(self, term: int) -> Cause:
        """The commit."""
        return Cause((self.commits[term].id,))

    def alone(self, cause: Cause) -> tuple[str, str] | None:
        """The commit before, and the commit; the first parent of a merge, the good one where none is in the range."""
        if len(cause.members) != 1:
            return None
        (commit,) = cause.members
        parents = self.commits[self._place[commit]].parents
        return next((parent for parent in parents[:1] if parent in self._place), self.good), commit

    def back(self, cause: Cause) -> tuple[str, str] | None:
        """The bad commit with the change taken back, and the bad commit."""
        if len(cause.members) != 1:
            return None
        (commit,) = cause.members
        return (f"{WITHOUT}{commit}", self.bad) if commit in self.revertible else None

    @cached_property
    def _place(self) -> dict[str, int]:
        return {commit.id: place for place, commit in enumerate(self.commits)}

    @cached_property
    def _masks(self) -> dict[str, int]:
        """Bit j of a commit: whether commit j is in it. A mask per commit keeps 10,000 commits with merges cheap."""
        known = {commit.id: [parent for parent in commit.parents if parent in self._place] for commit in self.commits}
        masks = {self.good: 0}
        for commit in TopologicalSorter(known).static_order():
            mask = 1 << self._place[commit]
            for parent in known[commit]:
                mask |= masks[parent]
            masks[commit] = mask
        return masks

    def _mask(self, cell: str) -> int:
        if cell.startswith(WITHOUT):
            return self._masks[self.bad] & ~(1 << self._place[cell.removeprefix(WITHOUT)])
        return self._masks[cell]
