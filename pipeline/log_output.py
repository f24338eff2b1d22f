"""Lines on standard output, which a person, `head` or FlashProf reads while they come."""

from __future__ import annotations

import os
import sys


def say(*lines: str) -> None:
    """
    Print at once: a log that is read while it grows must not lag.

    A reader that has gone (`train | head`) is no reason to stop training: what is said from then on goes nowhere.
    """
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except BrokenPipeError:
        # The descriptor, not the file object: Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
