"""Lines on standard output, which a person, `head` or FlashProf reads while they come."""

from __future__ import annotations

import sys
from contextlib import suppress

from flashprof.contracts.streams import lead_nowhere


def say(*lines: str) -> None:
    """
    Print at once: a log that is read while it grows must not lag.

    A reader that has gone (`train | head`) or a full disk is no reason to stop training: what is said from then on
    goes nowhere.
    """
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except OSError as error:
        lead_nowhere(sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return
        with suppress(OSError):
            sys.stderr.write(f"standard output: {error.strerror}: what else is said goes nowhere\n")
            sys.stderr.flush()
