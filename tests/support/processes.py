"""Which processes a test has left behind."""

from __future__ import annotations

import psutil

SERVICES = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
"""multiprocessing keeps these for the whole test session, once any test has used it."""


def own_children() -> list[psutil.Process]:
    """Children of this process, without multiprocessing's own services."""
    children = psutil.Process().children()
    return [child for child in children if not any(name in " ".join(child.cmdline()) for name in SERVICES)]
