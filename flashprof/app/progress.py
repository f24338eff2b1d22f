"""What measuring says while it goes on; the command line shows it, tests collect it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where the run is. A stage may take minutes: nobody should have to guess whether it is slow, stuck or dead."""

    def stage(self, text: str, *, total_s: float | None = None) -> None:
        """A new stage begins; *total_s* is how long it should take, or at most takes."""
        ...

    def advance(self, done_s: float, detail: str = "") -> None:
        """Seconds spent in this stage, and what is seen of the subject."""
        ...

    def note(self, text: str) -> None:
        """Something that the user should know now."""
        ...
