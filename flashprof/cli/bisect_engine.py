"""What the commands of `flashprof bisect` share: the engine that they ask, and how its answer is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import click

from flashprof.app.search_progress import SearchProgress
from flashprof.cli.decision_options import FAILED, INTERRUPTED, verdict_status
from flashprof.contracts.experiment import SubjectSpec, WindowPlan
from flashprof.contracts.search import SearchResult
from flashprof.contracts.search_request import BisectRequest, HereRequest, HereResult

if TYPE_CHECKING:
    from flashprof.app.session import Ports


class Engine(Protocol):
    """What the command line asks of `flashprof.app.search`; tests put another in `Context.obj`."""

    def plan(self, request: BisectRequest, ports: Ports) -> Sequence[str]:
        """What would be measured first, and what it costs, as lines."""
        ...

    def bisect(self, request: BisectRequest, ports: Ports, progress: SearchProgress) -> SearchResult:
        """Search and prove until the answer is clear or the budget spent."""
        ...

    def status(self, reports: Path, name: str) -> SearchResult:
        """What a search knows; measures nothing."""
        ...

    def undo(self, reports: Path, name: str, num: int) -> SearchResult:
        """Take back the last *num* readings or cells left out."""
        ...

    def skip(self, reports: Path, name: str, cell: str) -> SearchResult:
        """Leave a cell out: its id, a toggle expression, or a commit as git names it."""
        ...

    def here(self, request: HereRequest, ports: Ports, progress: SearchProgress) -> HereResult:
        """Measure the tree that is checked out, against runs that were measured earlier."""
        ...


def engine_of(ctx: click.Context) -> Engine:
    """The one of `flashprof.app`, if no test has put another in its place."""
    if ctx.obj is not None:
        return cast("Engine", ctx.obj)
    from flashprof.app import search

    return search


def ports_for(subject: SubjectSpec, windows: WindowPlan, subject_file: str = "") -> Ports:
    """The outside world as this process sees it, without samplers."""
    from flashprof.app.wiring import wire_quiet

    return wire_quiet(subject, windows, env=os.environ, cwd=Path.cwd(), declared=subject_file)


def declared_title(ports: Ports) -> str:
    """What a declaration says that is measured; empty for our pipeline, or for a command."""
    from flashprof.app.foreign import DeclaredLauncher

    launcher = ports.launcher
    return launcher.subject.title if isinstance(launcher, DeclaredLauncher) else ""


def show(result: SearchResult, *, as_json: bool) -> None:
    """Print a result for a person or for a program."""
    from flashprof.cli.terminal import output_width, wants_color

    if as_json:
        from flashprof.store.search_result import search_to_json

        click.echo(search_to_json(result), nl=False)
        return
    from flashprof.report.bisect_console import render_search

    is_tty = sys.stdout.isatty()
    color = wants_color(os.environ, is_tty=is_tty)
    click.echo(render_search(result, color=color, width=output_width(is_tty=is_tty)), nl=False, color=color)


def exit_status(result: SearchResult, inconclusive: str | None) -> int:
    """
    The verdict as a status.

    Args:
        result: What was found.
        inconclusive: `pass` or `fail`, in place of 3. A search with a failed launch never passes.
    """
    from flashprof.report.bisect_sentences import is_failed

    if result.is_interrupted:
        return INTERRUPTED
    if is_failed(result):
        return FAILED
    return verdict_status(result.verdict, inconclusive, has_failures=bool(result.failures))
