"""`flashprof bisect status | log | undo | skip`: a search between two calls. None of them measures anything."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flashprof.cli.bisect_engine import engine_of, show
from flashprof.cli.decision_options import Command, combined, json_option, reports_option
from flashprof.contracts.errors import UnknownNameError, UsageError

FIRST = "flashprof bisect --good all --bad none"


def find_search(reports: Path, name: str) -> Path:
    """
    The folder of a search.

    Args:
        reports: Where searches lie.
        name: Of its folder, or a path to it; empty for the search that was worked on last.

    Raises:
        UsageError: There is none.
    """
    from flashprof.store.search_folder import SEARCH, latest_search

    if name:
        path = Path(name) if "/" in name else reports / name
        if (path / SEARCH.document).is_file():
            return path
        known = sorted(found.parent.name for found in reports.glob(f"bisect-*/{SEARCH.document}"))
        raise UnknownNameError("search", name, known, next_command="flashprof bisect status, for the latest")
    latest = latest_search(reports) if reports.is_dir() else None
    if latest is None:
        raise UsageError(
            "there is no search yet",
            where=str(reports),
            allowed="a folder of reports in which flashprof bisect has searched",
            next_command=f"{FIRST}, or --reports DIR",
        )
    return latest


def search_options(command: Command) -> Command:
    """Decorate a command with the options that say which search is meant."""
    return combined(
        click.option("--search", default="", metavar="NAME", help="Another search than the latest."),
        reports_option,
        json_option("Print it for programs."),
    )(command)


@click.command("status")
@search_options
@click.pass_context
def status(ctx: click.Context, *, search: str, reports: Path, as_json: bool) -> int:
    """Show what a search knows by now. Exit status 0, whatever it is."""
    path = find_search(reports, search)
    show(engine_of(ctx).status(path.parent, path.name), as_json=as_json)
    return 0


@click.command("log")
@search_options
def log(*, search: str, reports: Path, as_json: bool) -> int:
    """
    List what was learnt, in order: readings, launches, builds, what was undone or left out.

    With --json one JSON object a line, as the journal has it.
    """
    from flashprof.decide.search_observations import search_observation_to_json
    from flashprof.report.bisect_log import log_lines
    from flashprof.store.search_folder import read_search

    observations = read_search(find_search(reports, search)).observations
    if as_json:
        for observation in observations:
            click.echo(json.dumps(search_observation_to_json(observation), ensure_ascii=False))
        return 0
    for line in log_lines(observations):
        click.echo(line)
    return 0


@click.command("undo")
@click.argument("num", default=1, type=click.IntRange(min=1))
@search_options
@click.pass_context
def undo(ctx: click.Context, *, num: int, search: str, reports: Path, as_json: bool) -> int:
    """Take back the last NUM readings or cells left out (1 if not said); `log` shows which."""
    path = find_search(reports, search)
    show(engine_of(ctx).undo(path.parent, path.name, num), as_json=as_json)
    return 0


@click.command("skip")
@click.argument("cell")
@search_options
@click.pass_context
def skip(ctx: click.Context, *, cell: str, search: str, reports: Path, as_json: bool) -> int:
    """Leave CELL out: a toggle expression or a commit. That says nothing about its speed; `undo` takes it back."""
    path = find_search(reports, search)
    show(engine_of(ctx).skip(path.parent, path.name, cell), as_json=as_json)
    return 0
