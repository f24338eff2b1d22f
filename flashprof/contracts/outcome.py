"""How a launch ended. A failed cell is not a slow cell (design §4.7)."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The end of one launch, as written in the manifest."""

    COMPLETED = "completed"
    """Every planned window was measured and the subject stopped cleanly."""
    ENDED_EARLY = "ended early"
    """The subject finished by itself, status 0, before the last planned window."""
    LOAD_FAILED = "failed while loading"
    """The subject ended before it trained a step."""
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out of memory"
    HUNG = "hung"
    """Alive, but no event for longer than the limit."""
    TIMED_OUT = "timed out"
    KILLED = "killed by a signal"
    INTERRUPTED = "interrupted"
    """The user pressed Ctrl-C or sent SIGTERM to FlashProf."""
    WRONG_NUMBERS = "wrong numbers"
    """NaN, infinity or an impossible value: fast but wrong is wrong."""
    NO_PERMISSION = "no permission"
    """The system forbade the subject something that it needs: a device, a file, shared memory."""
    TOOL_FAILED = "tool failed"
    """The disk was full, or FlashProf itself could not go on."""

    @property
    def is_measurement(self) -> bool:
        """Whether the windows of this launch may be compared with others."""
        return self is Outcome.COMPLETED
