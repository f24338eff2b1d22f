"""What the terminal can show, and progress on it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from flashprof.app.progress import Progress

if TYPE_CHECKING:
    import rich.console
    import rich.progress

PLAIN_WIDTH = 100


def wants_color(env: Mapping[str, str], *, is_tty: bool) -> bool:
    """https://no-color.org and https://bixense.com/clicolors."""
    if env.get("NO_COLOR"):
        return False
    return env.get("CLICOLOR_FORCE", "") not in ("", "0") or (is_tty and env.get("TERM") != "dumb")


def output_width(*, is_tty: bool) -> int:
    """Columns of the terminal; a fixed number where the output is a file."""
    return shutil.get_terminal_size().columns if is_tty else PLAIN_WIDTH


@contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """A live bar on a terminal, one line a stage elsewhere: logs must not fill with carriage returns."""
    if not sys.stderr.isatty():
        yield LineProgress()
        return
    from rich.console import Console

    with make_bars(Console(stderr=True)) as bars:
        yield BarProgress(bars)


def make_bars(console: rich.console.Console) -> rich.progress.Progress:
    """The columns of `BarProgress`."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    # No markup: the detail may be what the subject printed, and `[/opt/x]` is no closing tag.
    detail = TextColumn("{task.fields[detail]}", markup=False)
    return Progress(*columns, detail, console=console, transient=True)


class LineProgress:
    """For files and CI: when each stage began."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def stage(self, text: str, *, total_s: float | None = None) -> None:
        """One line."""
        self.note(f"{text} (up to {total_s:.0f} s)" if total_s else text)

    def advance(self, done_s: float, detail: str = "") -> None:
        """Nothing: a line a poll would drown the log."""

    def note(self, text: str) -> None:
        """One line."""
        click.echo(f"[{time.monotonic() - self._start_s:5.1f} s] {text}", err=True)


class BarProgress:
    """For people: one bar a stage, with what is seen of the subject."""

    def __init__(self, bars: rich.progress.Progress) -> None:
        self._bars = bars
        self._task: rich.progress.TaskID | None = None

    def stage(self, text: str, *, total_s: float | None = None) -> None:
        """Replace the bar."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(text, total=total_s, detail="")

    def advance(self, done_s: float, detail: str = "") -> None:
        """Move the bar."""
        if self._task is not None:
            self._bars.update(self._task, completed=done_s, detail=detail)

    def note(self, text: str) -> None:
        """Print above the bar."""
        self._bars.console.print(text, highlight=False, markup=False)
