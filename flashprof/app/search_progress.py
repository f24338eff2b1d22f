"""Progress of a search: as of any measuring, and what is believed so far."""

from __future__ import annotations

from typing import Protocol

from flashprof.app.progress import Progress
from flashprof.contracts.search import SearchLook


class SearchProgress(Progress, Protocol):
    """Shown by the command line, collected by tests."""

    def look(self, look: SearchLook) -> None:
        """After every observation; how often it is told is for the one who shows it."""
        ...
