"""What real processes of a test have written and left behind."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

SERVICES = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
"""multiprocessing keeps these for the whole test session, once any test has used it."""


def own_children() -> list[psutil.Process]:
    """Children of this process, without multiprocessing's own services."""
    children = psutil.Process().children()
    return [child for child in children if not any(name in " ".join(child.cmdline()) for name in SERVICES)]


def wait_for_lines(path: Path, word: str, count: int) -> None:
    """Wait until the file at *path* holds *word* so often; 20 s at most."""
    for _ in range(2000):
        if path.exists() and path.read_text(encoding="utf-8").count(word) >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never held {count} × {word}")
