"""What a search needs to know of the cells that it may measure: toggles and commits answer the same questions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from flashprof.contracts.search import Cause

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flashprof.stats.terms import Terms


class Space(Protocol):
    """Cells, what may matter in them, and which cells show whether it does."""

    @property
    def good(self) -> str:
        """Id of the fast cell."""

    @property
    def bad(self) -> str:
        """Id of the slow cell."""

    @property
    def terms(self) -> Terms:
        """What may change the speed."""

    def terms_near(self, phases: Collection[str]) -> Terms:
        """The same, with what names one of the *phases* that differ between the ends the likelier."""

    def rows(self, cells: Sequence[str]) -> NDArray[np.float64]:
        """Which terms are there in which cell: (num_cells, num_terms) of 0 and 1."""

    def group(self, cell: str) -> str:
        """What only a start can change; cells of one group may share a launch."""

    def candidates(self, measured: Collection[str]) -> Sequence[str]:
        """Cells that the search may want next, both ends and what is *measured* already included."""

    def cause(self, term: int) -> Cause:
        """A term as a person reads it."""

    def alone(self, cause: Cause) -> tuple[str, str] | None:
        """Base and candidate cell that differ by *cause* only, near the good end; None where they cannot be made."""

    def back(self, cause: Cause) -> tuple[str, str] | None:
        """The same near the bad end: the base is the bad cell without *cause*."""
