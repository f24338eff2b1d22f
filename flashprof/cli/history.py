"""`flashprof history`."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from flashprof.cli.decision_options import reports_option
from flashprof.cli.option_types import NamedPath
from flashprof.contracts.errors import UsageError

EPILOG = """
\b
Examples
  flashprof history                              every cell: levels, changes, what is lost
  flashprof history --cell compile --since 2026-11-01
  flashprof history add reports                  runs that were measured earlier
  flashprof history accept RUN --why "exact masks, ADR 12"
  flashprof history baseline main                a name for today's level, for flashprof gate --baseline
\b
The store is reports/history.sqlite, or $FLASHPROF_HISTORY; FLASHPROF_HISTORY=off keeps none.
Exit status: 0, 2 for wrong input, 4 where the store cannot be used.
"""
WHO = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN", "USER", "LOGNAME")
SINCE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?", flags=re.ASCII)
"""Of what `fromisoformat` takes, that which is compared with the store's times letter by letter."""


@click.group("history", epilog=EPILOG, invoke_without_command=True)
@click.option("--cell", default="", metavar="TEXT", help="First digits of a cell's hash, or a part of its title.")
@click.option("--since", default="", metavar="DATE", help="Show launches from then on, 2026-11-30; earlier ones count.")
@click.option("--branch", default="", metavar="NAME", help="Launches of this branch alone.")
@reports_option
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--markdown", is_flag=True, help="For an issue, or a job's summary.")
@click.pass_context
def command(
    ctx: click.Context, *, cell: str, since: str, branch: str, reports: Path, as_json: bool, markdown: bool
) -> int:
    """
    Show tok/s over time: levels, changes, and what was lost in small steps.

    Every run and every gate is kept. Launches of one cell are a series; the newest are held against its baseline.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx)
        return 0
    from flashprof.app.history import show
    from flashprof.cli.terminal import progress_on_stderr

    _check_since(since)
    with progress_on_stderr() as progress:
        tell = progress.stage if sys.stderr.isatty() else None
        history = show(_path(reports), cell=cell, since=since, branch=branch, tell=tell)
    if as_json:
        from flashprof.store.history_result import history_to_json

        click.echo(history_to_json(history), nl=False)
    elif markdown:
        from flashprof.report.history_markdown import render_history_markdown

        click.echo(render_history_markdown(history), nl=False)
    else:
        from flashprof.cli.terminal import output_width, wants_color
        from flashprof.report.history_console import render_history

        is_tty = sys.stdout.isatty()
        color = wants_color(os.environ, is_tty=is_tty)
        click.echo(render_history(history, color=color, width=output_width(is_tty=is_tty)), nl=False, color=color)
    return 0


@command.command("add")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=NamedPath(path_type=Path))
@reports_option
def add(*, runs: tuple[Path, ...], reports: Path) -> int:
    """Keep runs that were measured earlier: run folders, or folders of them. Those that are known stay as they are."""
    from flashprof.app.history_runs import add_runs

    done = add_runs(_path(reports), runs)
    click.echo(f"added     {done.num_new}, known already {done.num_known}")
    for line in done.left_out:
        click.echo(f"left out  {line}")
    if done.said:
        click.echo(f"note      {done.said}")
    return 0


@command.command("accept")
@click.argument("run")
@click.option("--why", required=True, metavar="TEXT", help="For those who come later.")
@click.option("--who", default="", metavar="NAME", help="Whose word it is; else as CI or the system calls you.")
@reports_option
def accept(*, run: str, why: str, who: str, reports: Path) -> int:
    """
    Take the level that RUN belongs to for what it should be.

    The change at or before RUN is reported no more, and the level after it is the new baseline.
    """
    from flashprof.app import history
    from flashprof.report import history_sentences as sentences

    if not why.strip():
        raise UsageError("--why says nothing", offered=repr(why), allowed="the reason, for those who come later")
    _check_text("--why", why)
    change, series = history.accept(_path(reports), run, why=why, who=_who(who), at=_now())
    click.echo(f"accepted  {sentences.pct(change.effect)} since {change.run_id}")
    click.echo(f"now       {sentences.headline(series)}: {sentences.standing(series)}")
    return 0


@command.command("baseline")
@click.argument("name")
@click.option("--cell", default="", metavar="TEXT", help="First digits of a cell's hash, or a part of its title.")
@click.option("--who", default="", metavar="NAME", help="Whose word it is; else as CI or the system calls you.")
@reports_option
def baseline(*, name: str, cell: str, who: str, reports: Path) -> int:
    """Give today's level NAME, in every cell or in those that --cell fits: for `flashprof gate --baseline NAME`."""
    from flashprof.app.history import name_baseline

    if not re.fullmatch(r"[\w./+-]{1,80}", name):
        raise UsageError(
            "this is no name of a baseline", offered=name, allowed="letters, digits, . / _ + -", next_command="main"
        )
    for item in name_baseline(_path(reports), name, cell=cell, who=_who(who), at=_now()):
        click.echo(f"{name}  cell {item.cell}: {len(item.run_ids)} launches since {item.since[:10]}")
    return 0


def _path(reports: Path) -> Path:
    from flashprof.store.history import OFF, VARIABLE, history_path

    path = history_path(reports, os.environ)
    if path is None:
        raise UsageError(f"{VARIABLE}={OFF}: no history is kept", allowed="a file", next_command=f"unset {VARIABLE}")
    return path


def _refuse_options(ctx: click.Context) -> None:
    """`flashprof history --reports X add` would read another folder than it says."""
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name and ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"{given[0]} belongs behind {ctx.invoked_subcommand}, or to `flashprof history` alone",
            offered=" ".join(given),
            next_command=f"flashprof history {ctx.invoked_subcommand} --help",
        )


def _check_since(since: str) -> None:
    if since and not _is_time(since):
        raise UsageError(
            f"--since does not take {since!r}",
            offered=since,
            allowed="a day or a time, UTC: 2026-11-30 or 2026-11-30T12:00",
            next_command=f"flashprof history --since {_now()[:10]}",
        )


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return SINCE.fullmatch(text) is not None


def _who(given: str) -> str:
    who = given or next((os.environ[name] for name in WHO if os.environ.get(name)), "somebody")
    _check_text("--who", who)
    return who


def _check_text(option: str, text: str) -> None:
    """An argument may be made of any bytes, and the store holds text."""
    if text.encode(errors="ignore").decode() != text:
        raise UsageError(
            f"{option} is no UTF-8 text", offered=repr(text), allowed="UTF-8", next_command="flashprof history --help"
        )


def _now() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="seconds")
