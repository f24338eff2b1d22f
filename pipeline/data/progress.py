"""Progress on stderr: a bar where a person watches, one line a stage where a log is written."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

BAR_DELAY_S = 2.0


def stage(items: Iterable[Item], label: str, *, total: int | None = None) -> Iterator[Item]:
    """
    Pass *items* on and show how far they are.

    Args:
        items: Anything to go through once.
        label: What is being done, such as `encoding stdlib`.
        total: Number of items, where it is known.
    """
    if not sys.stderr.isatty():
        say(label)
    yield from tqdm(items, desc=label, total=total, delay=BAR_DELAY_S, disable=None, leave=False, file=sys.stderr)


def say(line: str) -> None:
    """Write one line, at once: a log that ends in it must tell what is being waited for."""
    sys.stderr.write(f"data: {line}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def quiet_bars() -> Iterator[None]:
    """Keep a library's own bars out of a log: transformers draws 300 updates a conversion even into a file."""
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        yield
