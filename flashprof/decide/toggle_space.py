"""
The cells between two settings of toggles: each toggle that differs has its good or its bad value.

A cell's id names what is bad in it, in the order of the space: `compile+swa`; the ends are `good` and `bad`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from flashprof.contracts.search import BAD, GOOD, Cause
from flashprof.contracts.toggles import ToggleValues, format_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flashprof.stats.terms import Terms

MAX_FULL = 8
"""With more toggles than this not all subsets are candidates: 2⁹ rows of 45 terms take over 20 ms a choice."""
NUM_BALANCED = 256


@dataclass(frozen=True, kw_only=True)
class ToggleSpace:
    """Subsets of the toggles that differ, at their bad value."""

    names: tuple[str, ...]
    """Toggles that differ, in the order in which ids name them."""
    good_values: ToggleValues
    """Of every toggle of the subject, those that do not differ too."""
    bad_values: ToggleValues
    hot: frozenset[str] = frozenset()
    """Toggles that a running subject can switch."""
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Toggle → toggles without which it cannot be on."""
    refused: frozenset[str] = frozenset()
    """Ids of cells that cannot be measured for other reasons."""
    good: str = GOOD
    bad: str = BAD

    def __post_init__(self) -> None:
        """Each name is a difference, or two cells would be one."""
        assert self.names, "good and bad are one cell"
        alike = [name for name in self.names if self.good_values[name] == self.bad_values[name]]
        assert not alike, f"these do not differ: {alike}"

    @cached_property
    def terms(self) -> Terms:
        """Each toggle, then each pair."""
        from flashprof.stats.terms import toggle_terms

        return toggle_terms(self.names)

    def terms_near(self, phases: Collection[str]) -> Terms:  # noqa: ARG002 a toggle is not named after a phase
        """All toggles as likely as before."""
        return self.terms

    def rows(self, cells: Sequence[str]) -> NDArray[np.float64]:
        """A pair is there where both of its toggles are bad: (num_cells, num_terms)."""
        import numpy as np

        subsets = [self.subset(cell) for cell in cells]
        mains = np.array([[name in subset for name in self.names] for subset in subsets], dtype=float)
        mains = mains.reshape(len(cells), len(self.names))
        place = {name: index for index, name in enumerate(self.names)}
        members = [[place[name] for name in names] for names in self.terms.names]
        return np.stack([mains[:, list(indices)].prod(axis=1) for indices in members], axis=1)

    def group(self, cell: str) -> str:
        """Values of the toggles that only a start can set, `compile=on`; empty where there are none."""
        values = self.values(cell)
        return ",".join(f"{name}={format_value(values[name])}" for name in self.names if name not in self.hot)

    def candidates(self, measured: Collection[str]) -> Sequence[str]:  # noqa: ARG002 a commit space may want it
        """All allowed subsets, or a fixed choice of them where they are too many."""
        return self._candidates

    def cause(self, term: int) -> Cause:
        """The toggle, or the pair."""
        return Cause(tuple(self.terms.names[term]))

    def alone(self, cause: Cause) -> tuple[str, str] | None:
        """The good cell, and the good cell with *cause*."""
        return self._if_allowed(self.good, self.cell(cause.members))

    def back(self, cause: Cause) -> tuple[str, str] | None:
        """The bad cell without *cause*, and the bad cell."""
        return self._if_allowed(self.cell(set(self.names) - set(cause.members)), self.bad)

    def cell(self, subset: Iterable[str]) -> str:
        """Id of the cell in which *subset* is bad."""
        members = set(subset)
        assert members <= set(self.names), members
        if members == set(self.names):
            return self.bad
        return "+".join(name for name in self.names if name in members) or self.good

    def subset(self, cell: str) -> frozenset[str]:
        """What is bad in *cell*."""
        if cell == self.bad:
            return frozenset(self.names)
        return frozenset() if cell == self.good else frozenset(cell.split("+"))

    def values(self, cell: str) -> ToggleValues:
        """Of every toggle of the subject."""
        subset = self.subset(cell)
        return {**self.good_values, **{name: self.bad_values[name] for name in subset}}

    def is_allowed(self, cell: str) -> bool:
        """Whether every toggle that is on has what it needs, and nobody refuses the cell."""
        values = self.values(cell)
        met = (
            values.get(other, False) for name, others in self.requires.items() if values.get(name) for other in others
        )
        return cell not in self.refused and all(met)

    def _if_allowed(self, base: str, candidate: str) -> tuple[str, str] | None:
        return (base, candidate) if self.is_allowed(base) and self.is_allowed(candidate) else None

    @cached_property
    def _candidates(self) -> tuple[str, ...]:
        subsets = self._all() if len(self.names) <= MAX_FULL else self._some()
        cells = dict.fromkeys(self.cell(subset) for subset in subsets)
        return tuple(cell for cell in cells if self.is_allowed(cell))

    def _all(self) -> list[Iterable[str]]:
        return [subset for size in range(len(self.names) + 1) for subset in combinations(self.names, size)]

    def _some(self) -> list[Iterable[str]]:
        near = [subset for size in range(3) for subset in combinations(self.names, size)]
        everything = frozenset(self.names)
        drawn = [self._half(number) for number in range(NUM_BALANCED // 2)]
        subsets = [frozenset(subset) for subset in near] + drawn
        # Each with its complement: every toggle is bad in half of them.
        return [side for subset in subsets for side in (subset, everything - subset)]

    def _half(self, number: int) -> frozenset[str]:
        """Half of the toggles; `random` may change between versions of Python, a digest does not."""
        ranked = sorted(self.names, key=lambda name: hashlib.sha256(f"{number}/{name}".encode()).digest())
        return frozenset(ranked[: len(ranked) // 2])
